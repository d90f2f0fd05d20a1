package broadcast

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/fake"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/pubsub"
)

// channel is a pubsub.Conn on which a test says what arrives.
type channel chan any

func (c channel) Subscribe(_ context.Context, names ...string) error {
	for _, name := range names {
		c <- &redis.Subscription{Kind: "subscribe", Channel: name}
	}
	return nil
}

func (c channel) Unsubscribe(context.Context, ...string) error { return nil }

func (c channel) Ping(context.Context, ...string) error { c <- &redis.Pong{}; return nil }

func (c channel) Receive(context.Context) (any, error) {
	if v, ok := <-c; ok {
		return v, nil
	}
	return nil, context.Canceled
}

func (c channel) Close() error { close(c); return nil }

// listen returns what news of x arrives by, and a function that publishes a release. In fake time.
func listen(t *testing.T) (news *wakeup.Listener, release func()) {
	c := make(channel, 100)
	hub := pubsub.NewHub(func(context.Context) pubsub.Conn { return c }, pubsub.Options{})
	t.Cleanup(hub.Close)
	news = wakeup.Listen("x", hub)
	synctest.Wait()
	news.Take() // that it is confirmed
	return news, func() { c <- &redis.Message{Channel: "x", Payload: "0"}; synctest.Wait() }
}

func TestOthersAreLetGoFirstUntilTheyHadTheirTurnOrSeemNotToWantIt(t *testing.T) {
	const tenth = restTime / 10
	for _, c := range []struct {
		what     string
		due      int
		try      bool
		before   int             // releases before it asks
		releases []time.Duration // after that
		until    time.Duration
		progress mutex.Progress
	}{
		{what: "nobody is due"},
		{what: "those that are do not come", due: 2, until: restTime},
		{what: "all come", due: 2, releases: []time.Duration{tenth, 9 * tenth}, until: 9 * tenth, progress: mutex.Contested},
		{what: "all come, each in its time", due: 2, releases: []time.Duration{9 * tenth, 15 * tenth}, until: 15 * tenth, progress: mutex.Contested},
		{what: "one of two comes", due: 2, releases: []time.Duration{5 * tenth}, until: 15 * tenth, progress: mutex.Contested},
		{what: "all came before", due: 2, before: 2},
		{what: "one came before", due: 2, before: 1, releases: []time.Duration{tenth}, until: tenth, progress: mutex.Contested},
		{what: "TryLock does not wait", due: 2, try: true},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				crowd := enter(t, newMutex(t, &fake.Store{}))
				news, release := listen(t)
				crowd.news, crowd.due = news, c.due
				for range c.before {
					release()
				}
				start := time.Now()
				for _, after := range c.releases {
					time.AfterFunc(after, release)
				}
				a := mutex.NewAcquisition(bg, &crowd.Lock, mutex.Config{})
				a.Try = c.try
				if err := crowd.letOthersFirst(a); err != nil {
					t.Error(err)
				}
				if until := time.Since(start); until != c.until || a.Progress() != c.progress {
					t.Errorf("let others go first for %v; it is %v", until, a.Progress())
				}
			})
		})
	}
}

func TestNobodyIsLetGoFirstOnceTheWaitIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crowd := enter(t, newMutex(t, &fake.Store{}))
		crowd.news, _ = listen(t)
		crowd.due = 2
		ctx, cancel := context.WithTimeout(bg, restTime/2)
		defer cancel()
		start := time.Now()
		err := crowd.letOthersFirst(mutex.NewAcquisition(ctx, &crowd.Lock, mutex.Config{}))
		if after := time.Since(start); !is(err, context.DeadlineExceeded) || after != restTime/2 {
			t.Errorf("%v after %v", err, after)
		}
	})
}

// A session that has had its turn lets those go first that were told of its release.
func TestWhoeverWasToldIsDueAfterATurnThatOthersWaitedFor(t *testing.T) {
	for _, c := range []struct {
		passedOn, contested bool
		told, due           int
	}{
		{told: 5},
		{passedOn: true, told: 5, due: 5},
		{passedOn: true, told: 0, due: 0},
		{contested: true, told: few, due: 0},
		{contested: true, told: few + 1, due: few + 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			st := &fake.Store{}
			st.OnRelease = func(*protocol.Release) wire.Outcome { return wire.Outcome{Reply: fmt.Sprint("R ", c.told)} }
			st.OnAsk = func(a *mutex.Acquisition) wire.Outcome {
				if c.contested {
					a.Advance(mutex.Contested)
				}
				return st.Granted()
			}
			m := newMutex(t, st)
			hold := take(t, m)
			crowd := mutex.EntryOf(hold).Lock().Waiting().(*crowd)
			crowd.due = 7 // of before
			if c.passedOn {
				next := make(chan *mutex.Hold)
				go func() { next <- take(t, m) }()
				synctest.Wait()
				unlock(t, hold)
				hold = <-next
			}
			unlock(t, hold)
			synctest.Wait()
			if crowd.due != c.due {
				t.Errorf("%+v: %d are due", c, crowd.due)
			}
			for _, after := range []time.Duration{0, restMemory + 1} {
				time.Sleep(after)
				known := c.due > 0 && after == 0
				l, err := m.Enter()
				if err != nil {
					t.Fatal(err)
				}
				if l.Waiting() == crowd != known {
					t.Errorf("%+v: after %v it is remembered: %v", c, after, !known)
				}
				l.Leave()
			}
		})
	}
}

func TestNewsEndARestBeforeTheLeaseOfTheHolderDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &fake.Store{}
		asked := 0
		st.OnAsk = func(*mutex.Acquisition) wire.Outcome {
			if asked++; asked > 1 {
				return st.Granted()
			}
			return wire.Outcome{Sent: time.Now(), Reply: "H 1 60000 s:1 77 me"}
		}
		m := newMutex(t, st)
		news, release := listen(t)
		enter(t, m).news = news
		start := time.Now()
		time.AfterFunc(time.Second, release)
		hold := take(t, m)
		if after := time.Since(start); after != time.Second {
			t.Errorf("after %v", after)
		}
		unlock(t, hold)
	})
}
