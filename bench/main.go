package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the program.
func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errOut)
	var (
		onlyScenarios  = flags.String("scenario", "", "run only these `scenarios`, separated by commas: "+names(scenarios))
		onlyContenders = flags.String("contender", "", "run only these `contenders`, separated by commas: "+names(contenders("")))
		rounds         = flags.Int("rounds", 5, "how often every contender runs in every scenario")
		window         = flags.Duration("for", 2*time.Second, "how long each run is measured")
		url            = flags.String("redis", "", "`URL` of the server to use, as redis://127.0.0.1:6379/0; else one is started")
		jsonFile       = flags.String("json", "", "write the results as JSON to this `file`; - is the output, in place of the table")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case *rounds < 1:
		return fmt.Errorf("--rounds %d: at least 1", *rounds)
	case *window < time.Millisecond:
		return fmt.Errorf("--for %v: at least 1ms", *window)
	}
	chosenScenarios, err := pick("--scenario", scenarios, *onlyScenarios)
	if err != nil {
		return err
	}

	server := "given by --redis"
	if *url == "" {
		own, err := startServer(ctx)
		if err != nil {
			return err
		}
		defer func() { err = cmp.Or(err, own.stop()) }()
		*url, server = own.url(), "started for this run, on loopback, without persistence"
	}
	version, err := serverVersion(ctx, *url)
	if err != nil {
		return err
	}
	chosenContenders, err := pick("--contender", contenders(version), *onlyContenders)
	if err != nil {
		return err
	}

	r := newReport(version, server, *rounds, *window)
	r.describe(chosenScenarios, chosenContenders)
	plan := plan{*url, *rounds, *window, chosenScenarios, chosenContenders}
	if err := plan.run(ctx, progress(errOut), r.add); err != nil {
		return err
	}
	r.finish()
	if *jsonFile == "-" {
		err = r.writeJSON(out)
	} else {
		err = r.writeTable(out)
		if *jsonFile != "" {
			err = cmp.Or(err, writeFile(*jsonFile, r.writeJSON))
		}
	}
	if n := r.violations(); n > 0 {
		return errors.Join(err, fmt.Errorf("mutual exclusion was violated %d times", n))
	}
	return err
}

// named is what a filter chooses from.
type named interface{ called() string }

func names[T named](all []T) string {
	var s []string
	for _, x := range all {
		s = append(s, x.called())
	}
	return strings.Join(s, ", ")
}

// pick returns those of all whose names are in list, in the order of all.
func pick[T named](option string, all []T, list string) ([]T, error) {
	if list == "" {
		return all, nil
	}
	want := strings.Split(list, ",")
	for i, name := range want {
		want[i] = strings.TrimSpace(name)
		if !slices.ContainsFunc(all, func(x T) bool { return x.called() == want[i] }) {
			return nil, fmt.Errorf("%s: there is no %q, but %s", option, want[i], names(all))
		}
	}
	var picked []T
	for _, x := range all {
		if slices.Contains(want, x.called()) {
			picked = append(picked, x)
		}
	}
	return picked, nil
}

// plan is what to run.
type plan struct {
	url        string
	rounds     int
	window     time.Duration
	scenarios  []scenario
	contenders []contender
}

// run runs it, and gives each result to add.
func (p plan) run(ctx context.Context, progress func(string), add func(scenario, contender, sample)) error {
	for round := range p.rounds {
		for _, s := range p.scenarios {
			for i := range p.contenders {
				c := p.contenders[(i+round)%len(p.contenders)] // nobody is always first
				if c.absence(s) != "" {
					continue
				}
				progress(fmt.Sprintf("round %d of %d: %s, %s", round+1, p.rounds, s.name, c.name))
				result, err := s.run(ctx, c, p.url, p.window)
				if err != nil {
					progress("")
					return fmt.Errorf("%s, %s: %w", s.name, c.name, err)
				}
				add(s, c, result)
			}
		}
	}
	progress("")
	return nil
}

// progress keeps one line of a terminal up to date, and is silent elsewhere.
func progress(w io.Writer) func(string) {
	f, ok := w.(*os.File)
	if !ok {
		return func(string) {}
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return func(string) {}
	}
	return func(line string) { fmt.Fprintf(f, "\r\x1b[K%s", line) }
}

func serverVersion(ctx context.Context, url string) (string, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return "", err
	}
	rdb := redis.NewClient(opt)
	defer func() { _ = rdb.Close() }()
	info, err := rdb.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return strings.TrimSpace(v), nil
		}
	}
	return "", errors.New("the server does not tell its version")
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return cmp.Or(write(f), f.Close())
}
