//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

func execSupported() error { return nil }

var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// endsWait: a wait for the lock is ended by the signals that would end any process that
// has not asked for something else.
func endsWait(s os.Signal) bool { return s != syscall.SIGUSR1 && s != syscall.SIGUSR2 }

// group is a command in a process group of its own.
type group struct {
	cmd      *exec.Cmd
	done     chan struct{}
	terminal *os.File       // whose foreground the group is; nil if it is not
	stops    chan os.Signal // SIGCHLD, if there is a terminal
}

func startGroup(path string, command, env []string) (*group, error) {
	g := &group{done: make(chan struct{})}
	g.cmd = &exec.Cmd{Path: path, Args: command, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(g.cmd.SysProcAttr)
	if g.terminal = foreground(); g.terminal != nil {
		g.cmd.SysProcAttr.Foreground = true
		g.cmd.SysProcAttr.Ctty = int(g.terminal.Fd())
		g.stops = make(chan os.Signal, 1)
		signal.Notify(g.stops, syscall.SIGCHLD)
	}
	started := make(chan error)
	go g.run(started)
	if err := <-started; err != nil {
		g.restoreTerminal()
		return nil, err
	}
	if g.terminal != nil {
		go g.keepGoing()
	}
	return g, nil
}

// run keeps its thread: the parent whose death the kernel watches for is the
// thread that started the command, not the process.
func (g *group) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := g.cmd.Start()
	started <- err
	if err == nil {
		_ = g.cmd.Wait() // the exit code says it
		close(g.done)
	}
}

func (g *group) ended() <-chan struct{} { return g.done }

// signal signals the whole group. A stopped process must go on to receive it.
func (g *group) signal(s syscall.Signal) {
	_ = syscall.Kill(-g.cmd.Process.Pid, s)
	if s != syscall.SIGKILL {
		_ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGCONT)
	}
}

func (g *group) exitCode() int {
	status := g.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return exitSignalBase + int(status.Signal())
	}
	return status.ExitStatus()
}

// foreground returns the terminal if this process talks to one, and its turn it
// is. In a pipeline it stays with the pipeline's own group: the pager needs it.
func foreground() *os.File {
	for _, f := range []*os.File{os.Stdin, os.Stdout} {
		owner, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
		if err != nil || owner != unix.Getpgrp() {
			return nil
		}
	}
	return os.Stdin
}

// keepGoing undoes ctrl-Z. The shell would not notice that the command stopped,
// and others would wait for a lock that a stopped command holds.
func (g *group) keepGoing() {
	for {
		select {
		case <-g.stops:
			select {
			case <-g.done: // that is what the signal was about
				return
			default:
				_ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGCONT)
			}
		case <-g.done:
			return
		}
	}
}

// restoreTerminal makes this process's own group the foreground again.
func (g *group) restoreTerminal() {
	if g.terminal == nil {
		return
	}
	signal.Stop(g.stops)
	signal.Ignore(syscall.SIGTTOU) // it would stop a process that asks from the background
	_ = unix.IoctlSetPointerInt(int(g.terminal.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
	signal.Reset(syscall.SIGTTOU)
}
