package election

import (
	"context"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// record is the value of a leadership in Redis. It is sent again with each renewal of the lock, in case Redis
// lost it. It must not refer to a Hold, which its user may forget.
type record struct {
	// What follows does not change once the watchdog has the lease.
	e            *Election
	owner, token string
	ended        <-chan struct{} // closed with the leadership's context

	lease watchdog.Lease // guarded by the watchdog

	mu     sync.Mutex // guards what follows; a leaf
	number int64      // of the value, which counts on from 1
	value  string
}

// set makes value the newest one and returns its number.
func (r *record) set(value string) (number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	r.value = value
	return r.number
}

func (r *record) argv(number int64, value string) []any {
	return []any{r.owner, r.token, number, value, r.e.channel(), r.e.session.Args.Keep}
}

// store sends a value and blocks for the answer, not longer than ctx.
func (r *record) store(ctx context.Context, number int64, value string) error {
	reply, _, err := r.e.do(ctx, proclaimScript, r.argv(number, value)...)
	switch {
	case err != nil:
		return err
	case reply != "K":
		return r.e.fail(failure.ErrLost)
	}
	return nil
}

// retract deletes the value in Redis once the lock is released. If that fails, observers look when the lease
// is over.
func (r *record) retract(ctx context.Context) {
	_, _, _ = r.e.do(ctx, retractScript, r.owner, r.token, r.e.channel())
}

// keep has the value renewed until drop, or until the lock is lost.
func (r *record) keep(ended <-chan struct{}) {
	r.ended = ended
	r.lease.Owner = r
	r.watch()
}

func (r *record) watch() {
	lease := r.e.session.Lease
	r.e.session.Watchdog.Add(&r.lease, time.Now().Add(protocol.Valid(lease)), lease/3)
}

func (r *record) drop() { r.e.session.Watchdog.Remove(&r.lease) }

// A record is a session.Lessee.

// LeaseKey is that of the lock.
func (r *record) LeaseKey() string { return r.e.keys().Lock() }

// Renewal stores the newest value again.
func (r *record) Renewal() (*wire.Script, wire.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return proclaimScript, r.e.keys().RequestAlone(proclaimScript, r.argv(r.number, r.value)...)
}

// LeaseLost goes on if the lock may still be held: only the renewals of the value have failed.
func (r *record) LeaseLost(deadlinePassed bool) {
	if deadlinePassed && !wakeup.Closed(r.ended) {
		r.watch()
	}
}

// RenewalFailed leaves it to the lock's own renewal to report that.
func (r *record) RenewalFailed(error) {}
