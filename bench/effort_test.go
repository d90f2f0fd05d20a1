package main

import (
	"bytes"
	"context"
	"encoding/gob"
	"testing"
	"time"
)

// laborious keeps a core busy for a while before it lets anybody in.
type laborious struct {
	free
	work time.Duration
}

func (l laborious) mutex(string) mutex { return l }
func (l laborious) close() error       { return nil }

func (l laborious) lock(ctx context.Context) (context.Context, error) {
	for began := cpuTime(); cpuTime() < began+l.work; {
	}
	return ctx, nil
}

func TestTheCPUThatAClientNeedsIsTold(t *testing.T) {
	if !sharesMemory {
		t.Skip("this system does not tell")
	}
	const work = time.Millisecond
	c := contender{name: "laborious", foreign: true, dial: func(setup) (client, error) { return laborious{work: work}, nil }}
	_, _ = laborious{work: 20 * briefly}.lock(t.Context()) // what was used before is not the clients'
	for _, s := range []scenario{{name: "solo", clients: 1, goroutines: 1, run: cycles}, crowdOf(1)} {
		b := (&site{}).bout(s, c, briefly)
		before := cpuTime()
		got, err := b.run(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		used := cpuTime() - before
		// The work for the first cycle that counts may have been done before. There are two at least.
		if cpu := got.figures["cpu_us_per_cycle"]; cpu < micros(work)/2 {
			t.Errorf("%s: %v us of CPU for a cycle that takes %v", s.name, cpu, work)
		}
		if told := got.figures["cpu_us_per_cycle"] * got.figures["cycles_per_s"] * b.window.Seconds(); told > micros(used) {
			t.Errorf("%s: %v us of CPU for all cycles, of a run that took %v in all", s.name, told, used)
		}
	}
}

func TestTheCPUOfProcessesIsAddedUp(t *testing.T) {
	g := gang{shared: new(shared)}
	for _, used := range []time.Duration{3 * time.Millisecond, 4 * time.Millisecond} {
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(answer{Tally: tally{Each: []int64{5}, CPU: used}}); err != nil {
			t.Fatal(err)
		}
		g.receive = append(g.receive, gob.NewDecoder(&b))
	}
	all, err := g.finish()
	if err != nil {
		t.Fatal(err)
	}
	if got := all.figures(time.Second)["cpu_us_per_cycle"]; got != 700 {
		t.Errorf("%v us of CPU for each of 10 cycles of two processes, which needed 3 and 4 ms", got)
	}
}
