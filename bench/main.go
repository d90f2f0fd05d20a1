package main

import (
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

	"github.com/lockline/lockline/internal/testing/standin"
	"github.com/schollz/progressbar/v3"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := standin.Run("bench", func(h *standin.Host) error {
		return run(ctx, h, os.Args[1:], os.Stdout, os.Stderr)
	})
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run runs the program. The servers that the program starts end with the host.
func run(ctx context.Context, host *standin.Host, args []string, out, errOut io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errOut)
	var (
		onlyScenarios = flags.String("scenarios", "",
			"run only these `scenarios`, separated by commas: "+names(scenarios))
		onlyContenders = flags.String("contenders", "",
			"run only these `contenders`, separated by commas: "+names(contenders))
		rounds       = flags.Int("rounds", 3, "how often every contender runs in every scenario")
		window       = flags.Duration("duration", time.Second, "how long each run is measured")
		url          = flags.String("redis", "", "`URL` of the server to use; without it, one is started")
		markdownFile = flags.String("markdown", "", "write the page that is printed to this `file`, too")
		plotFile     = flags.String("plot", "", "write the plot of the crowds as SVG to this `file`")
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
		return fmt.Errorf("--duration %v: at least 1ms", *window)
	}
	chosen, err := pick("--scenarios", scenarios, *onlyScenarios)
	if err != nil {
		return err
	}
	who, err := pick("--contenders", contenders, *onlyContenders)
	if err != nil {
		return err
	}
	at, err := open(ctx, host, *url, chosen)
	if err != nil {
		return err
	}
	r := newReport(at, args, *rounds, *window, chosen, who)
	if err := r.measure(ctx, at, progress(errOut)); err != nil {
		return err
	}
	err = r.write(out)
	if *markdownFile != "" {
		err = errors.Join(err, writeFile(*markdownFile, r.write))
	}
	if *plotFile != "" {
		err = errors.Join(err, writeFile(*plotFile, r.plot))
	}
	if n := r.violations(); n > 0 {
		err = errors.Join(err, fmt.Errorf("mutual exclusion was violated %.0f times", n))
	}
	return err
}

// A named is a scenario or a contender. Users choose it by its name in an option.
type named interface{ called() string }

func (s scenario) called() string  { return s.name }
func (c contender) called() string { return c.name }

func names[T named](all []T) string {
	var s []string
	for _, x := range all {
		s = append(s, x.called())
	}
	return strings.Join(slices.Compact(s), ", ")
}

// pick returns the elements of all whose names are in list, in the order of all. If list is empty, it returns
// all.
func pick[T named](option string, all []T, list string) (some []T, err error) {
	if list == "" {
		return all, nil
	}
	want := strings.Split(strings.ReplaceAll(list, " ", ""), ",")
	for _, name := range want {
		if !slices.ContainsFunc(all, func(x T) bool { return x.called() == name }) {
			return nil, fmt.Errorf("%s: there is no %q, but %s", option, name, names(all))
		}
	}
	unwanted := func(x T) bool { return !slices.Contains(want, x.called()) }
	return slices.DeleteFunc(slices.Clone(all), unwanted), nil
}

// progress returns a bar that is shown only if w is a terminal. The bar counts the planned milliseconds of
// runs, because runs differ in length. So the bar can show the time that is left.
func progress(w io.Writer) *progressbar.ProgressBar {
	f, ok := w.(*os.File)
	if !ok {
		return progressbar.DefaultSilent(-1)
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return progressbar.DefaultSilent(-1)
	}
	return progressbar.NewOptions(-1, progressbar.OptionSetWriter(f), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(true))
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
