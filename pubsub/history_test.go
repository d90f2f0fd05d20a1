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

// A listener that asks its server after each resubscribed, and heeds each message, is never
// behind for longer than a message takes: not while channels come and go, replies are
// late, and connections are cut or fall silent.
func TestNoWakeUpIsLost(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			o := pubsub.Options{Linger: 5 * time.Millisecond, PingInterval: 500 * time.Millisecond}
			bubble(t, o, func(t *testing.T, s *server, h *pubsub.Hub) { history(t, s, h, rnd) })
		})
	}
}

func history(t *testing.T, s *server, h *pubsub.Hub, rnd *rand.Rand) {
	type listener struct {
		*pubsub.Subscription
		channel string
		knows   int
	}
	var (
		channels  = []string{"a", "b", "c"}
		truth     = make(map[string]int)
		listeners []*listener
	)
	delay := rnd.Uint64()
	s.set(func() { // called by one reader at a time
		s.latency = func() time.Duration {
			delay = delay*6364136223846793005 + 1442695040888963407
			return time.Duration(delay>>33) % (4 * time.Millisecond)
		}
	})
	// Listeners run here, at instants when all else rests: so each step is reproducible.
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
		switch channel := channels[rnd.IntN(len(channels))]; rnd.IntN(12) {
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
			s.publish(channel, strconv.Itoa(truth[channel]))
		default:
			switch rnd.IntN(20) {
			case 0:
				s.cutAll()
			case 1:
				s.freeze()
				time.Sleep(time.Duration(rnd.IntN(1200)) * time.Millisecond)
				s.thaw(-1)
			}
		}
		listen()
		if rnd.IntN(3) == 0 {
			time.Sleep(time.Duration(rnd.IntN(int(7 * time.Millisecond))))
			listen()
		}
	}
	s.thaw(-1)
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
