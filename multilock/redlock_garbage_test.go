package multilock_test

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// day is by how much a stored token may be ahead of a server's clock.
const day = 24 * time.Hour

func micro(d time.Duration) int64 { return time.Now().Add(d).UnixMicro() }

// follows locks, and unlocks a lock whose token must be above the last one, and near the clocks.
func follows(t *testing.T, m *rlock.Mutex, last int64) int64 {
	t.Helper()
	hold := testlock.Take(t, m)
	if hold.Token() <= last || hold.Token() > micro(day) {
		t.Errorf("token %d after %d", hold.Token(), last)
	}
	testlock.Unlock(t, hold)
	synctest.Wait()
	return hold.Token()
}

// remembered is the latest token that the servers' clocks have passed when the first of them forgets the lock's tokens.
func (r servers) remembered() int64 {
	least := time.Hour
	for _, w := range r {
		least = min(least, w.TTL(redMemory))
	}
	return micro(least)
}

// A client that may publish, and knows all that is not secret, such as the grant's name, does not move the tokens. The servers
// would forget a token that is hours ahead of their clocks before these have passed it, and smaller ones would follow.
func TestAForgedMessageMakesNoTokenOfARedLockFarFromTheClock(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		one, two := r.redLock(t), r.redLock(t)
		last := follows(t, one, 0)
		for _, used := range []string{
			"9223372036854775806", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e400", "inf", "", "9007199254740991",
			fmt.Sprint(micro(2 * day)), fmt.Sprint(micro(13 * time.Hour)), fmt.Sprint(micro(11 * time.Hour)),
			fmt.Sprint(micro(11*time.Hour), " "), fmt.Sprint(micro(11*time.Hour), " -"), fmt.Sprint(micro(11*time.Hour), " 1"),
			fmt.Sprint(micro(11*time.Hour), " AAAAAAAAAAAAAAAAAAAAAAAAAA"),
		} {
			for _, grant := range []string{"zzz", ""} { // another grant than is in its way, and that one
				held := testlock.Take(t, one)
				last = held.Token()
				got := testlock.Go(bg, two)
				for range 3 { // for some to come while it sleeps
					synctest.Wait()
					for _, w := range r {
						w.Publish(redKey, cmp.Or(grant, w.HGet(redKey, "t"))+" "+used)
					}
					if time.Sleep(5 * time.Millisecond); len(got) > 0 {
						t.Fatalf("%q: two hold it", used)
					}
				}
				testlock.Unlock(t, held)
				hold := testlock.Granted(t, got)
				synctest.Wait()
				if most := r.remembered(); hold.Token() <= last || hold.Token() > most {
					t.Fatalf("%q: token %d after %d, and those above %d are forgotten too soon", used, hold.Token(), last, most)
				}
				last = hold.Token()
				testlock.Unlock(t, hold)
			}
			last = follows(t, one, last)
			last = follows(t, two, last)
			last = follows(t, r.redLock(t), last) // it has heard nothing
		}
	})
}

func TestARedLockGoesOnWithoutAServerThatHasOddValues(t *testing.T) {
	for _, value := range []string{"", "zzz", "-5", "inf", "1e400", "9007199254740993", "9223372036854775807", "+48h", "+18h"} {
		withServers(t, 3, func(t *testing.T, r servers) {
			if ahead, err := time.ParseDuration(value); err == nil && value[0] == '+' {
				value = fmt.Sprint(micro(ahead))
			}
			log := new(logged)
			m := r.redLock(t, rlock.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
			last := follows(t, m, 0)
			r[0].HSet(redMemory, "t", value)
			for range 5 {
				last = follows(t, m, last)
			}
			if log.count("no vote") != 1 || log.count(r[0].Net.Addr()) != 1 || log.count(redMemory) != 1 {
				t.Errorf("%q: logged %q", value, log.b.String())
			}
			if got := r[0].HGet(redMemory, "t"); got != value {
				t.Errorf("%q was overwritten with %q", value, got)
			}

			r[1].HSet(redMemory, "t", value)
			r.reset()
			_, _, err := m.Lock(bg)
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", redMemory)) || !strings.Contains(err.Error(), "delete that key") ||
				!strings.Contains(err.Error(), r[0].Net.Addr()) && !strings.Contains(err.Error(), r[1].Net.Addr()) {
				t.Errorf("%q: %v", value, err)
			}
			if n := r.count(); n > 3*len(r) { // a vote, its release, and one more
				t.Errorf("%q: %d requests", value, n)
			}
			if st, err := m.Inspect(bg); err != nil || st.Held || st.Token > micro(day) {
				t.Errorf("%q: %+v, %v", value, st, err)
			}
			r[0].Del(redMemory)
			r[1].Del(redMemory)
			follows(t, m, last)
			if n := r.held(); n != 0 {
				t.Errorf("%q: held by %d", value, n)
			}
		})
	}
}

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
		})
	}
}
