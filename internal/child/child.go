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

// Child is a process. Closing Orders is the order to end.
type Child struct {
	Number int
	Orders io.WriteCloser

	cmd *exec.Cmd
}

// News is an event of a process, or its end. Err is how it ended, or what was wrong with a line.
type News[E any] struct {
	Child int
	Event E
	Ended bool
	Err   error
}

// Start starts cmd, gives it the assignment, and sends to what it reports, then its end. What it writes to
// stderr is passed on.
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
	// A process that is gone already is noticed by its end.
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

// PID is its process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Signal sends it a signal. One that has ended does not mind.
func (c *Child) Signal(sig os.Signal) { _ = c.cmd.Process.Signal(sig) }

// Kill ends it with SIGKILL.
func (c *Child) Kill() { c.Signal(os.Kill) }
