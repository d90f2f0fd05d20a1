package pubsub_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/pubsub"
)

func TestASubscriptionIsResubscribedOnceTheServerConfirms(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		s.freeze()
		a := h.Subscribe("a")
		expect(t, "before the reply", heard(t, a), "")
		s.thaw(-1)
		expect(t, "after the reply", heard(t, a), "resubscribed")
		expect(t, "the next time", heard(t, a), "")
	})
}

func TestASubscriptionOfAConfirmedChannelIsResubscribedAtOnce(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		h.Subscribe("a")
		synctest.Wait()
		b := h.Subscribe("a")
		<-b.C()
		_, resubscribed := b.Take()
		expect(t, "resubscribed", resubscribed, true)
		expect(t, "commands", s.commands(), "SUBSCRIBE a")
	})
}

func TestEverySubscriptionGetsEveryMessageOfItsChannelInOrder(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		a1, a2, b := h.Subscribe("a"), h.Subscribe("a"), h.Subscribe("b")
		synctest.Wait()
		s.publish("a", "1")
		s.publish("b", "2")
		s.publish("a", "3")
		expect(t, "first of a", heard(t, a1), "resubscribed 1 3")
		expect(t, "second of a", heard(t, a2), "resubscribed 1 3")
		expect(t, "b", heard(t, b), "resubscribed 2")
	})
}

func TestASlowListenerHoldsUpNobody(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		slow, fast := h.Subscribe("a"), h.Subscribe("a")
		heard(t, fast)
		for i := range 5000 {
			message := fmt.Sprint(i)
			s.publish("a", message)
			expect(t, "fast", heard(t, fast), message)
		}
		_, resubscribed := slow.Take()
		expect(t, "slow is resubscribed", resubscribed, true)
	})
}

func TestAFullMailboxIsDroppedAndItsListenerTold(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		a := h.Subscribe("a")
		heard(t, a)
		for i := range 1024 {
			s.publish("a", fmt.Sprint(i))
		}
		synctest.Wait()
		messages, resubscribed := a.Take()
		expect(t, "messages of a mailbox just full", len(messages), 1024)
		expect(t, "just full, resubscribed", resubscribed, false)
		for i := range 1025 {
			s.publish("a", fmt.Sprint(i))
		}
		expect(t, "after one more", heard(t, a), "resubscribed 1024")
	})
}

func TestAClosedSubscriptionGetsNothingMore(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		a, b := h.Subscribe("a"), h.Subscribe("a")
		synctest.Wait()
		s.publish("a", "1")
		synctest.Wait()
		a.Close()
		a.Close()
		s.publish("a", "2")
		expect(t, "closed", heard(t, a), "resubscribed 1")
		expect(t, "open", heard(t, b), "resubscribed 1 2")
		time.Sleep(time.Minute)
		expect(t, "commands", s.commands(), "SUBSCRIBE a") // closing twice counts once
	})
}
