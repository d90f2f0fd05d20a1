package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a Redis that ends with this program.
type server struct {
	addr string
	dir  string
	proc *os.Process
	gone chan struct{} // closed when proc has ended
}

// startServer starts the server that LOCKLINE_REDIS_SERVER names, else
// redis-server or valkey-server, and returns when it answers.
func startServer(ctx context.Context) (*server, error) {
	bin, err := serverBinary()
	if err != nil {
		return nil, err
	}
	for attempt := 0; ; attempt++ { // somebody else may take the port first
		s, err := launch(ctx, bin)
		if err == nil || attempt == 3 || ctx.Err() != nil {
			return s, err
		}
	}
}

func serverBinary() (string, error) {
	names := []string{"redis-server", "valkey-server"}
	if name := os.Getenv("LOCKLINE_REDIS_SERVER"); name != "" {
		names = []string{name}
	}
	for _, name := range names {
		if bin, err := exec.LookPath(name); err == nil {
			return bin, nil
		}
	}
	return "", errors.New("no redis-server or valkey-server found: install one, name it in LOCKLINE_REDIS_SERVER, or use --redis URL")
}

func launch(ctx context.Context, bin string) (_ *server, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lockline-bench-")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(bin, "--bind", "127.0.0.1", "--port", strconv.Itoa(addr.Port),
		"--save", "", "--appendonly", "no", "--dir", dir, "--daemonize", "no")
	cmd.SysProcAttr = endWithParent()
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &server{addr.String(), dir, cmd.Process, make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(s.gone)
	}()
	if err := s.answers(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// answers waits until it is this very process that answers at the address.
func (s *server) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	rdb := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1})
	defer func() { _ = rdb.Close() }()
	for {
		info := rdb.InfoMap(ctx, "server").Val()
		if pid := info["Server"]["process_id"]; pid != "" {
			if pid != strconv.Itoa(s.proc.Pid) {
				return fmt.Errorf("another server has taken %s", s.addr)
			}
			return nil
		}
		select {
		case <-s.gone:
			return fmt.Errorf("the server at %s ended at once", s.addr)
		case <-ctx.Done():
			return fmt.Errorf("the server at %s does not answer: %w", s.addr, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *server) url() string { return "redis://" + s.addr }

// stop ends the process and leaves nothing behind.
func (s *server) stop() error {
	_ = s.proc.Kill() // an error says that it has ended
	<-s.gone
	return os.RemoveAll(s.dir)
}
