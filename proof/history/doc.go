// Package history has processes use locks and semaphores while servers, the network and the
// processes themselves fail. It records what the processes saw, and judges whether locks and
// semaphores may show that.
//
// All processes run on one machine and stamp what they see with its wall clock, the only
// one that they share. A run during which that clock was set proves nothing, and says so.
package history
