// Command lockline shows the library at work (lockline demo), and lends its locks to any command
// (lockline exec). It also shows operators what is locked, the holders, and what may go wrong
// (ls, top, inspect, watch, unlock, doctor, script).
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

// Exit codes. Those from 124 on mean what they mean for timeout(1) and env(1).
const (
	exitOK          = 0
	exitWrong       = 1   // demo, doctor: the verdict is that something is wrong; unlock: it was not held
	exitLost        = 123 // exec: the lock was lost, or could not be kept, under the command
	exitLocked      = 124 // exec: the lock was not free in time
	exitTrouble     = 125 // lockline itself failed: arguments, Redis
	exitCannotRun   = 126 // exec: the command was found but could not be run
	exitNotFound    = 127 // exec: the command was not found
	exitSignalBase  = 128 // exec: 128+n, signal n ended the command or the wait
	exitInterrupted = 130 // demo, top, watch: ctrl-C
	exitUnread      = 141 // the reader of watch has gone, as if SIGPIPE had ended it
)

// exitError is an error that chooses the exit code. Without an err there is nothing left to say.
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

// errInterrupted ends a command that a signal has ended.
var errInterrupted = &exitError{exitInterrupted, errors.New("interrupted")}

// untilSignal ends ctx with a signal that asks to end, but for those that its parent process wants ignored,
// as nohup does.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	asks := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
	if len(asks) == 0 { // which would mean all signals
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, asks...)
}

func main() { os.Exit(run(context.Background(), os.Args, os.Stdout, os.Stderr)) }

// run is the program: arguments in, exit code out.
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

// complain writes one line with one prefix.
func complain(errOut io.Writer, err error) {
	fmt.Fprintf(errOut, "lockline: %s\n", say(err))
}

// say is an error in the words of the command line. The library's bring a prefix, and begin with the option
// that is wrong, if one is, or say what to write in a program.
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

// noHelp is the error of the cli package for a word that is no command.
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
		c.HideHelpCommand = true // "help" is a lock's name like any other
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
		// Errors are reported and turned into exit codes in one place, run.
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

// misused is an error of the command line.
func misused(cmd *cli.Command, format string, args ...any) error {
	return fmt.Errorf("%w; see %s --help", fmt.Errorf(format, args...), cmd.FullName())
}
