// Package child starts processes that get an assignment on stdin and report events on stdout, both in lines
// of JSON.
package child

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Child is a process. It should end when the caller closes Orders, which is the stdin of the process.
type Child struct {
	Number int
	Orders io.WriteCloser

	cmd *exec.Cmd
}

// News is an event that a process has reported, or the end of the process. Err is the error with which the
// process ended, or describes a line that could not be decoded.
type News[E any] struct {
	Child int
	Event E
	Ended bool
	Err   error
}

// Start starts cmd and sends it the assignment. The channel `to` receives each event that the process
// reports, and then the end of the process. The process shares the stderr of the caller.
func Start[E any](cmd *exec.Cmd, number int, assignment any, to chan<- News[E]) (*Child, error) {
	cmd.Stderr = os.Stderr
	orders, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	reports, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &Child{number, orders, cmd}
	go listen(c, reports, to)
	// This may fail if the process has ended already. Then listen reports the end.
	_ = json.NewEncoder(orders).Encode(assignment)
	return c, nil
}

func listen[E any](c *Child, reports io.Reader, to chan<- News[E]) {
	lines := bufio.NewScanner(reports)
	for lines.Scan() {
		n := News[E]{Child: c.Number}
		if err := json.Unmarshal(lines.Bytes(), &n.Event); err != nil {
			n.Err = fmt.Errorf("unexpected output %q", lines.Text())
		}
		to <- n
	}
	to <- News[E]{Child: c.Number, Ended: true, Err: c.cmd.Wait()}
}

// PID returns the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Signal sends the process a signal. If the process has ended, Signal does nothing.
func (c *Child) Signal(sig os.Signal) { _ = c.cmd.Process.Signal(sig) }

// Kill ends the process with SIGKILL.
func (c *Child) Kill() { c.Signal(os.Kill) }
