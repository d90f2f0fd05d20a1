package multilock_test

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/multilock"
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
	return hold.Token()
}

// remembered is the latest token that the servers' clocks have passed when the first of them forgets the lock's tokens.
func (r *redServers) remembered(t testing.TB) int64 {
	t.Helper()
	least := time.Hour
	for _, c := range r.direct {
		left, err := c.PTTL(bg, redMemory).Result()
		testlock.Must(t, err)
		least = min(least, left)
	}
	return micro(least)
}

// A client that may publish, and knows all that is not secret, such as the grant's name, does not move the tokens. The servers
// would forget a token that is hours ahead of their clocks before these have passed it, and smaller ones would follow.
func TestAForgedMessageMakesNoTokenOfARedLockFarFromTheClock(t *testing.T) {
	r := startServers(t, 3)
	var heralds []*redis.Client
	for _, s := range r.servers {
		heralds = append(heralds, testlock.User(t, s, "herald", "resetchannels", "&*", "+publish"))
	}
	one, two := multilock.NewRedLock("x", r.client(t)...), multilock.NewRedLock("x", r.client(t)...)
	last := follows(t, one, 0)
	r.settle(t, one)
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
			for range 5 { // for some to come while it sleeps
				for i, h := range heralds {
					testlock.Eventually(t, "it waits", func() bool { return r.direct[i].PubSubNumSub(bg, redKey).Val()[redKey] == 1 })
					testlock.Must(t, h.Publish(bg, redKey, cmp.Or(grant, r.direct[i].HGet(bg, redKey, "t").Val())+" "+used).Err())
				}
				select {
				case <-got:
					t.Fatalf("%q: two hold it", used)
				case <-time.After(5 * time.Millisecond):
				}
			}
			testlock.Unlock(t, held)
			hold := testlock.Granted(t, got)
			if most := r.remembered(t); hold.Token() <= last || hold.Token() > most {
				t.Fatalf("%q: token %d after %d, and those above %d are forgotten too soon", used, hold.Token(), last, most)
			}
			last = hold.Token()
			testlock.Unlock(t, hold)
		}
		for range 3 {
			last = follows(t, one, last)
			last = follows(t, two, last)
		}
		last = follows(t, multilock.NewRedLock("x", r.client(t)...), last) // it has heard nothing
	}
}

func TestARedLockGoesOnWithoutAServerThatHasOddValues(t *testing.T) {
	r := startServers(t, 3)
	var scribes []*redis.Client
	for _, s := range r.servers {
		scribes = append(scribes, testlock.User(t, s, "scribe", "~*", "+@write"))
	}
	for _, value := range []string{"", "zzz", "-5", "inf", "1e400", "9007199254740993", "9223372036854775807", fmt.Sprint(micro(2 * day)), fmt.Sprint(micro(18 * time.Hour))} {
		log := new(logged)
		m := patient(t, r.client(t, rlock.WithLogger(slog.New(slog.NewTextHandler(log, nil)))))
		for _, c := range r.direct {
			testlock.Must(t, c.FlushAll(bg).Err())
		}
		last := follows(t, m, 0)
		r.settle(t, m)
		testlock.Must(t, scribes[0].HSet(bg, redMemory, "t", value).Err())
		for range 5 {
			last = follows(t, m, last)
		}
		r.free(t)
		testlock.Eventually(t, "logged", func() bool { // the others may have decided all votes before
			last = follows(t, m, last)
			return log.count("no vote") > 0
		})
		r.free(t)
		if log.count("no vote") != 1 || log.count(r.servers[0].Addr) != 1 || log.count(redMemory) != 1 {
			t.Errorf("%q: logged %q", value, log.b.String())
		}
		if got := r.direct[0].HGet(bg, redMemory, "t").Val(); got != value {
			t.Errorf("%q was overwritten with %q", value, got)
		}

		testlock.Must(t, scribes[1].HSet(bg, redMemory, "t", value).Err())
		before := r.direct[2].Info(bg, "commandstats").Val()
		_, _, err := m.Lock(bg)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", redMemory)) || !strings.Contains(err.Error(), "delete that key") ||
			!strings.Contains(err.Error(), r.servers[0].Addr) && !strings.Contains(err.Error(), r.servers[1].Addr) {
			t.Errorf("%q: %v", value, err)
		}
		if n := evals(r.direct[2].Info(bg, "commandstats").Val()) - evals(before); n > 3 { // a vote, its release, and one more
			t.Errorf("%q: asked %d times", value, n)
		}
		r.free(t)
		if st, err := m.Inspect(bg); err != nil || st.Held || st.Token > micro(day) {
			t.Errorf("%q: %+v, %v", value, st, err)
		}
		testlock.Must(t, r.direct[0].Del(bg, redMemory).Err())
		testlock.Must(t, r.direct[1].Del(bg, redMemory).Err())
		follows(t, m, last)
		r.settle(t, m)
	}
}

// evals is how many scripts INFO commandstats tells of.
func evals(stats string) (n int) {
	for line := range strings.Lines(stats) {
		var calls int
		if name, rest, ok := strings.Cut(line, ":calls="); ok && strings.HasPrefix(name, "cmdstat_eval") {
			_, _ = fmt.Sscanf(rest, "%d", &calls)
			n += calls
		}
	}
	return n
}

func TestOneClockThatIsFarOffDoesNotStopARedLock(t *testing.T) {
	for _, off := range []time.Duration{3 * day, -3 * day, 10 * time.Hour, -10 * time.Hour} {
		var clients []*redis.Client
		for i := range 3 {
			mini := testredis.Embedded(t)
			if i == 1 {
				mini.SetTime(time.Now().Add(off))
			}
			c := testlock.Client(t, mini.Addr())
			clients = append(clients, c)
		}
		one, two := multilock.NewRedLock("x", sessions(t, clients)...), multilock.NewRedLock("x", sessions(t, clients)...)
		last := int64(0)
		for range 5 {
			last = follows(t, one, last)
			last = follows(t, two, last)
		}
	}
}
