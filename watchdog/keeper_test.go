package watchdog

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errRefused = errors.New("refused")

const (
	interval = 10 * time.Second
	term     = 30 * time.Second // the lease that a renewal grants
)

// A sent is one call of Renew, at a time since the fake keeper was made.
type sent struct {
	at     time.Duration
	server any
	batch  []*Lease
}

// An end is one call of Lost.
type end struct {
	l              *Lease
	at             time.Duration
	deadlinePassed bool
}

// fake is a Keeper that records all calls. Unless a test changes renew, it renews all leases at once.
type fake struct {
	start  time.Time
	server func(*Lease) any
	renew  func(ctx context.Context, server any, batch []*Lease) []Result
	onLost func(*Lease)

	mu     sync.Mutex // guards the fields below
	sent   []sent
	lost   []end
	failed []error
}

func newFake() *fake {
	return &fake{
		start:  time.Now(),
		server: func(*Lease) any { return "a" },
		renew: func(_ context.Context, _ any, batch []*Lease) []Result {
			return all(batch, kept())
		},
		onLost: func(*Lease) {},
	}
}

func (f *fake) Server(l *Lease) any { return f.server(l) }

func (f *fake) Renew(ctx context.Context, server any, batch []*Lease) []Result {
	f.mu.Lock()
	f.sent = append(f.sent, sent{time.Since(f.start), server, batch})
	renew := f.renew
	f.mu.Unlock()
	return renew(ctx, server, batch)
}

// answer replaces renew, also while leases are kept.
func (f *fake) answer(renew func(ctx context.Context, server any, batch []*Lease) []Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renew = renew
}

func (f *fake) Lost(l *Lease, deadlinePassed bool) {
	f.mu.Lock()
	f.lost = append(f.lost, end{l, time.Since(f.start), deadlinePassed})
	f.mu.Unlock()
	f.onLost(l)
}

func (f *fake) Failed(_ *Lease, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = append(f.failed, err)
}

// calls returns when renewals of l were sent.
func (f *fake) calls(l *Lease) (at []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sent {
		for _, b := range s.batch {
			if b == l {
				at = append(at, s.at)
			}
		}
	}
	return at
}

func (f *fake) ends() []end {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]end(nil), f.lost...)
}

func (f *fake) flights() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sent)
}

func (f *fake) failures() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.failed)
}

// Len returns the number of leases that are kept.
func (w *Watchdog) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.leases)
}

// kept returns the Result of a renewal that succeeded just now.
func kept() Result { return Result{Deadline: time.Now().Add(term)} }

func all(batch []*Lease, r Result) []Result {
	results := make([]Result, len(batch))
	for i := range results {
		results[i] = r
	}
	return results
}

func in(d time.Duration) time.Time { return time.Now().Add(d) }

func wantTimes(t *testing.T, what string, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: got %v, want %v", what, got, want)
		}
	}
}

func wantEnds(t *testing.T, f *fake, want ...end) {
	t.Helper()
	got := f.ends()
	if len(got) != len(want) {
		t.Fatalf("Lost was called with %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("Lost was called with %v, want %v", got, want)
		}
	}
}

// lostAt returns when l was lost; -1 if it was not.
func (f *fake) lostAt(l *Lease) time.Duration {
	for _, e := range f.ends() {
		if e.l == l {
			return e.at
		}
	}
	return -1
}
