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

// As TestNoWakeUpIsLost, while slots move from node to node, the client's map of them is behind, and
// channels are refused for a while.
func TestNoWakeUpOfAShardedChannelIsLost(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			o := pubsub.Options{Linger: 5 * time.Millisecond, PingInterval: 500 * time.Millisecond}
			sharded(t, 3, o, func(t *testing.T, c *cluster, h *pubsub.Hub) { shardedHistory(t, c, h, rnd) })
		})
	}
}

func shardedHistory(t *testing.T, c *cluster, h *pubsub.Hub, rnd *rand.Rand) {
	type listener struct {
		*pubsub.Subscription
		channel string
		knows   int
	}
	var (
		channels  = []string{"a", "b", "c", "d", "e"}
		truth     = make(map[string]int)
		listeners []*listener
	)
	for i, n := range c.nodes {
		delay := rnd.Uint64()
		n.latency = func() time.Duration { // each node has one reader at a time
			delay = delay*6364136223846793005 + 1442695040888963407 + uint64(i)
			return time.Duration(delay>>33) % (4 * time.Millisecond)
		}
	}
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
		node := c.nodes[rnd.IntN(len(c.nodes))]
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
			c.spublish(channel, strconv.Itoa(truth[channel]))
		case 11:
			c.move(channel, rnd.IntN(len(c.nodes)))
		case 12:
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
			switch rnd.IntN(20) {
			case 0:
				node.cutAll()
			case 1:
				node.freeze()
				time.Sleep(time.Duration(rnd.IntN(1200)) * time.Millisecond)
				node.thaw(-1)
			}
		}
		listen()
		if rnd.IntN(3) == 0 {
			time.Sleep(time.Duration(rnd.IntN(int(7 * time.Millisecond))))
			listen()
		}
	}
	c.set(func() { c.asleep = false; clear(c.refused) })
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
