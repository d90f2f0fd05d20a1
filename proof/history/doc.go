// Package history runs processes that use locks and latches while servers, the network and the processes
// themselves fail. It records the time and the result of each call, and judges whether correct locks can
// return these results.
//
// All processes run on one machine and take each time from its wall clock, because their monotonic clocks
// have different origins. If the wall clock is set during a run, the run proves nothing, and ends with an
// error.
package history
