// Package fake has a client whose replies a test chooses. Tests of the internal packages below rlock use this
// client instead of a server. No request leaves the process, so these tests can run in fake time.
package fake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// A Call is one call of a script by EVALSHA.
type Call struct {
	digest string
	Keys   []string
	Argv   []any
}

// Is reports whether c calls this script.
func (c Call) Is(sc *wire.Script) bool { return c.digest == sc.Digest() }

// clients counts the clients, because each of them gets an address of its own.
var clients atomic.Int64

// Client returns a client whose replies come from answer. For each call of a script, the client calls answer,
// whose results are the reply. The function answer may block. It must be safe for use by several goroutines
// at once. The client cannot subscribe to channels. The client is closed when the test ends.
func Client(t testing.TB, answer func(Call) (reply string, err error)) *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		Addr: fmt.Sprintf("127.0.0.1:%d", clients.Add(1)), ContextTimeoutEnabled: true,
	})
	rdb.AddHook(hook(answer))
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

type hook func(Call) (string, error)

func (h hook) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("there is no server")
	}
}

func (h hook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return h.answer(cmd) }
}

func (h hook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			_ = h.answer(cmd)
		}
		return nil
	}
}

func (h hook) answer(cmd redis.Cmder) error {
	request, ok := cmd.(interface {
		Args() []any
		SetVal(string)
		SetErr(error)
	})
	if !ok { // a PING
		return nil
	}
	args := request.Args()
	c := Call{digest: args[1].(string)}
	n := args[2].(int)
	for _, key := range args[3 : 3+n] {
		c.Keys = append(c.Keys, key.(string))
	}
	c.Argv = args[3+n:]
	reply, err := h(c)
	request.SetVal(reply)
	request.SetErr(err)
	return err
}

// Config returns the configuration that sessions of tests have by default.
func Config() session.Config {
	return session.Config{Prefix: "p", Lease: time.Minute, WaiterTimeout: time.Minute, Handover: time.Hour,
		Logger: slog.New(slog.DiscardHandler)}
}

// Session returns a session of client with the configuration of Config. The session ends with the test.
func Session(t testing.TB, client wire.Client) *session.Session {
	t.Helper()
	s, err := session.New(client, Config())
	if err != nil {
		t.Fatal(err)
	}
	s.Link.Batching = -1
	t.Cleanup(func() { Shutdown(t, s) })
	return s
}

// Shutdown ends a session. If there is an error, the test fails.
func Shutdown(t testing.TB, s *session.Session) {
	t.Helper()
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
