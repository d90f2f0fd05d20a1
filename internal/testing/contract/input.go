package contract

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// input has tests of wrong arguments, of forged messages, and of keys in which another program wrote values.
var input = map[string]test{
	"BadInputIsRefused": {0, func(t *testing.T, w *world) {
		for what, c := range map[string]struct {
			m       Lock
			ctx     context.Context
			options []rlock.Option
			named   string // text that the error must contain
		}{
			"an empty name":       {w.new(""), bg, nil, `""`},
			"a long name":         {w.new(strings.Repeat("n", 513)), bg, nil, "513"},
			"a zero lease":        {w.new("x"), bg, []rlock.Option{rlock.WithLease(0)}, "0s"},
			"a negative lease":    {w.new("x"), bg, []rlock.Option{rlock.WithLease(-time.Second)}, "-1s"},
			"a lease too short":   {w.new("x"), bg, []rlock.Option{rlock.WithLease(time.Millisecond)}, "1ms"},
			"a negative wait":     {w.new("x"), bg, []rlock.Option{rlock.WaitAtMost(-time.Second)}, "-1s"},
			"a bad default lease": {w.new("x", rlock.WithLease(-time.Minute)), bg, nil, "-1m"},
			"a nil context":       {w.new("x"), nil, nil, "context"},
			"a lease without a unit": {w.new("x"), bg, []rlock.Option{rlock.WithLease(30)},
				"WithLease: 30ns is shorter than 10ms: is the unit missing"},
			"a wait without a unit": {w.new("x"), bg, []rlock.Option{rlock.WaitAtMost(2)},
				"WaitAtMost: 2ns is shorter than 1ms: is the unit missing"},
			"a least time without a unit": {w.new("x"), bg, []rlock.Option{rlock.HoldAtLeast(30)},
				"HoldAtLeast: 30ns is shorter than 1ms: is the unit missing"},
			"a negative least time": {w.new("x"), bg, []rlock.Option{rlock.HoldAtLeast(-time.Second)},
				"HoldAtLeast: -1s"},
		} {
			_ = c.m.Name()
			ctx, hold, err := c.m.Lock(c.ctx, c.options...)
			if err == nil || !strings.Contains(err.Error(), c.named) || ctx != c.ctx || hold != nil {
				t.Errorf("%s: Lock: %v, %v, %v", what, ctx, hold, err)
			}
			if _, _, err := c.m.TryLock(c.ctx, c.options...); err == nil {
				t.Errorf("%s: TryLock took it", what)
			}
			if err := c.m.Do(c.ctx, func(context.Context) error { t.Errorf("%s: Do ran", what); return nil },
				c.options...); err == nil {
				t.Errorf("%s: Do took it", what)
			}
			if len(c.options) == 0 && !strings.Contains(what, "default") && w.wires != nil {
				_, inspected := c.m.Inspect(c.ctx)
				_, forced := c.m.Force(c.ctx)
				for _, err := range []error{inspected, forced} {
					if err == nil {
						t.Errorf("%s: Inspect or Force took it", what)
					}
					testlock.OnePrefix(t, what, err)
				}
			}
		}
		for _, net := range w.nets {
			if n := net.Count("EVAL", "EVALSHA"); n != 0 {
				t.Errorf("%d requests were sent", n)
			}
		}
		_, hold := testlock.Lock(t, w.new("x", nil), bg, nil) // options may be nil
		var none context.Context
		if hold.Extend(none, time.Minute) == nil {
			t.Error("a nil context was taken")
		}
		testlock.Unlock(t, hold)
	}},
	"AnyBytesAreAName": {Own, func(t *testing.T, w *world) {
		var holds []*rlock.Hold
		for _, name := range []string{
			"x", "a b", "a\nb", "a\x00b", "\xff\xfe", "ü", "名前", "{", "}", "{}", "}{", "{a}", "a{b}c", "a}b",
			"a{b", "}x", `\x`, `\}x`,
			"{}{a}", "a:b", "a}:t", "}:t", "*", "[x]", strings.Repeat("n", 512), strings.Repeat("}", 512),
		} { // all are held at once, so no two names are the same lock
			_, hold := testlock.TryLock(t, w.new(name), bg)
			if !strings.HasPrefix(hold.Name(), name) || !strings.HasPrefix(w.new(name).Name(), name) ||
				!inspect(t, w.new(name)).Held {
				t.Errorf("%q came back as %q", name, hold.Name())
			}
			holds = append(holds, hold)
		}
		for _, hold := range holds {
			testlock.Unlock(t, hold)
		}
	}},
	// The attacker may publish messages, and knows everything that is not secret, such as the waiters and the
	// last token. Proves: messages
	"AForgedMessageGrantsNothing": {Lines, func(t *testing.T, w *world) {
		_, hold := testlock.Lock(t, w.new("x"), bg)
		got := begin(t, w.rival("x"), bg)
		now, st := time.Now().UnixMicro(), inspect(t, w.new("x"))
		waiter := st.Owner
		if len(st.Queue) > 0 {
			waiter = st.Queue[0].Owner
		}
		session, _, _ := strings.Cut(waiter, ":")
		for _, owner := range []string{waiter, session + ":99", strings.Repeat("x", 100000), ""} {
			for _, rest := range []string{
				" 9000000000000000", fmt.Sprint(" ", now), fmt.Sprintf(" %d %d 30000", now, now),
				fmt.Sprintf(" %d %d 30000 ", now, now), "", " x", " -5", " 1",
				fmt.Sprintf(" %d %d 30000 AAAAAAAAAAAAAAAA", now, now),
				fmt.Sprintf(" %d %d 30000 nonce more", now, now), " - - - -", " inf inf inf inf",
			} {
				for _, wire := range w.wires {
					for _, channel := range wire.PubSubChannels("lockline:*") {
						wire.Publish(channel, owner+rest)
					}
				}
			}
		}
		time.Sleep(settled)
		if len(got) > 0 {
			t.Fatal("one that was told lies has the lock")
		}
		testlock.Unlock(t, hold)
		next := granted(t, got)
		w.wants(t, next, hold)
		testlock.Unlock(t, next)
		w.clean(t, "x")
	}},
	"KeysOfAnotherTypeAreReportedAndLeftAlone": {Mutexes, func(t *testing.T, w *world) {
		keys := map[string]bool{} // the keys of a lock with a holder and a waiter
		_, hold := testlock.Lock(t, w.new("x"), bg)
		got := begin(t, w.rival("x"), bg)
		for _, wire := range w.wires {
			for _, key := range wire.Keys() {
				keys[key] = true
			}
		}
		testlock.Unlock(t, hold)
		testlock.Unlock(t, granted(t, got))
		for key := range keys {
			for _, wire := range w.wires {
				wire.FlushAll()
				testlock.Must(t, wire.Set(key, "precious"))
			}
			_, hold, err := w.new("x").Lock(bg, rlock.WaitAtMost(time.Second))
			if err == nil {
				testlock.Unlock(t, hold)
			} else if name, _, _ := strings.Cut(key, "}"); !strings.Contains(err.Error(), "WRONGTYPE") ||
				!strings.Contains(err.Error(), name+"}") {
				t.Errorf("%s: %v", key, err)
			}
			_, _ = w.new("x").Force(bg)
			for _, wire := range w.wires {
				if v, err := wire.Get(key); v != "precious" {
					t.Errorf("%s was overwritten: %q, %v", key, v, err)
				}
			}
		}
	}},
}
