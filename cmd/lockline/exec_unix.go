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

// endsWait reports whether a forwarded signal ends the wait for the lock. SIGUSR1 and SIGUSR2 do not, because
// they are meant for the command.
func endsWait(s os.Signal) bool { return s != syscall.SIGUSR1 && s != syscall.SIGUSR2 }

// A group is a command in a process group of its own, below a warden.
type group struct {
	warden   *exec.Cmd
	pid      int      // process id of the command, and id of its process group
	deadline *os.File // pipe to the warden, for new deadlines
	done     chan report
	terminal *os.File // terminal whose foreground is the group; nil if the group is in the background
}

// startGroup starts the command, and returns when it runs. The warden kills the command at the time until,
// unless group.until has set a later time by then.
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
	// The command inherits open files, such as the jobserver of make, under the same numbers. ExtraFiles
	// would replace files 3 and 4. So the warden inherits the pipes under their own numbers.
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
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // the warden gets no signals to exec's group
	}
	if err := g.warden.Start(); err != nil {
		return nil, err
	}
	// While the command has the terminal, another part of a pipeline may use the terminal, too. The kernel
	// then stops the whole group of this process, but this process must renew the lease.
	signal.Ignore(syscall.SIGTTIN, syscall.SIGTTOU)
	reported.Close() // otherwise reports would not end when the warden ends
	decoder := json.NewDecoder(reports)
	var r report
	if err = decoder.Decode(&r); err != nil {
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
		if err := decoder.Decode(&r); err != nil { // the warden was killed, so nothing else ends the command
			r = report{Code: exitSignalBase + int(syscall.SIGKILL)}
			r.Failed = "the process between lockline and the command was killed, and the command with it"
			g.signal(syscall.SIGKILL)
		}
		g.done <- r
	}()
	return g, nil
}

// inherited makes child processes inherit a file, and returns its number.
func inherited(f *os.File) string {
	_, _ = unix.FcntlInt(f.Fd(), unix.F_SETFD, 0)
	return strconv.Itoa(int(f.Fd()))
}

// until sends the warden the time t at which the warden must end the group. The next call replaces this time.
// If the time could not be sent, until returns false. If the warden was stopped, the pipe may be full. until
// does not wait for room in the pipe. It cannot use a write with a deadline, because the deadline could pass
// before the write begins.
func (g *group) until(t time.Time) (sent bool) {
	pipe, err := g.deadline.SyscallConn()
	if err != nil {
		return false
	}
	err = pipe.Write(func(fd uintptr) (done bool) {
		_, full := unix.Write(int(fd), []byte(instantAt(t).String()+"\n"))
		sent = full == nil
		return true
	})
	return sent && err == nil
}

func (g *group) ended() <-chan report { return g.done }

// signal sends a signal to the command's process group.
func (g *group) signal(s syscall.Signal) { send(-g.pid, s) }

// end sends a signal to the command and to its descendants, see endTree. If the warden was stopped, end also
// lets the warden continue.
func (g *group) end(s syscall.Signal) {
	endTree(g.warden.Process.Pid, g.pid, s)
	_ = g.warden.Process.Signal(syscall.SIGCONT)
}

// letGo ends the warden. If the group of the command is the foreground, letGo makes this process's own group
// the foreground again. Processes that the command has left behind continue.
func (g *group) letGo() {
	g.deadline.Close()
	_ = g.warden.Process.Signal(syscall.SIGCONT)
	_ = g.warden.Wait()
	defer signal.Reset(syscall.SIGTTIN, syscall.SIGTTOU)
	if g.terminal != nil {
		_ = unix.IoctlSetPointerInt(int(g.terminal.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
	} else if g.pid > 0 && moveForeground(g.pid, unix.Getpgrp()) == g.pid {
		_ = syscall.Kill(0, syscall.SIGCONT) // for parts of a pipeline that were stopped meanwhile
	}
}

// moveForeground makes the process group `to` the foreground of the controlling terminal, if the group `from`
// is the foreground. It returns the group that was the foreground before, or -1 after an error. The caller
// must ignore SIGTTOU, because otherwise this signal would stop a process in the background.
func moveForeground(from, to int) (before int) {
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return -1
	}
	defer terminal.Close()
	fd := int(terminal.Fd())
	before, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err == nil && before == from {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, to)
	}
	if err != nil {
		return -1
	}
	return before
}

// foreground returns stdin if stdin and stdout are terminals in which the group of this process is the
// foreground. Otherwise it returns nil. So the foreground does not change at once if stdin or stdout is a
// pipe. Another part of the pipeline, such as a pager, may need the foreground. If the command uses the
// terminal, the warden makes its group the foreground.
func foreground() *os.File {
	for _, f := range []*os.File{os.Stdin, os.Stdout} {
		owner, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
		if err != nil || owner != unix.Getpgrp() {
			return nil
		}
	}
	return os.Stdin
}
