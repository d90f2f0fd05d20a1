package main

import (
	"context"
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
)

// plan is what to run.
type plan struct {
	at         *site
	rounds     int
	window     time.Duration
	scenarios  []scenario
	contenders []contender
}

// run fills the report. In every round every contender runs in every scenario, so that
// drift of the machine hits all alike; then come the rounds of their own.
func (p plan) run(ctx context.Context, r *report, bar *progressbar.ProgressBar) error {
	defer func() { _ = bar.Finish() }()
	bar.ChangeMax(len(r.Results) * (p.rounds + 1))
	for round := range p.rounds + 1 {
		for _, s := range p.scenarios {
			for i := range p.contenders {
				c := p.contenders[(i+round)%len(p.contenders)] // nobody is always first
				x := r.result(s, c)
				if x == nil {
					continue
				}
				bar.Describe(fmt.Sprintf("round %d of %d: %s, %s", min(round+1, p.rounds), p.rounds, s.name, c.name))
				b := p.at.bout(s, c, p.window)
				if err := b.into(ctx, x, round == p.rounds); err != nil {
					return fmt.Errorf("%s, %s: %w", s.name, c.name, err)
				}
				_ = bar.Add(1)
			}
		}
	}
	for _, x := range r.Results {
		x.finish()
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
