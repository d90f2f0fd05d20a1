// Package otellock makes OpenTelemetry metrics and traces of the locks of a session. Give an [Observer] to
// the session:
//
//	observer, err := otellock.NewObserver(otellock.WithPattern(patternOf))
//	...
//	session, err := rlock.NewSession(rdb, rlock.WithObserver(observer))
//
// # Metrics
//
// An Observer makes the metrics below. All of them have the attributes lockline.lock.kind (reentrant, fair,
// redlock, rwlock, semaphore or redisson) and lockline.lock.pattern, see [WithPattern].
//
//	lockline.lock.wait.duration     histogram, s   time that Lock or TryLock took, granted or not
//	lockline.lock.hold.duration     histogram, s   time from the grant of a lock to its release or loss
//	lockline.lock.waiters           up-down        calls that wait for a lock now
//	lockline.lock.holds             up-down        locks that are held now
//	lockline.lock.hold.age          gauge, s       age of the oldest present hold, 0 if none is held
//	lockline.lock.wait.age          gauge, s       age of the oldest present wait, 0 if there is none
//	lockline.lock.handovers         counter        locks that were granted after a wait, or passed on
//	lockline.lock.losses            counter        locks that were lost while they were held
//	lockline.lock.renewal.failures  counter        failed renewals, which the session tries again
//
// A nested Lock that gets the lock does not count in any of them.
//
// A [LogHandler] makes one more metric, lockline.log.warnings. It counts the warnings and errors that
// Lockline logs. Its only attribute, lockline.log.message, is the first part of the message.
//
// The counter of hand-overs has the attribute lockline.lock.in_memory. This attribute is true if
// the lock went from one goroutine of a session to the next without a request.
//
// The histograms and the counter of failed renewals have the attribute error.type if there was an error. The
// values of error.type are locked, timeout, canceled, lost, closed and _OTHER.
//
// After the first event of a kind and pattern, the counters of this kind and pattern have the value 0. So
// Prometheus sees the first loss as an increase. The counter of failed renewals then has the value 0 only for
// the error types timeout and _OTHER. After 2000 pairs of a kind and a pattern, counters of further pairs
// begin with their first increment.
//
// # Traces
//
// Each Lock and TryLock makes a span "lock PATTERN" below the span of its context. If the call has waited for
// the lock, the span has an event "waiting" at the time at which the wait began. Spans of work under the lock
// are not children of this span, but of the caller's span.
//
// # Dashboard and alerts
//
// The module contains a dashboard for Grafana, dashboard.json, which reads these metrics from Prometheus. The
// file alerts.yaml has alerts for Prometheus.
package otellock
