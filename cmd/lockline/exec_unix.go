//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func execSupported() error { return nil }

var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
	syscall.SIGUSR1, syscall.SIGUSR2}

// endsWait: a wait for the lock is ended by the signals that would end any process that
// has not asked for something else.
func endsWait(s os.Signal) bool { return s != syscall.SIGUSR1 && s != syscall.SIGUSR2 }

// group is a command in a process group of its own, below a warden.
type group struct {
	warden   *exec.Cmd
	pid      int // of the command, and of its process group
	deadline *os.File
	done     chan report
	terminal *os.File // whose foreground the group is; nil if it is not
}

// startGroup returns when the command runs. From until on it does not.
func startGroup(path string, command, env []string, until time.Time) (*group, error) {
	g := &group{done: make(chan report, 1), terminal: foreground()}
	theirs, deadline, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	g.deadline = deadline
	reports, reported, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reported.Close()
	// The files keep their numbers: what exec was given as file 3 is for the command, as make's jobserver.
	terminal := "background"
	if g.terminal != nil {
		terminal = "foreground"
	}
	args := []string{"lockline", "exec-warden", "--",
		inherited(theirs), inherited(reported), instantAt(until).String(), terminal, path}
	program, err := ownProgram()
	if err != nil {
		return nil, err
	}
	g.warden = &exec.Cmd{
		Path: program, Args: append(args, command...), Env: env,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // what stops exec's group does not stop it
	}
	if err := g.warden.Start(); err != nil {
		return nil, err
	}
	reported.Close() // the warden's end ends it, then
	heard := json.NewDecoder(reports)
	var r report
	if err = heard.Decode(&r); err != nil {
		err = fmt.Errorf("exec-warden ended before the command began: %w", err)
	} else if r.Failed != "" {
		err = &exitError{r.Code, errors.New(r.Failed)}
	}
	if err != nil {
		reports.Close()
		g.letGo()
		return nil, err
	}
	g.pid = r.PID
	go func() {
		defer reports.Close()
		var r report
		if err := heard.Decode(&r); err != nil { // The warden was killed, and can end nothing any more.
			r = report{Code: exitSignalBase + int(syscall.SIGKILL)}
			r.Failed = "the process between lockline and the command was killed, and the command with it"
			g.signal(syscall.SIGKILL)
		}
		g.done <- r
	}()
	return g, nil
}

// inherited makes a file one that the next process has, too, and returns its number.
func inherited(f *os.File) string {
	_, _ = unix.FcntlInt(f.Fd(), unix.F_SETFD, 0)
	return strconv.Itoa(int(f.Fd()))
}

// until tells the warden when the group must have ended, unless another word comes, and reports whether it
// has. A warden that is stopped may leave the pipe full. A write deadline would not do: it may be over before
// the write begins.
func (g *group) until(t time.Time) (told bool) {
	pipe, err := g.deadline.SyscallConn()
	if err != nil {
		return false
	}
	err = pipe.Write(func(fd uintptr) (done bool) {
		_, full := unix.Write(int(fd), []byte(instantAt(t).String()+"\n"))
		told = full == nil
		return true
	})
	return told && err == nil
}

func (g *group) ended() <-chan report { return g.done }

// signal signals the command's process group.
func (g *group) signal(s syscall.Signal) { send(-g.pid, s) }

// end signals all descendants of the command, and has a warden go on that was stopped.
func (g *group) end(s syscall.Signal) {
	endTree(g.warden.Process.Pid, g.pid, s)
	_ = g.warden.Process.Signal(syscall.SIGCONT)
}

// letGo ends the warden, and makes this process's own group the foreground again. What the command has left
// runs on.
func (g *group) letGo() {
	g.deadline.Close()
	_ = g.warden.Process.Signal(syscall.SIGCONT)
	_ = g.warden.Wait()
	if g.terminal != nil {
		signal.Ignore(syscall.SIGTTOU) // it would stop a process that asks from the background
		_ = unix.IoctlSetPointerInt(int(g.terminal.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
		signal.Reset(syscall.SIGTTOU)
	}
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
