package testredis

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func noRetry(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, time.Second }

func TestAFrozenServerIsSilentUntilItThaws(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c := s.Client(t, noRetry)
	must(t, c.Ping(t.Context()).Err())

	s.Freeze()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("a frozen server answered")
	}
	s.Thaw()
	await(t, func() string {
		if err := c.Ping(t.Context()).Err(); err != nil {
			return err.Error()
		}
		return ""
	})
}

func TestAServerRestartsOnItsPortWithoutItsData(t *testing.T) {
	t.Parallel()
	s := Start(t)
	addr, pid := s.Addr, s.PID()
	must(t, s.Client(t).Set(t.Context(), "k", "v", 0).Err())

	s.Freeze() // Restart can also kill a stopped process
	s.Restart(t)

	if s.Addr != addr || s.PID() == pid {
		t.Errorf("address %s, was %s; pid %d, was %d", s.Addr, addr, s.PID(), pid)
	}
	if n := s.Client(t).DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys survived", n)
	}
}

func TestAServerRestartsWithItsDataIfAskedToKeepIt(t *testing.T) {
	t.Parallel()
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always")
	must(t, s.Client(t).Set(t.Context(), "k", "v", 0).Err())
	s.Restart(t)
	if v := s.Client(t).Get(t.Context(), "k").Val(); v != "v" {
		t.Errorf("got %q", v)
	}
}

func TestAServerEndsWithItsTest(t *testing.T) {
	t.Parallel()
	requireBinary(t) // otherwise only the subtest would be skipped
	var s *Server
	t.Run("frozen", func(t *testing.T) {
		s = Start(t)
		s.Freeze()
	})
	if p, err := os.FindProcess(s.PID()); err == nil && p.Signal(ContinueSignal) == nil {
		t.Errorf("process %d lives on, or was not reaped", s.PID())
	}
}

func TestTheEmbeddedServerExpiresKeysByTheClock(t *testing.T) {
	t.Parallel()
	m := Embedded(t)
	m.SetTime(time.Unix(1000, 0))
	must(t, m.Set("k", "v"))
	m.SetTTL("k", time.Second)
	m.SetTime(time.Unix(1002, 0))
	if m.Exists("k") {
		t.Error("the key outlived its TTL")
	}
}
