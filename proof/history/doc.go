// Package history has processes use locks and semaphores while servers, the network and the
// processes themselves fail. It records each call's time and result, and judges whether correct locks and
// semaphores can return these results.
//
// All processes run on one machine and take each time from its wall clock, as their monotonic clocks have
// different origins. A run during which that clock was set proves nothing, and ends with an error.
package history
