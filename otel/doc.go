// Package otellock makes OpenTelemetry metrics and traces of the locks of a session:
//
//	observer, err := otellock.NewObserver(otellock.WithPattern(patternOf))
//	...
//	session, err := rlock.NewSession(rdb, rlock.WithObserver(observer))
//
// # Metrics
//
// All metrics have the attributes lockline.lock.kind (reentrant, fair, redlock, rwlock, semaphore or
// redisson) and lockline.lock.pattern, see [WithPattern].
//
//	lockline.lock.wait.duration     histogram, s   from Lock to its end, granted or not; without re-entries
//	lockline.lock.hold.duration     histogram, s   from the grant to release or loss
//	lockline.lock.waiters           up-down        acquisitions that wait now
//	lockline.lock.holds             up-down        locks that are held now
//	lockline.lock.hold.age          gauge, s       age of the oldest hold of this process, 0 if none is held
//	lockline.lock.wait.age          gauge, s       age of the oldest present wait, 0 if there is none
//	lockline.lock.handovers         counter        locks granted after a wait, or from memory
//	lockline.lock.losses            counter        locks that were lost while they were held
//	lockline.lock.renewal.failures  counter        renewals that failed, to be tried again
//
// A [LogHandler] counts log lines in lockline.log.warnings, by lockline.log.message.
//
// The hand-overs have the attribute lockline.lock.in_memory. It is true if the lock went from one goroutine
// of a session to the next without a request.
//
// The histograms and the renewal failures have the attribute error.type if something went wrong. It is
// locked, timeout, canceled, lost, closed or _OTHER.
//
// The counters are at 0 from the first event of a kind and pattern on, so that Prometheus sees the first loss
// as an increase. Of the counters of renewal failures, only the counters with timeout and _OTHER are at 0
// from then on.
//
// # Traces
//
// Each Lock and TryLock is a span "lock PATTERN" below the span of its context. The span has an event
// "waiting" at the time at which the call found the lock taken. Work under the lock is not a child of this
// span, but of the caller's span.
//
// In this module, dashboard.json shows the metrics in Grafana with Prometheus as the source, and alerts.yaml
// has alerts for Prometheus.
package otellock
