package session

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testredis"
)

// openSharded opens a session of a Cluster with these nodes.
func openSharded(t *testing.T, nodes ...*redis.Client) *Session {
	t.Helper()
	s, err := New(clusterOf{nodes[0], nodes}, sound)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, s) })
	return s
}

// canShard reports whether a server has sharded pub/sub. One that is no Cluster has it, too.
func canShard(t *testing.T, node *testredis.Server) bool {
	err := node.Client(t).SPublish(t.Context(), "nobody", "").Err()
	return err == nil || !strings.Contains(err.Error(), "unknown command")
}

func TestASessionAsksEachServerOnceWhetherItCanShard(t *testing.T) {
	t.Parallel()
	nodes := []*testredis.Server{testredis.Start(t), testredis.Start(t)}
	capable := canShard(t, nodes[0])
	keys := []string{"a0", "a1", "b0", "b1"}

	// asked counts the SSUBSCRIBEs that a server has seen, refused ones, too.
	asked := func(t *testing.T, node *testredis.Server) (n int) {
		info, err := node.Client(t).Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(info) {
			if stats, ok := strings.CutPrefix(line, "cmdstat_ssubscribe:"); ok {
				var calls, refused int
				if _, err := fmt.Sscanf(strings.NewReplacer(",", " ", "=", " ").Replace(stats), "calls %d usec %f usec_per_call %f rejected_calls %d", &calls, new(float64), new(float64), &refused); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				n += calls + refused
			}
		}
		return n
	}
	for name, c := range map[string]struct {
		rules    string
		possible bool
	}{
		"all rights":                 {"allchannels +@all", true},
		"the prefix' channels alone": {"resetchannels &p:* +@all", true},
		"other channels":             {"resetchannels &q:* +@all", false},
		"no SSUBSCRIBE":              {"allchannels +@all -ssubscribe", false},
		"no SPUBLISH":                {"allchannels +@all -spublish", false},
	} {
		t.Run(name, func(t *testing.T) {
			if !capable {
				for _, newer := range []string{" -ssubscribe", " -spublish"} { // which it does not know
					c.rules, c.possible = strings.TrimSuffix(c.rules, newer), false
				}
			}
			var clients []*redis.Client
			for _, node := range nodes {
				args := []any{"ACL", "SETUSER", "user", "reset", "on", ">secret", "allkeys"}
				for rule := range strings.FieldsSeq(c.rules) {
					args = append(args, rule)
				}
				if err := node.Client(t).Do(t.Context(), args...).Err(); err != nil {
					t.Fatal(err)
				}
				if err := node.Client(t).ConfigResetStat(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				clients = append(clients, node.Client(t, func(o *redis.Options) { o.Username, o.Password = "user", "secret" }))
			}
			s := openSharded(t, clients...)
			answers := make(chan bool)
			for range 4 {
				go func() {
					possible, _ := s.Sharded(bounded(t), keys[0])
					answers <- possible
				}()
			}
			for range 4 {
				if got := <-answers; got != c.possible {
					t.Errorf("sharded: %v", got)
				}
			}
			for _, key := range keys {
				if got, _ := s.Sharded(bounded(t), key); got != c.possible {
					t.Errorf("%s: sharded: %v", key, got)
				}
			}
			for _, node := range nodes {
				list := node.Client(t).Do(t.Context(), "CLIENT", "LIST", "TYPE", "PUBSUB").Val().(string)
				if strings.Contains(list, "user=user") {
					t.Errorf("it stays subscribed: %s", list)
				}
				if n := asked(t, node); capable && n != 1 {
					t.Errorf("a server was asked %d times", n)
				}
			}
		})
	}
}

func TestAnOutageIsNoAnswerToWhetherAServerCanShard(t *testing.T) {
	t.Parallel()
	node := testredis.Start(t)
	if !canShard(t, node) {
		t.Skip("this server is older than Redis 7")
	}
	sessions := map[time.Duration]*Session{}
	for _, timeout := range []time.Duration{100 * time.Millisecond, time.Minute} {
		rdb := node.Client(t, func(o *redis.Options) { o.ReadTimeout = timeout })
		if err := rdb.Ping(t.Context()).Err(); err != nil { // so that it is connected
			t.Fatal(err)
		}
		sessions[timeout] = openSharded(t, rdb)
	}
	node.Freeze()
	if _, known := sessions[100*time.Millisecond].Sharded(bounded(t), "k0"); known {
		t.Error("a frozen server has answered")
	}
	left := make(chan bool)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, known := sessions[time.Minute].Sharded(ctx, "k0")
		left <- known
	}()
	if <-left { // it ends with its context
		t.Error("a frozen server has answered")
	}
	node.Thaw()
	for _, s := range sessions {
		for possible, known := false, false; !possible || !known; {
			possible, known = s.Sharded(bounded(t), "k0") // it is asked again
		}
	}
}
