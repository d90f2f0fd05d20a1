package testredis

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// masterName is the name by which the Sentinels know the master.
const masterName = "lockline"

const sentinels = 3

// A Sentinel is a group of servers: a master with replicas, and three Sentinels.
type Sentinel struct {
	Nodes     []*Server // the first node begins as the master, and the other nodes as its replicas
	Sentinels []*Server
}

// StartSentinel starts a master, its replicas and three Sentinels, and returns when all know each other and
// the replicas are in sync. The Sentinels consider the master dead if it is silent for 500 ms.
func StartSentinel(t testing.TB, replicas int) *Sentinel {
	t.Helper()
	ctx := t.Context()
	s := &Sentinel{}
	master := Start(t)
	s.Nodes = append(s.Nodes, master)
	for range replicas {
		s.Nodes = append(s.Nodes, master.StartReplica(t))
	}

	for range sentinels {
		s.Sentinels = append(s.Sentinels, startWith(t, func(server *Server) []string {
			file := filepath.Join(server.dir, "sentinel.conf")
			conf := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 2\n"+
				"sentinel down-after-milliseconds %[1]s 500\n"+
				"sentinel failover-timeout %[1]s 3000\n", masterName, master.port)
			must(t, os.WriteFile(file, []byte(conf), 0o600))
			return []string{file, "--sentinel"}
		}))
	}
	for _, sentinel := range s.Sentinels {
		client := s.sentinelClient(sentinel)
		t.Cleanup(func() { _ = client.Close() })
		// By default, it takes the Sentinels seconds to find each other and the replicas, and to elect a
		// leader. With these settings, they are faster, and a busy machine does not make them pause for 30 s
		// (tilt). Servers before 7.0 do not know the command SENTINEL DEBUG, and are slower.
		_ = client.Process(ctx, redis.NewCmd(ctx, "SENTINEL", "DEBUG",
			"publish-period", 100, "info-period", 200, "ask-period", 100,
			"tilt-trigger", 30000, "election-timeout", 2000))
		await(t, func() string {
			state, err := client.Master(ctx, masterName).Result()
			switch {
			case err != nil:
				return err.Error()
			case state["flags"] != "master",
				state["num-slaves"] != fmt.Sprint(replicas),
				state["num-other-sentinels"] != fmt.Sprint(sentinels-1):
				return fmt.Sprint(state)
			}
			return ""
		})
	}
	return s
}

// FailoverClient returns a client that follows the master. The client has the default options of go-redis,
// changed by mod. It is closed when the test ends.
func (s *Sentinel) FailoverClient(t testing.TB, mod ...func(*redis.FailoverOptions)) *redis.Client {
	opt := &redis.FailoverOptions{MasterName: masterName}
	for _, sentinel := range s.Sentinels {
		opt.SentinelAddrs = append(opt.SentinelAddrs, sentinel.Addr)
	}
	for _, m := range mod {
		m(opt)
	}
	c := redis.NewFailoverClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Master waits until most Sentinels name the same master, and returns this master.
func (s *Sentinel) Master(t testing.TB) *Server {
	t.Helper()
	return s.awaitMaster(t, func(string) bool { return true })
}

// Failover promotes a replica although the master lives. One Sentinel promotes the replica, and the other
// Sentinels are stopped meanwhile. Otherwise they would make the promoted server a replica again.
func (s *Sentinel) Failover(t testing.TB) {
	t.Helper()
	old := s.Master(t)
	for _, other := range s.Sentinels[1:] {
		other.Freeze()
		defer other.Thaw()
	}
	client := s.sentinelClient(s.Sentinels[0])
	defer func() { _ = client.Close() }()
	var err error
	var requested time.Time
	await(t, func() string {
		if s.masterOf(t.Context(), s.Sentinels[0]) != old.Addr {
			return ""
		}
		// The Sentinel aborts a failover if its information about the replica is old, as after a pause of the
		// machine. So repeat the request.
		if time.Since(requested) > time.Second {
			requested, err = time.Now(), client.Failover(t.Context(), masterName).Err()
		}
		return fmt.Sprint("the old server is the master; the last reply of the Sentinel: ", err)
	})
}

// AwaitFailover waits until most Sentinels name the same master, and this master is not old. It returns this
// master.
func (s *Sentinel) AwaitFailover(t testing.TB, old *Server) *Server {
	t.Helper()
	return s.awaitMaster(t, func(addr string) bool { return addr != old.Addr })
}

func (s *Sentinel) awaitMaster(t testing.TB, wanted func(addr string) bool) *Server {
	t.Helper()
	var master string
	await(t, func() string {
		votes := map[string]int{}
		for _, sentinel := range s.Sentinels {
			addr := s.masterOf(t.Context(), sentinel)
			if votes[addr]++; addr != "" && votes[addr] > sentinels/2 && wanted(addr) {
				master = addr
				return ""
			}
		}
		return fmt.Sprint("votes for a master: ", votes)
	})
	return find(t, s.Nodes, master)
}

// masterOf returns the address of the master that one Sentinel names. It returns "" if the Sentinel names no
// master.
func (s *Sentinel) masterOf(ctx context.Context, sentinel *Server) string {
	client := s.sentinelClient(sentinel)
	defer func() { _ = client.Close() }()
	addr, err := client.GetMasterAddrByName(ctx, masterName).Result()
	if err != nil || len(addr) != 2 {
		return ""
	}
	return net.JoinHostPort(addr[0], addr[1])
}

// sentinelClient returns a client of a Sentinel. The client does not wait long for replies, because a test
// may have stopped the Sentinel.
func (s *Sentinel) sentinelClient(sentinel *Server) *redis.SentinelClient {
	return redis.NewSentinelClient(&redis.Options{
		Addr: sentinel.Addr, ReadTimeout: time.Second, MaxRetries: -1,
	})
}
