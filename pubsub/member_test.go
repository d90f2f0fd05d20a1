package pubsub_test

import (
	"bytes"
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/pubsub"
)

// members is a Cluster of servers in memory with classic pub/sub, and also its client. Each name has its own
// slot.
type members struct {
	servers []*testlock.Wire

	mu      sync.Mutex // guards the fields below
	masters []int      // the client's map: indexes of the masters
	failing error      // error that MasterForKey returns; nil means none
	reloads int
}

func (m *members) MasterForKey(_ context.Context, key string) (*redis.Client, error) {
	hash := fnv.New32()
	_, _ = hash.Write([]byte(key))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failing != nil {
		return nil, m.failing
	}
	return m.servers[m.masters[int(hash.Sum32())%len(m.masters)]].Client, nil
}

func (m *members) ReloadState(context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reloads++
}

// know sets the client's map of masters.
func (m *members) know(masters ...int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.masters = masters
}

func (m *members) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing = err
}

// publish publishes a message on each server, as the bus of a Cluster does.
func (m *members) publish(channel, message string) {
	for _, s := range m.servers {
		s.Publish(channel, message)
	}
}

// at returns the index of the server with subscribers. It fails the test unless exactly one server has
// subscribers.
func (m *members) at(t *testing.T) int {
	t.Helper()
	found := -1
	for i, s := range m.servers {
		if n := len(s.PubSubChannels("*")); n > 0 {
			if found >= 0 {
				t.Errorf("servers %d and %d have subscribers", found, i)
			}
			found = i
		}
	}
	if found < 0 {
		t.Fatal("no server has a subscriber")
	}
	return found
}

// withMembers runs a test in fake time with a Cluster of three masters.
func withMembers(t *testing.T, o pubsub.Options, test func(t *testing.T, m *members, h *pubsub.Hub)) {
	t.Helper()
	testlock.InFakeTime(t, func(t *testing.T) {
		m := &members{masters: []int{0, 1, 2}}
		for range m.masters {
			m.servers = append(m.servers, testlock.NewWire(t))
		}
		h := pubsub.NewClusterHub(m, o)
		t.Cleanup(h.Close)
		test(t, m, h)
	})
}

func TestAClusterHubHasOneConnectionToAnyMaster(t *testing.T) {
	used := map[int]bool{}
	for range 30 { // fails by chance once in 60,000 runs
		withMembers(t, pubsub.Options{}, func(t *testing.T, m *members, h *pubsub.Hub) {
			var subs []*pubsub.Subscription
			for _, name := range strings.Fields("a b c d e f") {
				subs = append(subs, h.Subscribe(name))
				synctest.Wait()
			}
			for _, s := range subs {
				awaitResubscribed(t, s)
			}
			used[m.at(t)] = true
			m.publish("f", "1")
			awaitMessage(t, subs[5], "1")
			time.Sleep(time.Hour)
			m.publish("a", "2")
			awaitMessage(t, subs[0], "2")
			if _, resubscribed := subs[0].Take(); resubscribed {
				t.Error("a connection that works was replaced")
			}
		})
	}
	if len(used) < 2 {
		t.Errorf("of three masters only these were used: %v", used)
	}
}

func TestAClusterHubLeavesAServerThatFailsForGood(t *testing.T) {
	// One server refuses connections. Another one accepts them, but never replies.
	for name, c := range map[string]struct {
		fail func(*testlock.Wire)
		most time.Duration // until another server has confirmed the channel
	}{
		"dead":   {(*testlock.Wire).Kill, 100 * time.Millisecond},
		"silent": {func(w *testlock.Wire) { w.Down(true) }, 2*interval + 100*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				withMembers(t, pubsub.Options{}, func(t *testing.T, m *members, h *pubsub.Hub) {
					a := h.Subscribe("a")
					awaitResubscribed(t, a)
					bad := m.at(t)
					c.fail(m.servers[bad])
					start := time.Now()
					awaitResubscribed(t, a)
					if took := time.Since(start); took > c.most {
						t.Errorf("confirmed after %v", took)
					}
					m.publish("a", "1")
					awaitMessage(t, a, "1")

					// The hub does not use this server again, even after it has been at rest.
					requests := m.servers[bad].Net.Count()
					for range 20 {
						a.Close()
						time.Sleep(time.Minute)
						a = h.Subscribe("a")
						start = time.Now()
						awaitResubscribed(t, a)
						if took := time.Since(start); took > 100*time.Millisecond {
							t.Errorf("after a rest: confirmed after %v", took)
						}
					}
					expect(t, "requests to the bad server", m.servers[bad].Net.Count(), requests)
				})
			}
		})
	}
}

func TestAClusterHubFindsTheOnlyServerThatWorks(t *testing.T) {
	var log bytes.Buffer
	var alive string
	o := pubsub.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	withMembers(t, o, func(t *testing.T, m *members, h *pubsub.Hub) {
		m.servers[0].Kill()
		m.servers[1].Kill()
		a := h.Subscribe("a")
		time.Sleep(time.Minute)
		awaitResubscribed(t, a)
		expect(t, "the server", m.at(t), 2)
		alive = m.servers[2].Client.Options().Addr
		m.servers[2].Kill()
		time.Sleep(time.Minute)
		m.mu.Lock()
		reloads := m.reloads
		m.mu.Unlock()
		if reloads < 20 || reloads > 200 {
			t.Errorf("%d reloads in a minute without a server", reloads)
		}
		m.servers[1].Restart()
		awaitResubscribed(t, a)
		expect(t, "the server", m.at(t), 1)
	})
	if !strings.Contains(log.String(), "server="+alive) {
		t.Errorf("the log names no server:\n%s", &log)
	}
	if n := strings.Count(log.String(), "level=WARN"); n < 1 || n > 2 {
		t.Errorf("%d warnings of two outages:\n%s", n, &log)
	}
}

func TestAClusterHubOfOneMasterComesBackToIt(t *testing.T) {
	withMembers(t, pubsub.Options{}, func(t *testing.T, m *members, h *pubsub.Hub) {
		m.know(1)
		a := h.Subscribe("a")
		for range 3 {
			awaitResubscribed(t, a)
			expect(t, "the server", m.at(t), 1)
			m.servers[1].Restart()
		}
	})
}

func TestAClusterHubTriesAnotherServerWhereTheUserMayNotSubscribe(t *testing.T) {
	withMembers(t, pubsub.Options{}, func(t *testing.T, m *members, h *pubsub.Hub) {
		for _, i := range []int{0, 2} {
			m.servers[i].SetError("NOPERM no")
		}
		a := h.Subscribe("a")
		awaitResubscribed(t, a)
		expect(t, "the server", m.at(t), 1)
	})
}

// A server that is cut off from its Cluster still replies, but gets no messages from the other nodes. These
// give its slots to a replica, which the client's map shows.
func TestAClusterHubLeavesAServerThatIsNoMasterAnyMore(t *testing.T) {
	for range 5 {
		withMembers(t, pubsub.Options{}, func(t *testing.T, m *members, h *pubsub.Hub) {
			a := h.Subscribe("a")
			awaitResubscribed(t, a)
			cutOff := m.at(t)
			m.know((cutOff+1)%3, (cutOff+2)%3)
			start := time.Now()
			awaitResubscribed(t, a)
			if took := time.Since(start); took > interval+100*time.Millisecond {
				t.Errorf("left after %v", took)
			}
			if m.at(t) == cutOff {
				t.Error("it is still there")
			}
		})
	}
}

func TestAClusterHubStaysWhileSlotsMove(t *testing.T) {
	withMembers(t, pubsub.Options{}, func(t *testing.T, m *members, h *pubsub.Hub) {
		a := h.Subscribe("a")
		awaitResubscribed(t, a)
		for _, masters := range [][]int{{2, 1, 0}, {1, 0, 2}, {0, 1, 2, 2, 1, 0}} {
			m.know(masters...)
			time.Sleep(time.Minute)
		}
		if _, resubscribed := a.Take(); resubscribed {
			t.Error("a connection to a master was replaced")
		}
	})
}

func TestAClusterHubWithoutAMapWaitsForIt(t *testing.T) {
	withMembers(t, pubsub.Options{}, func(t *testing.T, m *members, h *pubsub.Hub) {
		m.fail(errNoMap)
		a := h.Subscribe("a")
		time.Sleep(time.Minute)
		m.fail(nil)
		awaitResubscribed(t, a)
		m.fail(errors.New("no map for a while")) // an error that says nothing about the server
		time.Sleep(time.Minute)
		if _, resubscribed := a.Take(); resubscribed {
			t.Error("a connection that works was replaced")
		}
	})
}
