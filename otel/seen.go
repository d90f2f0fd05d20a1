package otellock

import "sync"

// most is the largest number of pairs of a kind and a pattern that seen remembers. It limits memory if a
// program has a pattern for each name. By default, the SDK also limits an instrument to 2000 time series.
const most = 2000

// seen remembers pairs of a kind and a pattern for which there was an event.
type seen struct {
	mu  sync.RWMutex // guards all, which changes rarely
	all map[[2]string]struct{}
}

// first remembers a pair of a kind and a pattern, and reports whether the pair is new. It returns false if
// seen already remembers `most` pairs.
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
