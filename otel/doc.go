// Package otellock makes OpenTelemetry metrics and traces of what happens to the
// locks of a session:
//
//	observer, err := otellock.NewObserver(otellock.WithPattern(patternOf))
//	...
//	session, err := rlock.NewSession(rdb, rlock.WithObserver(observer))
//
// # Metrics
//
// All have the attributes lockline.lock.kind (reentrant, fair, redlock, rwlock, semaphore,
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
// The hand-overs say in lockline.lock.in_memory whether the lock went from one goroutine
// of a session to the next without a request.
//
// The histograms and the failures say in error.type what went wrong, if anything:
// locked, timeout, canceled, lost, closed, or _OTHER.
//
// The counters are at 0 from the first event of a kind and pattern on (the failures those
// with timeout and _OTHER), so that Prometheus sees the first loss as an increase.
//
// # Traces
//
// Each Lock and TryLock is a span "lock PATTERN" below that of its context, with an
// event "waiting" at the moment when it found the lock taken. What runs under the lock
// is not its child: it has the caller's span.
//
// dashboard.json, in this module, shows the metrics in Grafana, from Prometheus. alerts.yaml has
// alerts on them for Prometheus.
package otellock
