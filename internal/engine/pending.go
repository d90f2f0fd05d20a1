package engine

// pending counts what is under way, for goroutines that wait until some of it is over. The caller's mutex
// guards it.
type pending struct {
	n    int
	over chan struct{} // closed when one is over; nil if no goroutine waits for that
}

// Count is how many are under way.
func (p *pending) Count() int { return p.n }

// Begin counts one more.
func (p *pending) Begin() { p.n++ }

// End counts one less.
func (p *pending) End() {
	p.n--
	if p.over != nil {
		close(p.over)
		p.over = nil
	}
}

// Over is closed when the next one is over; nil if nothing is under way.
func (p *pending) Over() <-chan struct{} {
	if p.n == 0 {
		return nil
	}
	if p.over == nil {
		p.over = make(chan struct{})
	}
	return p.over
}
