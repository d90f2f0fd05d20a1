// Package history has processes use locks and semaphores while servers, the network and the
// processes themselves fail, records what they saw, and judges whether these may show that.
//
// All processes run on one machine and stamp what they see with its wall clock, as
// the only one that they share; a run during which that clock was set proves nothing, and says so.
package history
