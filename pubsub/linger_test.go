package pubsub_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/pubsub"
)

const linger = 2 * time.Second // the default

func TestChannelsLingerThenAreUnsubscribedTogether(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		h.Subscribe("stays")
		a, b := h.Subscribe("a"), h.Subscribe("b")
		s.settle()
		a.Close()
		b.Close()
		time.Sleep(linger - 1)
		expect(t, "while they linger", s.commands(), "")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		expect(t, "then", s.commands(), "UNSUBSCRIBE a b")
	})
}

func TestEachChannelLingersFromItsOwnLastListener(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		h.Subscribe("stays")
		a, b, c := h.Subscribe("a"), h.Subscribe("b"), h.Subscribe("c")
		s.settle()
		a.Close()
		time.Sleep(linger / 4)
		b.Close()
		time.Sleep(linger / 4)
		c.Close()
		h.Subscribe("a").Close() // the time begins again
		time.Sleep(linger * 3 / 4)
		synctest.Wait()
		expect(t, "b first", s.commands(), "UNSUBSCRIBE b")
		time.Sleep(linger / 4)
		synctest.Wait()
		expect(t, "then c and a", s.commands(), "UNSUBSCRIBE b; UNSUBSCRIBE c a")
	})
}

func TestALingeringChannelIsReusedWithoutTraffic(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		a := h.Subscribe("a")
		synctest.Wait()
		for range 100 {
			a.Close()
			time.Sleep(linger - 1)
			a = h.Subscribe("a")
			<-a.C() // without a new subscription
			s.publish("a", "message")
			expect(t, "reused", heard(t, a), "resubscribed message")
		}
		expect(t, "commands", s.commands(), "SUBSCRIBE a")
		expect(t, "connections", s.dials(), 1)
	})
}

func TestAHubAtRestHasNoConnectionAndNoGoroutineAndStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // without Close, so the test fails if a goroutine is left
		s := &server{t: t}
		h := pubsub.NewHub(s.dial, pubsub.Options{})
		for round := range 3 {
			a, b := h.Subscribe("a"), h.Subscribe("b")
			expect(t, "a", heard(t, a), "resubscribed")
			expect(t, "connections", s.dials(), round+1)
			s.settle()
			a.Close()
			b.Close()
			time.Sleep(linger)
			synctest.Wait()
			expect(t, "closed", s.last().isClosed, true)
			expect(t, "commands", s.commands(), "")
		}
	})
}

func TestAChannelClosedDuringAnOutageIsNotSubscribedAfterIt(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		a, b := h.Subscribe("a"), h.Subscribe("b")
		synctest.Wait()
		s.set(func() { s.refuse = errCut })
		s.cutAll()
		a.Close()
		time.Sleep(linger + time.Second)
		s.set(func() { s.refuse = nil })
		time.Sleep(time.Second)
		expect(t, "b", heard(t, b), "resubscribed")
		expect(t, "commands", s.commands(), "SUBSCRIBE b")
	})
}

func TestAHubWhoseListenersLeaveDuringAnOutageComesToRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t, refuse: errCut}
		h := pubsub.NewHub(s.dial, pubsub.Options{})
		a := h.Subscribe("a")
		time.Sleep(time.Minute)
		a.Close()
		time.Sleep(linger + time.Second) // longer than the lingering and the longest backoff
	})
}

func TestASubscribeThatRacesWithAnUnsubscribeIsConfirmedByItsOwnReply(t *testing.T) {
	bubble(t, pubsub.Options{PingInterval: time.Hour}, func(t *testing.T, s *server, h *pubsub.Hub) {
		h.Subscribe("stays")
		a := h.Subscribe("a")
		s.settle()
		a.Close()
		s.freeze()
		time.Sleep(linger)
		synctest.Wait()
		a = h.Subscribe("a")
		expect(t, "no reply yet", heard(t, a), "")
		expect(t, "commands", s.commands(), "UNSUBSCRIBE a; SUBSCRIBE a")
		s.thaw(1) // unsubscribe
		expect(t, "after the reply to UNSUBSCRIBE", heard(t, a), "")
		s.thaw(1) // subscribe
		expect(t, "after the reply to SUBSCRIBE", heard(t, a), "resubscribed")
		s.thaw(-1)
		s.publish("a", "1")
		expect(t, "a message", heard(t, a), "1")
	})
}

func TestALateReplyToAnEarlierSubscribeConfirmsNothing(t *testing.T) {
	bubble(t, pubsub.Options{PingInterval: time.Hour}, func(t *testing.T, s *server, h *pubsub.Hub) {
		h.Subscribe("stays")
		s.settle()
		s.freeze()
		a := h.Subscribe("a")
		synctest.Wait()
		a.Close()
		time.Sleep(linger)
		synctest.Wait()
		a = h.Subscribe("a")
		synctest.Wait()
		expect(t, "commands", s.commands(), "SUBSCRIBE a; UNSUBSCRIBE a; SUBSCRIBE a")
		s.thaw(1)
		expect(t, "after the first reply", heard(t, a), "")
		expect(t, "a second listener", heard(t, h.Subscribe("a")), "")
		s.thaw(1)
		expect(t, "after the second", heard(t, a), "")
		s.thaw(1)
		expect(t, "after the third", heard(t, a), "resubscribed")
	})
}

func TestAReplyToUnsubscribeConfirmsNoSubscribeThatIsYetToBeWritten(t *testing.T) {
	bubble(t, pubsub.Options{PingInterval: time.Hour}, func(t *testing.T, s *server, h *pubsub.Hub) {
		h.Subscribe("stays")
		a := h.Subscribe("a")
		s.settle()
		a.Close()
		s.freeze()
		time.Sleep(linger)
		synctest.Wait()
		dialing := make(chan struct{})
		s.set(func() { s.dialing = dialing })
		h.Subscribe("keeps the owner busy")
		synctest.Wait()
		a = h.Subscribe("a")
		expect(t, "commands", s.commands(), "UNSUBSCRIBE a")
		s.thaw(1)
		expect(t, "after the reply to UNSUBSCRIBE", heard(t, a), "")
		close(dialing)
		s.thaw(-1)
		expect(t, "in the end", heard(t, a), "resubscribed")
	})
}
