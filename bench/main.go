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

	"github.com/schollz/progressbar/v3"
)

func main() {
	if playRole() {
		return
	}
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
		onlyScenarios  = flags.String("scenarios", "", "run only these `scenarios`, separated by commas; the first part of a name picks all that begin with it: "+names(scenarios))
		onlyContenders = flags.String("contenders", "", "run only these `contenders`, separated by commas: "+names(contenders(site{})))
		rounds         = flags.Int("rounds", 5, fmt.Sprintf("how often every contender runs in every scenario; those whose order is unclear, up to %d times as often", furthest))
		window         = flags.Duration("duration", 2*time.Second, "how long each run is measured")
		url            = flags.String("redis", "", "`URL` of the server to use, as redis://127.0.0.1:6379/0; else one is started")
		embedded       = flags.Bool("embedded", false, "use an embedded server in place of Redis: no binary is needed, and no figure says anything of Redis")
		jsonFile       = flags.String("json", "", "write the results as JSON to this `file`; - is the output, in place of the table")
		htmlFile       = flags.String("html", "", "write a page with tables and plots to this `file`")
		plotDir        = flags.String("plots", "", "write the plots as SVG to this `directory`")
		onlyPlots      = flags.String("only-plots", "", "of the plots, write only these `names`, separated by commas, as hot8-waits or crowd-clients")
		compareFile    = flags.String("compare", "", "tell where the order of contenders is another than in this `file`, which --json of an earlier run wrote; exit with 1 if it is so clearly")
		markdownFile   = flags.String("markdown", "", "write the tables as a page in Markdown to this `file`, in place of what is there")
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
	case *embedded && *url != "":
		return errors.New("--embedded or --redis, not both")
	}
	chosenScenarios, err := pick("--scenarios", scenarios, *onlyScenarios)
	if err != nil {
		return err
	}
	chosenPlots, err := pick("--only-plots", drawable(scenarios), *onlyPlots)
	if err != nil {
		return err
	}
	at, err := open(ctx, *url, *embedded)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, at.close()) }()
	chosenContenders, err := pick("--contenders", contenders(*at), *onlyContenders)
	if err != nil {
		return err
	}
	if err := at.furnish(ctx, chosenScenarios, chosenContenders); err != nil {
		return err
	}

	r := newReport(at, args, *rounds, *window)
	r.describe(chosenScenarios, chosenContenders)
	p := plan{at, *rounds, *window, chosenScenarios}
	if err := p.run(ctx, r, progress(errOut)); err != nil {
		return err
	}
	if *jsonFile == "-" {
		err = r.writeJSON(out)
	} else {
		err = r.writeTable(out)
	}
	for _, f := range []struct {
		name  string
		write func() error
	}{
		{*jsonFile, func() error { return writeFile(*jsonFile, r.writeJSON) }},
		{*htmlFile, func() error { return writeFile(*htmlFile, r.writeHTML) }},
		{*plotDir, func() error { return r.writePlots(*plotDir, chosenPlots) }},
		{*markdownFile, func() error { return writeFile(*markdownFile, r.writeMarkdown) }},
	} {
		if f.name != "" && f.name != "-" {
			err = errors.Join(err, f.write())
		}
	}
	if *compareFile != "" {
		err = errors.Join(err, r.compare(errOut, *compareFile))
	}
	if n := r.violations(); n > 0 {
		return errors.Join(err, fmt.Errorf("mutual exclusion was violated %.0f times", n))
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

// pick returns those of all that list names, in the order of all. A name also
// picks those that begin with it and a hyphen, if no other has that very name.
func pick[T named](option string, all []T, list string) ([]T, error) {
	if list == "" {
		return all, nil
	}
	want := map[string]bool{}
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		exact := slices.ContainsFunc(all, func(x T) bool { return x.called() == name })
		found := false
		for _, x := range all {
			if x.called() == name || !exact && strings.HasPrefix(x.called(), name+"-") {
				want[x.called()], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("%s: there is no %q, but %s", option, name, names(all))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool { return !want[x.called()] }), nil
}

// progress is a bar on a terminal, and nothing elsewhere.
func progress(w io.Writer) *progressbar.ProgressBar {
	f, ok := w.(*os.File)
	if !ok {
		return progressbar.DefaultSilent(-1)
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return progressbar.DefaultSilent(-1)
	}
	return progressbar.NewOptions(-1, progressbar.OptionSetWriter(f), progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(50*time.Millisecond))
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
