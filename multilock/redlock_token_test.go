package multilock_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// day is the longest time by which a stored token may be ahead of the clock of its server.
const day = 24 * time.Hour

func micro(d time.Duration) int64 { return time.Now().Add(d).UnixMicro() }

// follows locks and unlocks m, and returns the token of this hold. The token must be above last, and at most
// a day ahead of the clock.
func follows(t *testing.T, m *multilock.RedLock, last int64) int64 {
	t.Helper()
	hold := testlock.Take(t, m)
	if hold.Token() <= last || hold.Token() > micro(day) {
		t.Fatalf("token %d after %d", hold.Token(), last)
	}
	testlock.Unlock(t, hold)
	synctest.Wait()
	return hold.Token()
}

// Each majority shares a server with the last majority, but not always the server with the fastest clock.
func TestTokensGrowWhateverMinorityFails(t *testing.T) {
	for name, c := range map[string]struct {
		fail, heal func(*testlock.Wire)
		apart      time.Duration // difference between the clocks of neighboring servers
	}{
		"unreachable": {func(w *testlock.Wire) { w.Net.Refuse(true) },
			func(w *testlock.Wire) { w.Net.Refuse(false) }, time.Hour},
		"frozen": {func(w *testlock.Wire) { w.Net.Freeze() },
			func(w *testlock.Wire) { w.Net.Thaw() }, time.Hour},
		"forgetting": {(*testlock.Wire).Kill, (*testlock.Wire).Restart, 0},
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 5, func(t *testing.T, r servers) {
				all := []*multilock.RedLock{r.redLock(t), r.redLock(t)}
				last := int64(0)
				for round := range 25 {
					for i, w := range r {
						if c.apart > 0 {
							w.SetTime(time.Now().Add(time.Duration(i) * c.apart))
						}
					}
					bad := []*testlock.Wire{r[round%5], r[(round+1+round/5%4)%5]}
					for _, w := range bad {
						c.fail(w)
					}
					last = follows(t, all[round%2], last)
					for _, w := range bad {
						c.heal(w)
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// Two of three servers grant different tokens. The hold has the higher token, which the other server must
// store, because the next majority may share only that server. The second server remembers the token, so it
// is not sent again.
func TestABareMajorityStoresTheHigherToken(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		r[2].Net.Refuse(true)
		ahead := micro(time.Hour)
		remembers(r[0], ahead)
		time.Sleep(time.Second) // until the session knows that the server fails
		r.reset()
		hold := testlock.Take(t, m)
		if hold.Token() <= ahead || r.store(hold.Token()) != 2 {
			t.Errorf("token %d above %d is stored by %d", hold.Token(), ahead, r.store(hold.Token()))
		}
		testlock.Unlock(t, hold)
		if n := r.store(hold.Token()); n != 2 {
			t.Errorf("after Unlock it is stored by %d", n)
		}
		for range 5 {
			follows(t, m, hold.Token())
		}
		if n := r.count("renew"); n != 1 {
			t.Errorf("tokens were raised %d times", n)
		}
		r[0].Net.Refuse(true)
		r[2].Net.Refuse(false)
		time.Sleep(time.Second)
		follows(t, m, hold.Token())
	})
}

// A grant of a server that cannot store the token does not count. So there is no hold without a majority that
// has stored the token.
func TestABareMajorityThatDoesNotStoreTheTokenIsNone(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		r[2].Net.Refuse(true)
		remembers(r[0], micro(time.Hour))
		r[1].Net.OnRequest(holds("renew"))
		if _, _, err := m.TryLock(bg); err == nil ||
			!strings.Contains(err.Error(), "no majority has stored the fencing token") {
			t.Errorf("TryLock: %v", err)
		}
		if n := r.held(); n != 0 {
			t.Errorf("held by %d", n)
		}
		hold := testlock.Take(t, m) // the release has stored the token, too
		if n := r.store(hold.Token()); n != 2 {
			t.Errorf("token %d is stored by %d", hold.Token(), n)
		}
		testlock.Unlock(t, hold)
	})
}

// The token that a server grants when it joins a hold may be lower than the token of the hold. It must store
// the token of the hold then.
func TestATokenOutlivesARollingRestartOfTheServersThatStoredIt(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.redLock(t)
		for _, w := range r[:2] { // higher tokens than the clock of the last server gives
			remembers(w, micro(time.Hour))
		}
		_, hold := testlock.Lock(t, m, bg)
		for i, w := range r {
			w.Restart()
			time.Sleep(time.Minute)
			if n := r.store(hold.Token()); !r.unanimous() || n < 2 {
				t.Fatalf("server %d is back, the token is stored by %d", i, n)
			}
		}
		testlock.Unlock(t, hold)
		follows(t, r.redLock(t), hold.Token())
	})
}

// A process holds the lock many times, on two of three servers. At the end, both servers must have stored the
// last token, or count it as used, however the last hold ends.
func TestTokensOfAProcessWithABareMajorityAreBelowTheNextHolders(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, r servers, hold *rlock.Hold, all []*rlock.Session){
		"unlocked": func(t *testing.T, _ servers, hold *rlock.Hold, _ []*rlock.Session) {
			testlock.Unlock(t, hold)
		},
		"forced": func(t *testing.T, r servers, _ *rlock.Hold, _ []*rlock.Session) {
			testlock.ForceUnlock(t, r.redLock(t))
		},
		"closed": func(t *testing.T, r servers, _ *rlock.Hold, all []*rlock.Session) {
			testlock.Must(t, all[1].Close())
			if n := r.held(); n != 0 {
				t.Errorf("held by %d after Close", n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 3, func(t *testing.T, r servers) {
				all := r.process(t)
				m := testlock.RedLock("x", all...)
				r[2].Net.Refuse(true)
				remembers(r[0], micro(time.Hour))
				_, hold := testlock.Lock(t, m, bg)
				for i := range 20 {
					next := testlock.Go(bg, m)
					synctest.Wait()
					testlock.Unlock(t, hold)
					after := testlock.Granted(t, next)
					testlock.WantAfter(t, after, hold.Token())
					if hold = after; i == 10 { // the third server joins
						r[2].Net.Refuse(false)
						time.Sleep(time.Minute)
					}
				}
				end(t, r, hold, all)
				r[0].Net.Refuse(true)
				time.Sleep(time.Second)
				follows(t, r.redLock(t), hold.Token())
			})
		})
	}
}

// An attacker may publish messages, and knows everything that is not secret. It must not be able to change
// the tokens. Proves: messages
func TestAForgedMessageMakesNoTokenOfARedLockFarFromTheClock(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		one, two := r.redLock(t), r.redLock(t)
		last := follows(t, one, 0)
		for _, token := range []string{
			"9223372036854775806", "9223372036854775807", "1e400", "inf", "", "9007199254740991", "-1",
			fmt.Sprint(micro(2 * day)),
			fmt.Sprint(micro(11 * time.Hour)), fmt.Sprint(micro(time.Minute)),
		} {
			held := testlock.Take(t, one)
			got := testlock.Go(bg, two)
			time.Sleep(time.Second)
			for _, w := range r {
				waiting, err := w.ZMembers(redKey + ":q")
				testlock.Must(t, err)
				for _, channel := range w.PubSubChannels("*") {
					for _, nonce := range []string{"", " nonce"} {
						w.Publish(channel, fmt.Sprintf("%s %s %d 30000%s",
							waiting[0], token, micro(0), nonce))
					}
				}
			}
			if time.Sleep(5 * time.Millisecond); len(got) > 0 {
				t.Fatalf("%q: two hold it", token)
			}
			testlock.Unlock(t, held)
			hold := testlock.Granted(t, got)
			if hold.Token() <= last || hold.Token() > micro(0) {
				t.Fatalf("%q: token %d after %d", token, hold.Token(), last)
			}
			testlock.Unlock(t, hold)
			last = follows(t, r.redLock(t), hold.Token()) // a new process, which got no forged message
		}
	})
}

// Proves: values, RedLock
func TestARedLockGoesOnWithoutAServerThatHasOddValues(t *testing.T) {
	for _, value := range []string{
		"", "zzz", "-5", "inf", "1e400", "9007199254740993", "9223372036854775807", "+48h",
	} {
		withServers(t, 3, func(t *testing.T, r servers) {
			if ahead, err := time.ParseDuration(value); err == nil && value[0] == '+' {
				value = fmt.Sprint(micro(ahead))
			}
			log := new(testlock.Log)
			m := r.redLock(t, rlock.WithLogger(log.Logger()))
			last := follows(t, m, 0)
			r[0].HSet(redKey, "token", value)
			for range 5 {
				last = follows(t, m, last)
			}
			if log.Count("no vote") != 1 || log.Count(r[0].Net.Addr()) != 1 {
				t.Errorf("%q: logged %q", value, log)
			}
			r[1].HSet(redKey, "token", value)
			_, _, err := m.Lock(bg, rlock.WaitAtMost(10*time.Second))
			if err == nil || !strings.Contains(err.Error(), r[0].Net.Addr()) &&
				!strings.Contains(err.Error(), r[1].Net.Addr()) {
				t.Errorf("%q: %v", value, err)
			}
			if st, err := m.Inspect(bg); err == nil && st.Held {
				t.Errorf("%q: %+v", value, st)
			}
			r[0].Del(redKey)
			r[1].Del(redKey)
			time.Sleep(time.Second) // until the clocks are above the last token
			follows(t, m, last)
			if n := r.held(); n != 0 {
				t.Errorf("%q: held by %d", value, n)
			}
		})
	}
}

// A server on which a key of the lock has another type has no vote, and the key is not changed.
func TestARedLockGoesOnWithoutAServerThatHasAKeyOfAnotherType(t *testing.T) {
	for _, key := range []string{redKey, redKey + ":q", redKey + ":w"} {
		withServers(t, 3, func(t *testing.T, r servers) {
			testlock.Must(t, r[0].Set(key, "precious"))
			one, two := r.redLock(t), r.redLock(t)
			hold := testlock.Take(t, one)
			got := testlock.Go(bg, two)
			time.Sleep(time.Second)
			testlock.Unlock(t, hold)
			next := testlock.Granted(t, got)
			testlock.WantAfter(t, next, hold.Token())
			testlock.Unlock(t, next)
			if value, err := r[0].Get(key); value != "precious" || len(r.holders()[1]+r.holders()[2]) > 0 {
				t.Errorf("%s: %q, %v, held by %q", key, value, err, r.holders())
			}
		})
	}
}

// Proves: values, RedLock
func TestOneClockThatIsFarOffDoesNotStopARedLock(t *testing.T) {
	for _, off := range []time.Duration{3 * day, -3 * day, 10 * time.Hour, -10 * time.Hour} {
		withServers(t, 3, func(t *testing.T, r servers) {
			r[1].SetTime(time.Now().Add(off))
			one, two := r.redLock(t), r.redLock(t)
			last := int64(0)
			for range 5 {
				last = follows(t, one, last)
				last = follows(t, two, last)
			}
			hold := testlock.Take(t, one)
			_, _, err := two.Lock(bg, rlock.WaitAtMost(time.Second))
			testlock.WantError(t, "Lock", err, rlock.ErrLocked)
			testlock.Unlock(t, hold)
		})
	}
}

// holds returns a rule that delays all requests to run this script for x, until the test releases them.
func holds(script string) func(*faultproxy.Request) faultproxy.Action {
	return func(q *faultproxy.Request) faultproxy.Action {
		if testlock.Script(q.Script()) == script && q.Args[3] == redKey {
			return faultproxy.Hold
		}
		return faultproxy.Pass
	}
}

// A token that a majority has stored is safe only while no server forgets it. So the other servers store it,
// too, with the next renewal or with the release.
func TestAServerWithALowerTokenLearnsOfTheHolds(t *testing.T) {
	for name, wait := range map[string]time.Duration{"released": 0, "renewed": renewal + time.Second} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 3, func(t *testing.T, r servers) {
				for _, w := range r[1:] {
					remembers(w, micro(time.Hour))
				}
				hold := testlock.Take(t, r.redLock(t))
				if n := r.store(hold.Token()); n != 2 {
					t.Fatalf("the token is stored by %d of 3 servers", n)
				}
				if time.Sleep(wait); wait == 0 {
					testlock.Unlock(t, hold)
				}
				if n := r.store(hold.Token()); n != 3 {
					t.Errorf("it is stored by %d of 3 servers then", n)
				}
				_ = hold.Unlock(bg)
			})
		})
	}
}

// A fixed lease is not renewed, so only the release of the lost part can store the token of the hold there.
func TestAServerWithALowerTokenLearnsOfTheTokenOfALostHold(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		for _, w := range r[1:] {
			remembers(w, micro(time.Hour))
		}
		_, hold := testlock.Lock(t, r.redLock(t), bg, rlock.WithLease(6*time.Second))
		if n := r.store(hold.Token()); n != 2 {
			t.Fatalf("the token is stored by %d of 3 servers", n)
		}
		time.Sleep(time.Until(hold.Deadline()) + time.Millisecond) // in Redis, the lease ends a little later
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		if n := r.store(hold.Token()); n != 3 {
			t.Errorf("it is stored by %d of 3 servers then", n)
		}
	})
}
