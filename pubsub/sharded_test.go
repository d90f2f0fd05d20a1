package pubsub_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/pubsub"
)

// firstPause is the longest time until the hub looks for the node of a lost channel for the first time.
const firstPause = 20 * time.Millisecond

func TestAShardedHubHasOneConnectionForEachNodeWithChannels(t *testing.T) {
	sharded(t, 3, pubsub.Options{}, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		c.place(1, "x", "y", "z")
		a, b, x, y := h.Subscribe("a"), h.Subscribe("b"), h.Subscribe("x"), h.Subscribe("y")
		for _, s := range []*pubsub.Subscription{a, b, x, y} {
			expect(t, "at first", heard(t, s), "resubscribed")
		}
		z := h.Subscribe("z")
		c.spublish("a", "1")
		c.spublish("y", "2")
		expect(t, "a", heard(t, a), "1")
		expect(t, "b", heard(t, b), "")
		expect(t, "y", heard(t, y), "2")
		expect(t, "z", heard(t, z), "resubscribed")
		expect(t, "connections to the first node", c.nodes[0].dials(), 1)
		expect(t, "its channels", channels(c.nodes[0]), "a b")
		expect(t, "connections to the second node", c.nodes[1].dials(), 1)
		expect(t, "its channels", channels(c.nodes[1]), "x y z")
		expect(t, "connections to the third node", c.nodes[2].dials(), 0)
	})
}

// channels returns the channels to which the hub has subscribed on a node, sorted.
func channels(n *server) string {
	names := strings.Fields(strings.NewReplacer("SSUBSCRIBE", "", ";", "").Replace(n.commands()))
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestAShardedHubAtRestHasNoConnectionAndNoGoroutineAndStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // without Close, so the test fails if a goroutine is left
		c := newCluster(t, 2)
		c.place(1, "b")
		h := pubsub.NewShardedHub(c, pubsub.Options{})
		for round := range 3 {
			a, b := h.Subscribe("a"), h.Subscribe("b")
			expect(t, "a", heard(t, a), "resubscribed")
			expect(t, "b", heard(t, b), "resubscribed")
			a.Close()
			b.Close()
			h.Subscribe("a").Close() // its subscription lingers
			time.Sleep(linger)
			synctest.Wait()
			for i, n := range c.nodes {
				expect(t, fmt.Sprint("connections to node ", i), n.dials(), round+1)
				expect(t, "closed", n.last().isClosed, true)
			}
		}
	})
}

func TestAChannelFollowsItsSlot(t *testing.T) {
	sharded(t, 2, pubsub.Options{}, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		a, b := h.Subscribe("a"), h.Subscribe("b")
		heard(t, b)
		c.spublish("a", "before")
		expect(t, "before", heard(t, a), "resubscribed before")
		c.move("a", 1)
		c.spublish("a", "lost")
		expect(t, "while nobody has it", heard(t, a), "")
		time.Sleep(firstPause)
		expect(t, "at its new node", heard(t, a), "resubscribed")
		c.spublish("a", "after")
		expect(t, "after", heard(t, a), "after")
		c.spublish("b", "1")
		expect(t, "the channel that stays", heard(t, b), "1")
		expect(t, "connections to the old node", c.nodes[0].dials(), 1)
		expect(t, "connections to the new node", c.nodes[1].dials(), 1)
	})
}

func TestAChannelComesBackToAConnectionThatItLeft(t *testing.T) {
	sharded(t, 2, pubsub.Options{}, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		a, b := h.Subscribe("a"), h.Subscribe("b")
		heard(t, b)
		heard(t, a)
		for i := range 10 {
			c.move("a", 1-i%2)
			time.Sleep(firstPause)
			expect(t, "moved", heard(t, a), "resubscribed")
			c.spublish("a", "1")
			expect(t, "told", heard(t, a), "1")
		}
		expect(t, "b", heard(t, b), "")
		expect(t, "connections", c.nodes[0].dials(), 1)
	})
}

func TestAChannelWhoseLastListenerIsGoneDoesNotFollowItsSlot(t *testing.T) {
	sharded(t, 2, pubsub.Options{}, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		a, b := h.Subscribe("a"), h.Subscribe("b")
		heard(t, a)
		heard(t, b)
		c.nodes[0].settle()
		a.Close()
		c.move("a", 1)
		time.Sleep(time.Minute)
		expect(t, "connections to its new node", c.nodes[1].dials(), 0)
		expect(t, "commands", c.nodes[0].commands(), "")
		a = h.Subscribe("a")
		time.Sleep(firstPause)
		expect(t, "a new listener", heard(t, a), "resubscribed")
	})
}

func TestAConnectionEndsWithItsLastChannel(t *testing.T) {
	sharded(t, 2, pubsub.Options{}, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		a := h.Subscribe("a")
		heard(t, a)
		c.move("a", 1)
		synctest.Wait()
		expect(t, "closed", c.nodes[0].last().isClosed, true)
		time.Sleep(firstPause)
		expect(t, "a", heard(t, a), "resubscribed")
	})
}

func TestWrongNodesAreAskedWithPauses(t *testing.T) {
	sharded(t, 2, pubsub.Options{}, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		c.owner["a"] = 1
		c.asleep = true       // the client's map stays wrong
		b := h.Subscribe("b") // first, because a connection for a alone would be closed
		expect(t, "b", heard(t, b), "resubscribed")
		a := h.Subscribe("a")
		time.Sleep(time.Minute)
		expect(t, "a", heard(t, a), "")
		if asked := strings.Count(c.nodes[0].commands(), "SSUBSCRIBE a"); asked < 60 || asked > 130 {
			t.Errorf("a wrong node was asked %d times in a minute", asked)
		}
		if c.reloads < 60 || c.reloads > 130 {
			t.Errorf("%d reloads", c.reloads)
		}
		c.set(func() { c.asleep = false })
		time.Sleep(3 * time.Second)
		expect(t, "once the map is right", heard(t, a), "resubscribed")
		expect(t, "b", heard(t, b), "")
		expect(t, "connections", c.nodes[0].dials(), 1)
	})
}

func TestAChannelThatIsRefusedDisturbsNoOther(t *testing.T) {
	for _, reason := range []refusal{"NOPERM no", "CLUSTERDOWN Hash slot not served"} {
		t.Run(string(reason), func(t *testing.T) {
			var log bytes.Buffer
			o := pubsub.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
			sharded(t, 1, o, func(t *testing.T, c *cluster, h *pubsub.Hub) {
				c.refused["a"] = reason
				b := h.Subscribe("b") // first, because a connection with only a refused channel is closed
				expect(t, "b", heard(t, b), "resubscribed")
				a := h.Subscribe("a")
				time.Sleep(time.Minute + time.Second)
				c.spublish("b", "1")
				expect(t, "b", heard(t, b), "1")
				expect(t, "a", heard(t, a), "")
				expect(t, "connections", c.nodes[0].dials(), 1)
				c.set(func() { delete(c.refused, "a") })
				time.Sleep(time.Second)
				expect(t, "a in the end", heard(t, a), "resubscribed")
			})
			if n := strings.Count(log.String(), string(reason)); n != 2 {
				t.Errorf("logged %d times in a minute:\n%s", n, &log)
			}
		})
	}
}

func TestWhatADeadNodeHadIsSubscribedWhereItIsNow(t *testing.T) {
	var log bytes.Buffer
	o := pubsub.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	sharded(t, 2, o, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		c.place(1, "x")
		a, b, x := h.Subscribe("a"), h.Subscribe("b"), h.Subscribe("x")
		heard(t, a)
		heard(t, b)
		heard(t, x)
		c.nodes[0].set(func() { c.nodes[0].refuse = errCut })
		c.nodes[0].cutAll()
		time.Sleep(10 * time.Second)
		late := h.Subscribe("late")
		expect(t, "during the outage", heard(t, a)+heard(t, late), "")
		dials := c.nodes[0].dials()
		if dials > 30 {
			t.Errorf("%d dials in 10 s", dials)
		}
		c.move("a", 1)
		c.move("b", 1)
		c.move("late", 1)
		time.Sleep(2 * time.Second) // longer than two pauses
		for _, s := range []*pubsub.Subscription{a, b, late} {
			expect(t, "after it", heard(t, s), "resubscribed")
		}
		expect(t, "the other node's channel", heard(t, x), "")
		expect(t, "connections to the new node", c.nodes[1].dials(), 1)
		time.Sleep(time.Minute)
		if n := c.nodes[0].dials(); n > dials+2 {
			t.Errorf("the dead node was dialed %d times more", n-dials)
		}
	})
	for _, words := range []string{
		"level=WARN msg=\"lockline: subscription lost",
		"level=INFO msg=\"lockline: the lost subscription is not needed any more",
	} {
		expect(t, words, strings.Count(log.String(), words), 1)
	}
}

func TestANodeThatIsCutOffFromTheOthersIsLeft(t *testing.T) {
	sharded(t, 2, pubsub.Options{}, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		a, b := h.Subscribe("a"), h.Subscribe("b")
		idle := h.Subscribe("idle")
		heard(t, a)
		heard(t, b)
		heard(t, idle)
		c.nodes[0].settle()
		c.set(func() { c.known["a"], c.known["idle"] = 1, 1; c.owner["a"], c.owner["idle"] = 1, 1 })
		time.Sleep(interval - linger/2)
		idle.Close()
		time.Sleep(linger / 2)
		expect(t, "a", heard(t, a), "resubscribed")
		expect(t, "b", heard(t, b), "")
		commands := c.nodes[0].commands()
		expect(t, "commands to the old node", strings.Replace(commands, "idle a", "a idle", 1),
			"SUNSUBSCRIBE a idle")
		expect(t, "commands to the new node", c.nodes[1].commands(), "SSUBSCRIBE a")
		c.spublish("a", "1")
		expect(t, "a", heard(t, a), "1")
	})
}

func TestAChannelThatIsBackBeforeItWasUnsubscribedIsSubscribed(t *testing.T) {
	sharded(t, 2, pubsub.Options{}, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		a, b := h.Subscribe("a"), h.Subscribe("b")
		heard(t, a)
		heard(t, b)
		c.nodes[0].settle()
		pinging := make(chan struct{})
		c.nodes[0].set(func() { c.nodes[0].pinging = pinging })
		// The client's map is wrong now, so the channel seems to move back and forth.
		c.set(func() { c.known["a"] = 1 })
		time.Sleep(interval + firstPause)
		synctest.Wait()
		close(pinging)
		expect(t, "a", heard(t, a), "resubscribed")
		expect(t, "commands", c.nodes[0].commands(), "SSUBSCRIBE a")
		expect(t, "commands to the other node", c.nodes[1].commands(), "SSUBSCRIBE a")
	})
}

func TestACommandWithoutAReplyIsRepeatedAfterTheNextReply(t *testing.T) {
	sharded(t, 1, pubsub.Options{}, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		b := h.Subscribe("b")
		heard(t, b)
		c.set(func() { c.lost = 1 })
		a := h.Subscribe("a")
		expect(t, "at first", heard(t, a), "")
		time.Sleep(interval + firstPause) // until the next pong
		expect(t, "then", heard(t, a), "resubscribed")
		expect(t, "connections", c.nodes[0].dials(), 1)
	})
}

func TestAPongThatIsMissingIsNotWaitedForAfterTheNextReply(t *testing.T) {
	sharded(t, 1, pubsub.Options{}, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		heard(t, h.Subscribe("b"))
		c.nodes[0].set(func() { c.nodes[0].mute = 1 })
		time.Sleep(interval + time.Millisecond)
		a := h.Subscribe("a")
		expect(t, "a", heard(t, a), "resubscribed")
		time.Sleep(time.Minute)
		expect(t, "connections", c.nodes[0].dials(), 1)
	})
}

func TestRepliesOutOfTurnMoveNothingForLong(t *testing.T) {
	sharded(t, 2, pubsub.Options{}, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		a, b, x := h.Subscribe("a"), h.Subscribe("b"), h.Subscribe("x")
		heard(t, a)
		heard(t, b)
		heard(t, x)
		c.nodes[0].settle()
		a.Close()
		c.nodes[0].freeze()
		time.Sleep(linger - time.Millisecond)
		c.move("a", 1) // the node says so while the hub unsubscribes
		time.Sleep(time.Millisecond)
		synctest.Wait()
		a = h.Subscribe("a")
		synctest.Wait()
		expect(t, "commands", c.nodes[0].commands(), "SUNSUBSCRIBE a; SSUBSCRIBE a")
		c.nodes[0].thaw(-1)
		time.Sleep(time.Second)
		expect(t, "a", heard(t, a), "resubscribed")
		c.spublish("a", "1")
		c.spublish("b", "2")
		expect(t, "a", heard(t, a), "1")
		expect(t, "b", strings.TrimPrefix(heard(t, b), "resubscribed "), "2")
	})
}

func TestAClusterWithoutAMapIsAskedWithPauses(t *testing.T) {
	var log bytes.Buffer
	o := pubsub.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	sharded(t, 1, o, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		c.failing = errNoMap
		a, gone := h.Subscribe("a"), h.Subscribe("gone")
		time.Sleep(time.Minute)
		expect(t, "a", heard(t, a), "")
		if c.located > 2*130 {
			t.Errorf("asked %d times in a minute", c.located)
		}
		gone.Close()
		c.set(func() { c.failing = nil })
		time.Sleep(time.Second)
		expect(t, "a", heard(t, a), "resubscribed")
		expect(t, "commands", c.nodes[0].commands(), "SSUBSCRIBE a")
	})
	if !strings.Contains(log.String(), errNoMap.Error()) {
		t.Errorf("the reason is missing:\n%s", &log)
	}
}

func TestAListenerThatLeavesWhileItsNodeIsSoughtLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // without Close
		c := newCluster(t, 1)
		c.locating = make(chan struct{})
		h := pubsub.NewShardedHub(c, pubsub.Options{})
		a, b := h.Subscribe("a"), h.Subscribe("b")
		synctest.Wait()
		a.Close()
		close(c.locating)
		expect(t, "b", heard(t, b), "resubscribed")
		expect(t, "commands", c.nodes[0].commands(), "SSUBSCRIBE b")
		b.Close()
		time.Sleep(linger)
	})
}

func TestListenersThatLeaveWhileNoNodeIsKnownLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // without Close
		c := newCluster(t, 1)
		c.failing = errNoMap
		h := pubsub.NewShardedHub(c, pubsub.Options{})
		a := h.Subscribe("a")
		time.Sleep(time.Minute)
		a.Close()
		time.Sleep(time.Second) // longer than the longest pause
	})
}

func TestCloseEndsAShardedHubInAnyState(t *testing.T) {
	states := map[string]func(c *cluster, h *pubsub.Hub){
		"unused":     func(*cluster, *pubsub.Hub) {},
		"subscribed": func(_ *cluster, h *pubsub.Hub) { h.Subscribe("a"); h.Subscribe("x") },
		"no map":     func(c *cluster, h *pubsub.Hub) { c.failing = errNoMap; h.Subscribe("a") },
		"moving":     func(c *cluster, h *pubsub.Hub) { h.Subscribe("a"); synctest.Wait(); c.move("a", 1) },
		"outage": func(c *cluster, h *pubsub.Hub) {
			c.nodes[0].refuse = errCut
			h.Subscribe("a")
			time.Sleep(time.Minute)
		},
	}
	for name, reach := range states {
		t.Run(name, func(t *testing.T) {
			sharded(t, 2, pubsub.Options{}, func(t *testing.T, c *cluster, h *pubsub.Hub) {
				c.place(1, "x")
				reach(c, h)
				synctest.Wait()
				h.Close()
				late := h.Subscribe("late")
				time.Sleep(time.Minute)
				expect(t, "subscribed after Close", heard(t, late), "")
				for _, n := range c.nodes {
					for _, conn := range n.conns {
						expect(t, "closed", conn.isClosed, true)
					}
				}
			})
		})
	}
}

// brittle is a Cluster whose first call of Node panics.
type brittle struct {
	*cluster
	panicked bool
}

func (b *brittle) Node(ctx context.Context, channel string) (pubsub.Node, error) {
	if !b.panicked {
		b.panicked = true
		panic("on purpose")
	}
	return b.cluster.Node(ctx, channel)
}

func (b *brittle) Reload(context.Context) { panic("on purpose") }

func TestAClusterThatPanicsIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := newCluster(t, 1)
		h := pubsub.NewShardedHub(&brittle{cluster: c},
			pubsub.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer h.Close()
		a := h.Subscribe("a")
		time.Sleep(firstPause)
		expect(t, "a", heard(t, a), "resubscribed")
		if n := strings.Count(log.String(), "panic=\"on purpose\""); n != 2 {
			t.Errorf("%d panics logged:\n%s", n, &log)
		}
	})
}
