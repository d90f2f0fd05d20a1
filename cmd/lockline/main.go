// Command lockline shows the library at work (lockline demo), and runs any command under a lock (lockline
// exec). It also shows locks, holders and waiters to operators (ls, top, inspect, watch), frees locks
// (unlock), looks for causes of trouble (doctor), and prints the scripts that run in Redis (script).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v3"
)

// Exit codes. The codes 124 to 127 have the same meanings as for timeout(1). Codes above 128 have the same
// meanings as in a shell.
const (
	exitOK          = 0
	exitWrong       = 1   // demo or doctor found something wrong, or unlock found no such holder
	exitLost        = 123 // the lock was lost, or could not be kept, while the command of exec ran
	exitLocked      = 124 // the lock was not free within --wait of exec
	exitTrouble     = 125 // lockline itself failed, because of its arguments or of Redis
	exitCannotRun   = 126 // exec found the command but could not run it
	exitNotFound    = 127 // exec did not find the command
	exitSignalBase  = 128 // signal n ended the command or the wait of exec; n is added
	exitInterrupted = 130 // ctrl-C, SIGTERM or SIGHUP ended demo, top or watch
	exitUnread      = 141 // the reader of watch has gone; the same code as after SIGPIPE
)

// exitError is an error with an exit code of its own. If err is nil, nothing is printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

// errInterrupted is the error of demo if ctrl-C or another signal has ended it.
var errInterrupted = &exitError{exitInterrupted, errors.New("interrupted")}

// untilSignal returns a context that ends with ctx, or with a signal that normally ends a process. Signals
// that the parent process has set to be ignored, as nohup does with SIGHUP, do not end the context.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ending := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
	if len(ending) == 0 { // NotifyContext would treat an empty list like all signals
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, ending...)
}

func main() { os.Exit(run(context.Background(), os.Args, os.Stdout, os.Stderr)) }

// run runs the program with these arguments, and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	stdout := &output{to: out}
	err := program(stdout, errOut).Run(ctx, args)
	code, silent := exitOK, err == nil
	switch exit, ok := errors.AsType[*exitError](err); {
	case ok:
		code, silent = exit.code, exit.err == nil
	case err != nil:
		code = exitTrouble
	}
	if failed := stdout.failed(); failed != nil && silent {
		code, silent, err = exitTrouble, false, failed
	}
	if !silent {
		complain(errOut, err)
	}
	return code
}

// complain writes an error in one line, with the prefix of this program.
func complain(errOut io.Writer, err error) {
	fmt.Fprintf(errOut, "lockline: %s\n", say(err))
}

// say returns the text of an error for users of the command line. Errors of the library have a prefix, may
// begin with the name of an option of the library, and may recommend calls that only a program can make. say
// removes or replaces these parts.
func say(err error) string {
	text := strings.TrimPrefix(err.Error(), "lockline: ")
	if m := noHelp.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("there is no command %q; see lockline --help", m[1])
	}
	if option, rest, ok := strings.Cut(text, ": "); ok && flags[option] != "" {
		text = flags[option] + ": " + rest
	}
	return clients.Replace(text)
}

// noHelp matches the error of the cli package for a word that is not a command.
var noHelp = regexp.MustCompile(`^No help topic for '(.*)'$`)

var (
	flags = map[string]string{
		"WithPrefix": "--prefix", "WithWatchdogTimeout": "--lease", "redisson": "--redisson"}
	clients = strings.NewReplacer("redis.NewClusterClient", "?addr=HOST:PORT behind the URL of --redis",
		"use redis.NewClient", "take ?addr out of the URL of --redis",
		"redis.NewFailoverClient", "?master_name=NAME behind the URL of --redis",
		"drop the client's TLSConfig", "--redis must begin with redis://",
		"give the client a TLSConfig", "--redis must begin with rediss://",
		"the address in the client's options must be HOST:PORT; redis.ParseURL makes options of a URL",
		"the URL of --redis must name HOST:PORT",
		"put its CA into RootCAs of the client's TLSConfig", "name the file of its CA with --cacert",
		"WaitReplicas: ", "--replicas: ", "the wait that WaitAtMost allows", "the time of --wait",
		"New says", "--semaphore says", " (SetLimit changes the number for all)",
		"; give the same number, or let a program call SetLimit")
)

func program(out, errOut io.Writer) *cli.Command {
	commands := []*cli.Command{demoCommand(), demoProcessCommand(), execCommand(), wardenCommand(),
		lsCommand(), topCommand(), inspectCommand(), watchCommand(), unlockCommand(), doctorCommand(),
		scriptCommand(), manCommand()}
	for _, c := range commands {
		c.HideHelpCommand = true // a lock may have the name "help"
		c.OnUsageError = usageError
	}
	return &cli.Command{
		Name: "lockline",
		Usage: "distributed locks on Redis: " +
			"see them work, hold one while a command runs, and look after them",
		UsageText: "lockline demo\n" +
			"lockline exec NAME -- COMMAND [ARGS...]\n" +
			"lockline ls | top [PATTERN]\n" +
			"lockline inspect | watch | unlock --force NAME\n" +
			"lockline doctor\n" +
			"lockline script [NAME | DIGEST]\n" +
			"lockline man\n" +
			"lockline COMMAND --help\n" +
			"lockline --version",
		EnableShellCompletion:           true,
		ConfigureShellCompletionCommand: setUpCompletion,
		HideHelpCommand:                 true,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "version", Local: true,
			Usage: "show the version, and what it was built from"}},
		Writer:    out,
		ErrWriter: errOut,
		Commands:  commands,
		// run reports all errors and chooses the exit code.
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		OnUsageError:   usageError,
		Action: func(_ context.Context, cmd *cli.Command) error {
			if name := cmd.Args().First(); name != "" {
				return fmt.Errorf("there is no command %q; see lockline --help", name)
			}
			if cmd.Bool("version") {
				return showVersion(cmd)
			}
			return cli.ShowRootCommandHelp(cmd)
		},
	}
}

// misused returns the error of a wrong command line. The error names the help of the command.
func misused(cmd *cli.Command, format string, args ...any) error {
	return fmt.Errorf("%w; see %s --help", fmt.Errorf(format, args...), cmd.FullName())
}
