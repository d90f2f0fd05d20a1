package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
)

// plan is what to run.
type plan struct {
	at        *site
	rounds    int
	window    time.Duration
	scenarios []scenario
}

// furthest is how many times the planned rounds a contender runs at most.
const furthest = 4

// run fills the report. In every round every contender runs in every scenario, so that drift of the
// machine hits all alike; then the unsteady ones have further rounds, and all have rounds of their own.
func (p plan) run(ctx context.Context, r *report, bar *progressbar.ProgressBar) error {
	defer func() { _ = bar.Finish() }()
	bar.ChangeMax(len(r.Results) * (p.rounds + 1))
	due := func(scenario string) []*result {
		some := r.of(scenario)
		if len(some) > 0 && some[0].scenario.once && len(some[0].rounds) > 0 {
			bar.AddMax(-len(some))
			return nil
		}
		return some
	}
	for n := range p.rounds {
		title := fmt.Sprintf("round %d of %d", n+1, p.rounds)
		if err := p.round(ctx, bar, round{title, n, due, false}); err != nil {
			return err
		}
	}
	still := func(scenario string) []*result {
		some := unsteady(r.of(scenario))
		bar.AddMax(len(some))
		return some
	}
	for n := p.rounds; n < furthest*p.rounds; n++ { // most of them are for nobody or few
		title := fmt.Sprintf("further round %d", n+1-p.rounds)
		if err := p.round(ctx, bar, round{title, n, still, false}); err != nil {
			return err
		}
	}
	if err := p.round(ctx, bar, round{"counting", 0, r.of, true}); err != nil {
		return err
	}
	r.leaveOut()
	for _, x := range r.Results {
		x.finish()
	}
	return nil
}

// leaveOut makes those absent that failed.
func (r *report) leaveOut() {
	r.Results = slices.DeleteFunc(r.Results, func(x *result) bool {
		if x.failed != nil {
			r.Absent = append(r.Absent, absent{x.scenario.name, x.contender.name, "it failed in this run: " + strings.ReplaceAll(x.failed.Error(), "\n", "; ")}) // one line, for tables
		}
		return x.failed != nil
	})
}

// round is one turn of those of each scenario that it is for.
type round struct {
	title string
	n     int
	who   func(scenario string) []*result
	own   bool // a round of their own
}

func (p plan) round(ctx context.Context, bar *progressbar.ProgressBar, r round) error {
	for _, s := range p.scenarios {
		some := r.who(s.name)
		for i := range some {
			x := some[(i+r.n)%len(some)] // nobody is always first
			bar.Describe(fmt.Sprintf("%s: %s, %s", r.title, s.name, x.contender.name))
			err := p.at.bout(s, x.contender, p.window*time.Duration(max(1, s.stretch))).into(ctx, x, r.own)
			switch {
			case err == nil:
			case x.contender.ours() || ctx.Err() != nil:
				return fmt.Errorf("%s, %s: %w", s.name, x.contender.name, err)
			default: // the others are worth measuring all the same
				x.failed = err
			}
			_ = bar.Add(1)
		}
	}
	return nil
}

// into runs the bout, or what it has in rounds of their own, and adds what was measured.
func (b bout) into(ctx context.Context, x *result, own bool) error {
	// Without a deadline: some libraries shorten their leases to it.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(10*b.window+patience, func() { cancel(errPatient) }).Stop()
	if !own {
		s, err := b.run(ctx, b)
		if err != nil {
			return err
		}
		x.rounds = append(x.rounds, s.figures)
		if s.waits != nil {
			x.waits.merge(s.waits)
			x.waited = true
		}
		return nil
	}
	for _, count := range b.countings() {
		f, err := count(ctx)
		if err != nil {
			return err
		}
		x.extra = append(x.extra, f)
	}
	return nil
}

// countings are the rounds of their own.
func (b bout) countings() (all []func(context.Context) (figures, error)) {
	if b.counted && !b.foreign {
		all = append(all, b.countRequests)
	}
	if b.ordered && !b.foreign {
		all = append(all, b.rankGrants)
	}
	return all
}
