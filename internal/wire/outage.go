package wire

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/contain"
)

// In an outage, a waiting call keeps waiting until its deadline or, without a deadline, for as long as the
// lease of its session. It returns no error before that. So the Link logs an outage while the outage lasts,
// because users should soon see a cause such as a wrong address or a missing TLSConfig.

const (
	// outageLogAfter is the length of an outage after which it is logged.
	outageLogAfter = 2 * time.Second
	// outageLogPause is the least time between a line about one outage and a line about the next outage.
	outageLogPause = time.Minute
)

// outageListeners notifies sessions that a server may have lost data, for example because its connections
// broke or it is not the master any more. In each outage, the sessions are notified when a request first
// fails with such an error, and again when a request has succeeded. The zero value is ready to use.
type outageListeners struct {
	mu   sync.Mutex // guards the fields below; no other mutex is locked while mu is held
	last int        // id of the latest listener
	all  map[int]func(since time.Time)
}

// OnOutage registers f until remove is called. f is called with the time at which an outage was noticed. This
// is the time of an error, and not the time at which the request was sent, because replies in between may be
// older than the outage. f must return at once. It is called with no mutex held, from goroutines of requests
// and of subscriptions.
func (l *Link) OnOutage(f func(since time.Time)) (remove func()) {
	o := &l.outages
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	id := o.last
	if o.all == nil {
		o.all = map[int]func(time.Time){}
	}
	o.all[id] = f
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.all, id)
	}
}

// Reconnected notifies the sessions of an outage that a subscription has noticed.
func (l *Link) Reconnected() { l.outages.notify(time.Now()) }

func (o *outageListeners) notify(since time.Time) {
	o.mu.Lock()
	all := slices.Collect(maps.Values(o.all))
	o.mu.Unlock()
	for _, f := range all {
		f(since)
	}
}

// mayHaveLost reports whether a request failed in a way that fits a server which restarted, or was replaced
// by another one. The timeout of a read or a write is no such failure, because the server may only be slow.
func mayHaveLost(err error) bool {
	if reply := redis.Error(nil); errors.As(err, &reply) {
		msg := replyText(reply)
		for _, p := range [...]string{"READONLY", "MASTERDOWN", "LOADING", "CLUSTERDOWN", "MOVED "} {
			if strings.HasPrefix(msg, p) {
				return true
			}
		}
		return false
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	op := (*net.OpError)(nil)
	return errors.As(err, &op) && (op.Op == "dial" || !op.Timeout())
}

// An outageLog remembers which lines about a server's outage were logged.
type outageLog struct {
	lines  atomic.Int32 // 0: no line; 1: a line about an unanswered request; 2: a line with an error
	lastAt atomic.Int64 // time of the last line, counted from epoch; 0 means there was none
	since  atomic.Int64 // time at which the outage of the last line began, counted from epoch
}

// due reports whether the caller must log a line about an outage, and then counts the line as logged. since
// is the time at which the outage began, counted from epoch. n is 1 for a request that is still in flight,
// and 2 for a failed request, whose line says more. So a line with 2 may follow a line with 1 in the same
// outage.
func (o *outageLog) due(n int32, since time.Duration) bool {
	logged, lastAt, now := o.lines.Load(), time.Duration(o.lastAt.Load()), time.Since(epoch)
	if logged >= n || logged == 0 && lastAt != 0 && now-lastAt < outageLogPause {
		return false
	}
	o.since.Store(int64(since))
	if !o.lines.CompareAndSwap(logged, n) {
		return false
	}
	o.lastAt.Store(int64(now))
	return true
}

// ended notes that the server has carried out a request, which ends an outage. If a line about the outage was
// logged, ended returns the length of the outage, and otherwise 0.
func (o *outageLog) ended() time.Duration {
	if o.lines.Load() == 0 || o.lines.Swap(0) == 0 {
		return 0
	}
	return time.Since(epoch) - time.Duration(o.since.Load())
}

// watchRequest logs a warning if, after outageLogAfter, a request is still in flight and its server is
// silent. The caller must call stop when the request has ended.
func (l *Link) watchRequest(s *server) (stop func() bool) {
	return time.AfterFunc(outageLogAfter, func() {
		since := time.Duration(s.since.Load())
		if s.answers.Load() && !s.isSilent() || !s.logged.due(1, since) {
			return
		}
		text := "a request is in flight without an answer" + l.SilenceHint()
		l.warnOutage("Redis does not answer", s, time.Since(epoch)-since, text, nil)
	}).Stop
}

// logFailure is called after a request has failed with err. It logs err if the server has carried out no
// request for at least outageLogAfter. Renewals and releases in the background have no caller that gets their
// error. So the error is logged even if sending the request again does not help, for example after a change
// of the password.
func (l *Link) logFailure(s *server, failing time.Time, err error) {
	lasted := time.Since(failing)
	if lasted < outageLogAfter || !concernsServer(err) || !s.logged.due(2, failing.Sub(epoch)) {
		return
	}
	msg, hint := "Redis does not answer", Hint(err)
	if errors.As(err, new(redis.Error)) {
		msg = "Redis refuses all requests"
	} else if hint == "" && hungUp(err) {
		hint = " (the server closes connections: is its maxclients reached?)"
	}
	l.warnOutage(msg, s, lasted, err.Error()+hint, err)
}

// concernsServer reports whether other requests to the server are likely to fail like this one. It returns
// false if the key or the caller is the cause. It also returns false for most errors after which Judge
// recommends no further request, such as the error of an invalid address. The first call returns these errors
// at once.
func concernsServer(err error) bool {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, errMisdirected), errors.As(err, new(*ValueError)):
		return false
	case errors.As(err, new(redis.Error)):
		return !strings.Contains(err.Error(), "WRONGTYPE")
	}
	return Judge(err).Transient || tlsRefused.MatchString(err.Error())
}

// logEnd logs that a server carries out requests again after an outage that was logged. lasted is the length
// of the outage.
func (l *Link) logEnd(s *server, lasted time.Duration) {
	contain.Run(l.options.Logger, "lockline: the logger", func() {
		l.options.Logger.Info("lockline: Redis answers again", "server", l.nameOf(s, nil),
			"after", lasted.Round(100*time.Millisecond))
	})
}

func (l *Link) warnOutage(msg string, s *server, lasted time.Duration, text string, err error) {
	contain.Run(l.options.Logger, "lockline: the logger", func() {
		l.options.Logger.Warn("lockline: "+msg, "server", l.nameOf(s, err),
			"for", lasted.Round(100*time.Millisecond), "error", text)
	})
}

// NameOf returns the address of the server that has a key, as in the log of an outage. It does not block if a
// request for the key was answered before.
func (l *Link) NameOf(key string) string {
	s, _ := l.server(l.options.Context, key)
	return l.nameOf(s, nil)
}

// nameOf returns the address of a server. If the address is not known, nameOf describes the server by the
// client. err is the error of a request, or nil. If the client finds its server by Sentinels, nameOf takes
// the address from err, if err contains it.
func (l *Link) nameOf(s *server, err error) string {
	if s.addr != "" {
		return s.addr
	}
	switch c := l.client.(type) {
	case *redis.Client:
		if addr := l.Addr(); addr != "" {
			return addr
		}
		if op := (*net.OpError)(nil); errors.As(err, &op) && op.Addr != nil {
			return op.Addr.String() + ", the master that the Sentinels name"
		}
		return "the master that the Sentinels name"
	case *redis.ClusterClient:
		return "the Cluster of " + strings.Join(c.Options().Addrs, ", ")
	}
	return "not known"
}
