//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A warden is the process between exec and the command. It ends the command and its descendants if exec has
// died, or was stopped for so long that the lease would end. On Linux, it becomes the parent of all orphans
// below it.
type warden struct {
	command int            // process id of the command, and id of its process group
	news    <-chan instant // new deadlines; closed when exec has closed the pipe or has died
	reports *json.Encoder
}

// An instant is a time in nanoseconds by the monotonic clock of the kernel, which two processes can compare.
type instant int64

func thisInstant() instant {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return instant(t.Nano())
}

// instantAt converts t to an instant. It reads the clock of the kernel before it computes the time until t.
// So if this process is stopped in between, the result is too early, and not too late.
func instantAt(t time.Time) instant { return thisInstant() + instant(time.Until(t)) }

func (c instant) String() string { return strconv.FormatInt(int64(c), 10) }

func (c instant) remaining() time.Duration { return time.Duration(c - thisInstant()) }

// runWarden runs the warden. Its arguments are
//   - the numbers of two files, for messages from exec and to exec;
//   - the first deadline of the command;
//   - "foreground" or "background", for the use of the terminal;
//   - the path of the command, and the words of its command line.
func runWarden(args []string) error {
	if len(args) < 6 {
		return errors.New("exec-warden is started by lockline exec")
	}
	var files [2]*os.File
	for i := range files {
		fd, err := strconv.Atoi(args[i])
		if err != nil {
			return fmt.Errorf("exec-warden: %w", err)
		}
		unix.CloseOnExec(fd)
		files[i] = os.NewFile(uintptr(fd), "exec")
		defer files[i].Close()
	}
	deadline, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return fmt.Errorf("exec-warden: %w", err)
	}
	foreground, path, command := args[3] == "foreground", args[4], args[5:]
	// The warden catches the signals that exec forwards, and does nothing with them. If it ignored them
	// instead, the command would inherit that, and ignore them, too.
	defer signal.Stop(listen())
	adoptOrphans()

	decoder := json.NewDecoder(files[0])
	news := make(chan instant)
	w := &warden{news: news, reports: json.NewEncoder(files[1])}
	ended, err := w.start(path, command, foreground)
	if err != nil {
		return w.reports.Encode(report{Code: startFailure(err), Failed: startError(path, err).Error()})
	}
	_ = w.reports.Encode(report{PID: w.command})
	go func() {
		defer close(news)
		for c := instant(0); decoder.Decode(&c) == nil; {
			news <- c
		}
	}()
	w.watch(instant(deadline), ended)
	return nil
}

// watch watches the command until exec has closed the pipe or has died. exec closes the pipe when it knows
// that the command has ended. If the pipe is closed before the command has ended, exec has died, and watch
// kills the command.
func (w *warden) watch(deadline instant, ended <-chan int) {
	timer := time.NewTimer(deadline.remaining())
	over, late := false, false
	for {
		select {
		case c, ok := <-w.news:
			if !ok {
				if !over {
					w.kill()
				}
				return
			}
			timer.Reset(c.remaining())
		case <-timer.C:
			late = true
			w.kill()
		case code := <-ended:
			over = true
			_ = w.reports.Encode(report{Code: code, Late: late})
		}
	}
}

func (w *warden) kill() { endTree(os.Getpid(), w.command, syscall.SIGKILL) }

// start starts the command in a process group of its own. A goroutine then collects the exit codes of all
// children, also of orphans. ended gets the exit code of the command.
func (w *warden) start(path string, command []string, foreground bool) (ended <-chan int, err error) {
	attr := &syscall.SysProcAttr{Setpgid: true, Foreground: foreground} // file 0 is the terminal
	dieWithParent(attr)
	started, code := make(chan error), make(chan int, 1)
	go func() {
		// Because of dieWithParent, the kernel kills the command when the thread that started it ends. So
		// this goroutine must keep its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
		p, err := os.StartProcess(path, command, &os.ProcAttr{Files: files, Sys: attr})
		if err == nil {
			w.command = p.Pid
		}
		started <- err
		if err == nil {
			w.reap(foreground, code)
		}
	}()
	return code, <-started
}

// terminalPause is the time between two looks at the terminal while the command waits for it.
const terminalPause = 100 * time.Millisecond

func (w *warden) reap(foreground bool, code chan<- int) {
	// moveForeground requires this. The command has started, so it does not inherit this.
	signal.Ignore(syscall.SIGTTOU)
	reported := false
	stopped := false // the command uses the terminal, and waits until exec is in the foreground
	for {
		options := syscall.WUNTRACED
		if stopped {
			options |= syscall.WNOHANG // no signal shows that exec has come into the foreground
		}
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, options, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // no child is left
			return
		case pid == 0: // no child has changed its state
			time.Sleep(terminalPause)
			if w.giveTerminal() {
				foreground, stopped = true, false
				_ = syscall.Kill(-w.command, syscall.SIGCONT)
			}
		case pid != w.command:
		case status.Stopped() && (status.StopSignal() == syscall.SIGTTIN ||
			status.StopSignal() == syscall.SIGTTOU): // the command uses the terminal from the background
			if w.giveTerminal() {
				foreground = true
				_ = syscall.Kill(-pid, syscall.SIGCONT)
				continue
			}
			if stopped = true; !reported {
				reported = true
				complain(os.Stderr, fmt.Errorf("lock %q: the command was stopped (%v), because it uses the "+
					"terminal and lockline is not in the foreground; the lock stays taken",
					os.Getenv("LOCKLINE_NAME"), status.StopSignal()))
			}
		case status.Stopped() && foreground:
			// This undoes ctrl-Z. Otherwise the shell would not notice that the command was stopped, and
			// other processes would wait for a lock that a stopped command holds.
			_ = syscall.Kill(-pid, syscall.SIGCONT)
		case status.Signaled():
			stopped = false
			code <- exitSignalBase + int(status.Signal())
		case status.Exited():
			stopped = false
			code <- status.ExitStatus()
		}
	}
}

// giveTerminal makes the command's group the foreground if the group of exec is the foreground. It reports
// whether the command's group is the foreground now.
func (w *warden) giveTerminal() bool {
	own, err := unix.Getpgid(os.Getppid())
	if err != nil {
		return false
	}
	before := moveForeground(own, w.command)
	return before == own || before == w.command
}

// send sends a signal to a process, or to a group if pid is negative. It also continues a stopped process,
// because a stopped process does not handle the signal.
func send(pid int, s syscall.Signal) {
	_ = syscall.Kill(pid, s)
	if s != syscall.SIGKILL {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// endTree sends a signal to a process group and to all other descendants of root. On systems other than
// Linux, endTree does not know these descendants.
func endTree(root, group int, s syscall.Signal) {
	signalled := map[int]bool{-group: true}
	send(-group, s)
	// A killed process makes no more children. A process whose parent ends during a search may be overlooked,
	// but not twice. So the loop ends when two searches in a row have found nothing new.
	for quiet := 0; quiet < 2; quiet++ {
		for _, pid := range descendants(root, group) {
			if !signalled[pid] {
				signalled[pid] = true
				send(pid, s)
				quiet = -1
			}
		}
		if s != syscall.SIGKILL { // processes that a handler of the signal starts must not get the signal
			return
		}
	}
}
