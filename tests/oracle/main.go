// Command oracle answers what the in-tree allocator of Kubernetes says to a case: one JSON document a line on
// stdin, one JSON document a line on stdout, in order, each flushed, so that one process serves many cases.
//
// It owns no opinion: setting up the allocator is copied in spirit from kube-scheduler's DynamicResources plugin,
// and the answer is the allocator's own. See README.md for both documents.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	repeat := flag.Int("repeat", 0, "timing mode: after the answer, run the case this often and report ns per run")
	timeout := flag.Duration("timeout", 10*time.Second, "per case; the search is exhaustive and may take for ever (kube-scheduler's filterTimeout)")
	flag.Parse()
	if flag.NArg() != 0 || *repeat < 0 || *timeout <= 0 {
		fmt.Fprintln(os.Stderr, "usage: oracle [-repeat N] [-timeout 10s] < cases.jsonl > answers.jsonl")
		os.Exit(2)
	}
	if err := serve(os.Stdin, os.Stdout, *repeat, *timeout); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

// serve fails on the first document it cannot read: a case that is not understood has no answer.
func serve(in io.Reader, out io.Writer, repeat int, timeout time.Duration) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	write := bufio.NewWriter(out)
	encode := json.NewEncoder(write)
	encode.SetEscapeHTML(false)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return err
		}
		last := err == io.EOF
		if len(line) > 1 {
			c, err := read(line)
			if err != nil {
				return fmt.Errorf("line %d: %w", number, err)
			}
			answer := c.answer(timeout)
			if repeat > 0 {
				answer.Timing = c.time(repeat, timeout)
			}
			if err := encode.Encode(answer); err != nil {
				return err
			}
			if err := write.Flush(); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}
