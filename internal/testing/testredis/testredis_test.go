package testredis

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func noRetry(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, time.Second }

func TestAFrozenServerIsSilentUntilItThaws(t *testing.T) {
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
	s := Start(t)
	addr, pid := s.Addr, s.PID()
	must(t, s.Client(t).Set(t.Context(), "k", "v", 0).Err())

	s.Freeze() // a frozen one can be killed, too
	s.Restart(t)

	if s.Addr != addr || s.PID() == pid {
		t.Errorf("address %s, was %s; pid %d, was %d", s.Addr, addr, s.PID(), pid)
	}
	if n := s.Client(t).DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys survived", n)
	}
}

func TestAServerRestartsWithItsDataIfAskedToKeepIt(t *testing.T) {
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always")
	must(t, s.Client(t).Set(t.Context(), "k", "v", 0).Err())
	s.Restart(t)
	if v := s.Client(t).Get(t.Context(), "k").Val(); v != "v" {
		t.Errorf("got %q", v)
	}
}

func TestAServerEndsWithItsTest(t *testing.T) {
	requireBinary(t) // else only the subtest is skipped
	var s *Server
	t.Run("frozen", func(t *testing.T) {
		s = Start(t)
		s.Freeze()
	})
	if p, err := os.FindProcess(s.PID()); err == nil && p.Signal(ContinueSignal) == nil {
		t.Errorf("process %d lives on, or was not reaped", s.PID())
	}
}

func TestEveryKeyOfAClusterIsServed(t *testing.T) {
	begin := time.Now()
	c := StartCluster(t, 3, 1)
	t.Logf("up after %v", time.Since(begin))

	client := c.Client(t)
	owners := map[*Server]bool{}
	for _, k := range []string{"a", "b", "c", "d", "e", "f"} {
		must(t, client.Set(t.Context(), k, k, 0).Err())
		owners[c.Master(t, k)] = true
	}
	if len(owners) != 3 {
		t.Errorf("keys live on %d masters", len(owners))
	}
}

func TestAReplicaTakesOverInACluster(t *testing.T) {
	c := StartCluster(t, 3, 1)
	old := c.Master(t, "k")
	old.Kill()
	// By default go-redis goes on asking a dead master for up to a minute.
	client := c.Client(t, func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = 100 * time.Millisecond })
	await(t, func() string {
		if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
			return err.Error()
		}
		return ""
	})
	if c.Master(t, "k") == old {
		t.Error("the dead master still owns the key")
	}
}

func TestAReplicaTakesOverFromAFrozenMasterOfSentinel(t *testing.T) {
	begin := time.Now()
	s := StartSentinel(t, 2)
	t.Logf("up after %v", time.Since(begin))
	client := s.FailoverClient(t)
	must(t, client.Set(t.Context(), "k", "before", 0).Err())

	old := s.Master(t)
	if old != s.Nodes[0] {
		t.Errorf("the first master is %s", old.Addr)
	}
	begin = time.Now()
	old.Freeze()
	if s.AwaitFailover(t, old) == old {
		t.Error("no failover")
	}
	t.Logf("failover after %v", time.Since(begin))
	await(t, func() string {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := client.Set(ctx, "k", "after", 0).Err(); err != nil {
			return err.Error()
		}
		return ""
	})
}

func TestTheEmbeddedServerExpiresKeysByTheClock(t *testing.T) {
	m := Embedded(t)
	m.SetTime(time.Unix(1000, 0))
	must(t, m.Set("k", "v"))
	m.SetTTL("k", time.Second)
	m.SetTime(time.Unix(1002, 0))
	if m.Exists("k") {
		t.Error("the key outlived its TTL")
	}
}
