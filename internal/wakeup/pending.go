package wakeup

// Pending counts what is under way, for goroutines that wait until some of it is over. The caller's mutex
// guards it.
type Pending struct {
	n    int
	over chan struct{} // closed when one is over; nil if no goroutine waits for that
}

// Count is how many are under way.
func (p *Pending) Count() int { return p.n }

// Begin counts one more.
func (p *Pending) Begin() { p.n++ }

// End counts one less.
func (p *Pending) End() {
	p.n--
	if p.over != nil {
		close(p.over)
		p.over = nil
	}
}

// Over is closed when the next one is over; nil if nothing is under way.
func (p *Pending) Over() <-chan struct{} {
	if p.n == 0 {
		return nil
	}
	if p.over == nil {
		p.over = make(chan struct{})
	}
	return p.over
}
