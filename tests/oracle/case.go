package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

// Case is one document: what the plugin would find in its informers, and the claims of one pod.
type Case struct {
	Node    *v1.Node                     `json:"node"`
	Slices  []*resourceapi.ResourceSlice `json:"slices"`
	Classes []*resourceapi.DeviceClass   `json:"classes"`
	// Claims are to be allocated, together.
	Claims []*resourceapi.ResourceClaim `json:"claims"`
	// Allocated are claims with status.allocation: what is in use.
	Allocated []*resourceapi.ResourceClaim `json:"allocated"`
	// Features that are not named are on.
	Features map[string]bool `json:"features"`
	// Matches asks for the result of every selector set on every device, too.
	Matches bool `json:"matches"`
	// Comment is for people.
	Comment json.RawMessage `json:"comment"`

	features structured.Features
}

func read(line []byte) (*Case, error) {
	c := &Case{}
	decode := json.NewDecoder(bytes.NewReader(line))
	decode.DisallowUnknownFields() // a misspelt field would silently test something else
	if err := decode.Decode(c); err != nil {
		return nil, err
	}
	if c.Node == nil {
		return nil, fmt.Errorf("no node")
	}
	c.features = structured.Features{
		AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
		ListTypeAttributes: true, PartitionableDevices: true, PrioritizedList: true,
	}
	names := map[string]*bool{
		"adminAccess": &c.features.AdminAccess, "consumableCapacity": &c.features.ConsumableCapacity,
		"bindingConditions": &c.features.DeviceBindingAndStatus, "taints": &c.features.DeviceTaints,
		"listAttributes": &c.features.ListTypeAttributes, "partitionable": &c.features.PartitionableDevices,
		"prioritizedList": &c.features.PrioritizedList,
	}
	for name, on := range c.Features {
		feature, known := names[name]
		if !known {
			return nil, fmt.Errorf("unknown feature %q", name)
		}
		*feature = on
	}
	for _, claim := range c.Claims {
		setDefaults(claim)
	}
	return c, nil
}

// setDefaults does what the API server does to a claim before a scheduler sees it.
func setDefaults(claim *resourceapi.ResourceClaim) {
	count := func(mode *resourceapi.DeviceAllocationMode, count *int64) {
		if *mode == "" {
			*mode = resourceapi.DeviceAllocationModeExactCount
		}
		if *mode == resourceapi.DeviceAllocationModeExactCount && *count == 0 {
			*count = 1
		}
	}
	tolerations := func(tolerations []resourceapi.DeviceToleration) {
		for i := range tolerations {
			if tolerations[i].Operator == "" {
				tolerations[i].Operator = resourceapi.DeviceTolerationOpEqual
			}
		}
	}
	for i := range claim.Spec.Devices.Requests {
		request := &claim.Spec.Devices.Requests[i]
		if exactly := request.Exactly; exactly != nil {
			count(&exactly.AllocationMode, &exactly.Count)
			tolerations(exactly.Tolerations)
		}
		for j := range request.FirstAvailable {
			sub := &request.FirstAvailable[j]
			count(&sub.AllocationMode, &sub.Count)
			tolerations(sub.Tolerations)
		}
	}
}

// allocatedState is foreachAllocatedDevice and GatherAllocatedState of the DynamicResources plugin without its
// caches: admin access counts for nothing, a share ID makes it a share, all else is exclusive.
func (c *Case) allocatedState() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range c.Allocated {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if ptr.Deref(result.AdminAccess, false) {
				continue
			}
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if c.features.ConsumableCapacity && result.ShareID != nil {
				state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
				if result.ConsumedCapacity != nil {
					state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
				}
				continue
			}
			state.AllocatedDevices.Insert(id)
		}
	}
	return state
}

// classes is the lister over the document's DeviceClasses.
type classes map[string]*resourceapi.DeviceClass

func (c *Case) classes() classes {
	byName := make(classes, len(c.Classes))
	for _, class := range c.Classes {
		byName[class.Name] = class
	}
	return byName
}

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	list := make([]*resourceapi.DeviceClass, 0, len(c))
	for _, class := range c {
		list = append(list, class)
	}
	return list, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, found := c[name]; found {
		return class, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: resourceapi.GroupName, Resource: "deviceclasses"}, name)
}
