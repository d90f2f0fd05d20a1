package main

import (
	"context"
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
)

// measure fills the report. In every round every contender runs once in every scenario, so that drift of
// the machine hits all alike.
func (r *report) measure(ctx context.Context, at *site, bar *progressbar.ProgressBar) error {
	defer func() { _ = bar.Finish() }()
	bar.ChangeMax64(r.lasts().Milliseconds())
	for n := range r.rounds {
		for _, s := range r.scenarios {
			if s.once && n > 0 {
				continue
			}
			some := r.of(s)
			for i := range some {
				x := some[(i+n)%len(some)] // nobody is always first
				b := bout{s, x.contender, at.setup(s), r.measured(s)}
				bar.Describe(fmt.Sprintf("round %d of %d: %s, %s", n+1, r.rounds, s.name, x.contender.name))
				if err := x.once(ctx, b); err != nil {
					return err
				}
				_ = bar.Add64((b.window + s.beside()).Milliseconds())
			}
		}
	}
	return nil
}

// measured is how long one contender is measured in a scenario.
func (r *report) measured(s scenario) time.Duration {
	return r.window * time.Duration(max(1, s.stretch))
}

// lasts is how long the run takes, about.
func (r *report) lasts() (all time.Duration) {
	for _, x := range r.results {
		rounds := r.rounds
		if x.scenario.once {
			rounds = 1
		}
		all += time.Duration(rounds) * (r.measured(x.scenario) + x.scenario.beside())
	}
	return all
}

// once adds a round. A library of others that fails takes part no more: the rest is worth measuring all
// the same.
func (x *result) once(ctx context.Context, b bout) error {
	if x.failed != nil {
		return nil
	}
	f, err := b.measured(ctx)
	switch {
	case err == nil:
		x.rounds = append(x.rounds, f)
	case b.ours() || ctx.Err() != nil:
		return fmt.Errorf("%s, %s: %w", b.scenario.name, b.contender.name, err)
	default:
		x.failed = err
	}
	return nil
}
