package main

import (
	"context"
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
)

// measure fills the report. In each round, the contenders of a scenario run one after another, so that
// changes of the machine's speed affect all of them alike.
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
				x := some[(i+n)%len(some)] // each round begins with another contender
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

// measured returns the time for which each contender is measured in one round of the scenario s.
func (r *report) measured(s scenario) time.Duration {
	return r.window * time.Duration(max(1, s.stretch))
}

// lasts returns the approximate time that measure takes.
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

// once runs b and adds its figures as a round. If b fails with a lock of this module, or because ctx has
// ended, once returns the error. If b fails with another library, the program leaves this contender out of
// this scenario.
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
