package otellock

import "sync"

// most is the largest number of kinds and patterns that are remembered. It limits memory if a program has a
// pattern for each name. By default, the SDK also limits an instrument to 2000 time series.
const most = 2000

// seen has the kinds and patterns of which there was an event.
type seen struct {
	mu  sync.RWMutex // guards all, which changes rarely
	all map[[2]string]struct{}
}

// first reports whether kind and pattern are new.
func (s *seen) first(kind, pattern string) bool {
	k := [2]string{kind, pattern}
	s.mu.RLock()
	_, known := s.all[k]
	full := len(s.all) >= most
	s.mu.RUnlock()
	if known || full {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known = s.all[k]; known || len(s.all) >= most {
		return false
	}
	if s.all == nil {
		s.all = map[[2]string]struct{}{}
	}
	s.all[k] = struct{}{}
	return true
}
