package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Answer is what comes out for a case.
type Answer struct {
	Fits bool `json:"fits"`
	// Error is the allocator's own text; null when it said yes, or a plain no.
	Error *string `json:"error"`
	// Fatal errors abort the scheduling attempt; the others concern this node only.
	Fatal bool `json:"fatal"`
	// Results has one entry a claim, in order; null unless it fits.
	Results []resourceapi.AllocationResult `json:"results"`
	Micros  int64                          `json:"micros"`
	// Matches by `claim/request[/subrequest]` and `driver/pool/device`: true, false or the error's text.
	Matches map[string]map[string]any `json:"matches,omitempty"`
	Timing  *Timing                   `json:"timing,omitempty"`
}

// Timing in nanoseconds. Compiled selectors are in the cache, as in a scheduler that has seen the class before.
type Timing struct {
	Runs int `json:"runs"`
	// Allocate alone, on an allocator that is there already (one a pod, used for each of its nodes).
	AllocateMean int64 `json:"allocateMeanNs"`
	AllocateMin  int64 `json:"allocateMinNs"`
	// With gathering what is in use and making the allocator, which the scheduler does once a pod.
	WholeMean int64 `json:"wholeMeanNs"`
	WholeMin  int64 `json:"wholeMinNs"`
}

// One cache a feature set, of the size kube-scheduler gives it.
var caches = map[cel.Features]*cel.Cache{}

func (c *Case) cache() *cel.Cache {
	features := cel.Features{
		EnableConsumableCapacity: c.features.ConsumableCapacity,
		EnableListTypeAttributes: c.features.ListTypeAttributes,
	}
	if caches[features] == nil {
		caches[features] = cel.NewCache(10, features)
	}
	return caches[features]
}

func (c *Case) allocator(ctx context.Context) (structured.Allocator, error) {
	return structured.NewAllocator(ctx, c.features, c.allocatedState(), c.classes(), c.Slices, c.cache())
}

func (c *Case) answer(timeout time.Duration) Answer {
	ctx, cancel := context.WithTimeoutCause(context.Background(), timeout, errors.New("oracle timeout"))
	defer cancel()
	started := time.Now()
	results, err := c.allocate(ctx)
	answer := Answer{Micros: time.Since(started).Microseconds()}
	switch {
	case err != nil:
		text := err.Error()
		answer.Error = &text
		answer.Fatal = !errors.Is(err, structured.ErrFailedAllocationOnNode)
	case results != nil: // nil and no error is the plain no
		answer.Fits = true
		answer.Results = results
	}
	if c.Matches {
		answer.Matches = c.matches(ctx)
	}
	return answer
}

func (c *Case) allocate(ctx context.Context) ([]resourceapi.AllocationResult, error) {
	allocator, err := c.allocator(ctx)
	if err != nil {
		return nil, err
	}
	return allocator.Allocate(ctx, c.Node, c.Claims)
}

func (c *Case) time(runs int, timeout time.Duration) *Timing {
	ctx, cancel := context.WithTimeout(context.Background(), timeout*time.Duration(runs))
	defer cancel()
	allocator, err := c.allocator(ctx)
	if err != nil {
		return nil
	}
	timing := &Timing{Runs: runs}
	timing.AllocateMean, timing.AllocateMin = measure(runs, func() {
		_, _ = allocator.Allocate(ctx, c.Node, c.Claims)
	})
	timing.WholeMean, timing.WholeMin = measure(runs, func() { _, _ = c.allocate(ctx) })
	return timing
}

func measure(runs int, run func()) (mean, least int64) {
	var sum time.Duration
	shortest := time.Duration(1<<63 - 1)
	for range runs {
		started := time.Now()
		run()
		took := time.Since(started)
		sum += took
		shortest = min(shortest, took)
	}
	return sum.Nanoseconds() / int64(runs), shortest.Nanoseconds()
}

// matches evaluates class and request selectors as isSelectable of the allocator does, on every device of every
// slice, so that a checker of answers needs no CEL of its own.
func (c *Case) matches(ctx context.Context) map[string]map[string]any {
	all := map[string]map[string]any{}
	byName := c.classes()
	request := func(key, className string, selectors []resourceapi.DeviceSelector) {
		class := byName[className]
		if class == nil {
			return
		}
		row := map[string]any{}
		for _, slice := range c.Slices {
			for i := range slice.Spec.Devices {
				device := &slice.Spec.Devices[i]
				id := slice.Spec.Driver + "/" + slice.Spec.Pool.Name + "/" + device.Name
				row[id] = c.match(ctx, slice.Spec.Driver, device, class.Spec.Selectors, selectors)
			}
		}
		all[key] = row
	}
	for _, claim := range c.Claims {
		for _, r := range claim.Spec.Devices.Requests {
			if r.Exactly != nil {
				request(claim.Name+"/"+r.Name, r.Exactly.DeviceClassName, r.Exactly.Selectors)
			}
			for _, sub := range r.FirstAvailable {
				request(claim.Name+"/"+r.Name+"/"+sub.Name, sub.DeviceClassName, sub.Selectors)
			}
		}
	}
	return all
}

func (c *Case) match(ctx context.Context, driver string, device *resourceapi.Device, lists ...[]resourceapi.DeviceSelector) any {
	for _, selectors := range lists {
		for i, selector := range selectors {
			if selector.CEL == nil {
				return fmt.Sprintf("selector #%d: no CEL", i)
			}
			expr := c.cache().GetOrCompile(selector.CEL.Expression)
			if expr.Error != nil {
				return expr.Error.Error()
			}
			matches, _, err := expr.DeviceMatches(ctx, cel.Device{
				Driver: driver, AllowMultipleAllocations: device.AllowMultipleAllocations,
				Attributes: device.Attributes, Capacity: device.Capacity,
			})
			if err != nil {
				return err.Error()
			}
			if !matches {
				return false
			}
		}
	}
	return true
}
