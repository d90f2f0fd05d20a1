package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/standin"
)

// roleVariable tells a process started by this program what it is for.
const roleVariable = "LOCKLINE_BENCH_ROLE"

// The roles. Each ends when its input does.
const (
	roleEtcd   = "etcd"   // DIR: an etcd server
	roleDelay  = "delay"  // ADDR DURATION: a proxy that delays each way
	roleCount  = "count"  // ADDR: a proxy that counts requests, and tells for each line of input
	roleWorker = "worker" // a process of users, see worker process
)

// playRole runs this process's role, if it has one.
func playRole() bool {
	role := os.Getenv(roleVariable)
	if role == "" {
		return false
	}
	if err := play(role, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "bench: as %s: %v\n", role, err)
		os.Exit(1)
	}
	return true
}

func play(role string, args []string, in io.Reader, out io.Writer) error {
	switch {
	case role == roleWorker:
		return beWorker(in, out)
	case role == roleEtcd && len(args) == 1:
		return serve(in, out, func() (string, func(), error) { return serveEtcd(args[0]) }, nil)
	case role == roleDelay && len(args) == 2:
		return serve(in, out, func() (string, func(), error) { return serveDelay(args[0], args[1]) }, nil)
	case role == roleCount && len(args) == 1:
		test := standin.New("bench")
		defer test.End()
		proxy := faultproxy.New(test, args[0])
		return serve(in, out, func() (string, func(), error) { return proxy.Addr(), func() {}, nil }, func() any { return proxy.Count() })
	}
	return errors.New("no such role")
}

// serve tells the address of what start starts, then an answer for each line of input.
func serve(in io.Reader, out io.Writer, start func() (string, func(), error), answer func() any) error {
	addr, stop, err := start()
	if err != nil {
		return err
	}
	defer stop()
	if _, err := fmt.Fprintln(out, addr); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if _, err := fmt.Fprintln(out, answer()); err != nil {
			return err
		}
	}
	return nil
}

// helper is this program again, in a process and a role of its own: what it does costs this one no memory.
type helper struct {
	ctx  context.Context // its end kills
	addr string          // what it serves
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	dir  string // goes with it, unless ""
}

// startRole starts a process that is killed when ctx ends.
func startRole(ctx context.Context, role string, args ...string) (_ *helper, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = endWithParent()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &helper{ctx: ctx, cmd: cmd, in: in, out: bufio.NewReader(out)}, nil
}

// startHelper starts a role that serves an address, and returns when it is ready.
func startHelper(ctx context.Context, role string, args ...string) (*helper, error) {
	h, err := startRole(ctx, role, args...)
	if err != nil {
		return nil, err
	}
	if h.addr, err = h.line(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", role, err), h.close())
	}
	return h, nil
}

func (h *helper) line() (string, error) {
	line, err := h.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

// ask sends a line and returns the answer.
func (h *helper) ask() (string, error) {
	if _, err := fmt.Fprintln(h.in); err != nil {
		return "", err
	}
	return h.line()
}

// close ends the process, and waits until it is gone.
func (h *helper) close() error {
	err := h.in.Close()
	timer := time.AfterFunc(10*time.Second, func() { _ = h.cmd.Process.Kill() })
	defer timer.Stop()
	if e := h.cmd.Wait(); h.ctx.Err() == nil { // else it may have been killed
		err = errors.Join(err, e)
	}
	if h.dir != "" {
		err = errors.Join(err, os.RemoveAll(h.dir))
	}
	return err
}

// serveDelay is the role of a proxy that forwards bytes, each way late by delay.
// Go's timers may be late by a millisecond on a machine at rest; nap is not.
func serveDelay(upstream, delay string) (addr string, stop func(), err error) {
	late, err := time.ParseDuration(delay)
	if err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	parcels := make(chan parcel, 4096)
	go deliver(parcels)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", upstream)
			if err != nil {
				_ = client.Close()
				continue
			}
			go forward(client, server, late, parcels)
			go forward(server, client, late, parcels)
		}
	}()
	return listener.Addr().String(), func() { _ = listener.Close() }, nil
}

// parcel is what one read brought; without data, the end of it.
type parcel struct {
	due      time.Time
	from, to net.Conn
	data     []byte
}

// deliver writes what is due, for all connections: all are equally late, so what came first is due first. A goroutine
// for each connection would keep the others waiting, since a nap occupies a processor.
func deliver(parcels <-chan parcel) {
	for p := range parcels {
		nap(time.Until(p.due))
		var err error
		if p.data != nil {
			_, err = p.to.Write(p.data)
		}
		if p.data == nil || err != nil {
			_, _ = p.to.Close(), p.from.Close()
		}
	}
}

// forward passes on what comes from one end until that is closed.
func forward(from, to net.Conn, late time.Duration, parcels chan<- parcel) {
	for {
		buf := make([]byte, 16<<10)
		n, err := from.Read(buf)
		if err != nil {
			parcels <- parcel{time.Now().Add(late), from, to, nil}
			return
		}
		parcels <- parcel{time.Now().Add(late), from, to, buf[:n]}
	}
}
