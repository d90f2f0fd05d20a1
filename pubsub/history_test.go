package pubsub_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/pubsub"
)

// A listener reads the state after each "resubscribed", and follows each message. It must never be behind for
// longer than a message takes. This must hold while channels come and go, replies are late, and connections
// are cut or fall silent. Proves: wake-ups
func TestNoWakeUpIsLost(t *testing.T) { histories(t, 0, 10, singleHistory) }

// Like TestNoWakeUpIsLost, but slots move between nodes, the client's map is out of date, and nodes refuse
// channels for a while.
func TestNoWakeUpOfAShardedChannelIsLost(t *testing.T) { histories(t, 0, 10, shardedHistory) }

var impatient = pubsub.Options{Linger: 5 * time.Millisecond, PingInterval: 500 * time.Millisecond}

func histories(t *testing.T, from, to uint64, history func(t *testing.T, rnd *rand.Rand)) {
	for seed := from; seed < to; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { history(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func singleHistory(t *testing.T, rnd *rand.Rand) {
	bubble(t, impatient, func(t *testing.T, s *server, h *pubsub.Hub) {
		slow(rnd, s)
		history(t, rnd, h, s.publish, func(string) { trouble(rnd, s) }, func() { s.thaw(-1) })
	})
}

func shardedHistory(t *testing.T, rnd *rand.Rand) {
	sharded(t, 3, impatient, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		slow(rnd, c.nodes...)
		history(t, rnd, h, c.spublish, func(channel string) {
			switch rnd.IntN(3) {
			case 0:
				c.move(channel, rnd.IntN(len(c.nodes)))
			case 1:
				c.set(func() {
					switch rnd.IntN(3) {
					case 0:
						c.asleep = !c.asleep
					case 1:
						c.refused[channel] = "CLUSTERDOWN on purpose"
					default:
						clear(c.refused)
					}
				})
			default:
				trouble(rnd, c.nodes[rnd.IntN(len(c.nodes))])
			}
		}, func() { c.set(func() { c.asleep = false; clear(c.refused) }) })
	})
}

// slow makes each server delay its replies by random times. No lock is needed, because each server has one
// reader at a time.
func slow(rnd *rand.Rand, servers ...*server) {
	for _, s := range servers {
		delay := rnd.Uint64()
		s.set(func() {
			s.latency = func() time.Duration {
				delay = delay*6364136223846793005 + 1442695040888963407
				return time.Duration(delay>>33) % (4 * time.Millisecond)
			}
		})
	}
}

// trouble sometimes cuts the connections of a server, or freezes it for a while.
func trouble(rnd *rand.Rand, s *server) {
	switch rnd.IntN(20) {
	case 0:
		s.cutAll()
	case 1:
		s.freeze()
		time.Sleep(time.Duration(rnd.IntN(1200)) * time.Millisecond)
		s.thaw(-1)
	}
}

func history(t *testing.T, rnd *rand.Rand, h *pubsub.Hub, publish func(channel, message string),
	disturb func(channel string), mend func()) {
	type listener struct {
		*pubsub.Subscription
		channel string
		knows   int
	}
	var (
		channels  = []string{"a", "b", "c", "d"}
		truth     = make(map[string]int)
		listeners []*listener
	)
	// Listeners run here, while all other goroutines are blocked, so each step is reproducible.
	listen := func() {
		synctest.Wait()
		for _, l := range listeners {
			select {
			case <-l.C():
			default:
				continue
			}
			messages, resubscribed := l.Take()
			for _, m := range messages {
				version, _ := strconv.Atoi(m)
				l.knows = max(l.knows, version)
			}
			if resubscribed {
				l.knows = truth[l.channel]
			}
		}
	}
	for range 1500 {
		switch channel := channels[rnd.IntN(len(channels))]; rnd.IntN(14) {
		case 0, 1, 2, 3:
			listeners = append(listeners, &listener{h.Subscribe(channel), channel, -1})
		case 4, 5, 6, 7:
			if n := len(listeners); n > 0 {
				i := rnd.IntN(n)
				listeners[i].Close()
				listeners[i] = listeners[n-1]
				listeners = listeners[:n-1]
			}
		case 8, 9, 10:
			truth[channel]++
			publish(channel, strconv.Itoa(truth[channel]))
		default:
			disturb(channel)
		}
		listen()
		if rnd.IntN(3) == 0 {
			time.Sleep(time.Duration(rnd.IntN(int(7 * time.Millisecond))))
			listen()
		}
	}
	mend()
	for range 100 {
		time.Sleep(100 * time.Millisecond)
		listen()
	}
	for _, l := range listeners {
		if l.knows != truth[l.channel] {
			t.Errorf("a listener of %s knows %d, the truth is %d", l.channel, l.knows, truth[l.channel])
		}
	}
}
