package handover

// State is what became of a tenure, or of a hold in it.
type State uint8

const (
	Held     State = iota
	Released       // by its last Unlock
	Lost           // its lease ran out, or Redis does not have it any more
	Closed         // given back by its session
)

func (s State) String() string { return [...]string{"held", "released", "lost", "closed"}[s] }

// Tenure is the local side of a grant: the entries under it, and the token of the goroutine whose turn, or
// term, it is. A grant reserves a block of tokens; each term takes the next one.
type Tenure struct {
	Token   int64 // of the present term
	Change  int64 // number of the last change of Entries: Redis ignores an earlier one that comes late
	Entries int32 // holds, and goroutines admitted to become one
	passes  int32 // terms before this one
	state   State
	entered bool // the present term has had a hold; else it may be over before
}

// Start begins the first term, with one entry and the block's first token.
func (t *Tenure) Start(first int64) { *t = Tenure{Token: first, Entries: 1} }

// State says whether it is held.
func (t *Tenure) State() State { return t.state }

// End ends a tenure that is held. False: it has ended already, and nothing changes.
func (t *Tenure) End(s State) bool {
	if t.state != Held {
		return false
	}
	t.state = s
	return true
}

// Enter adds an entry.
func (t *Tenure) Enter() {
	t.Entries++
	t.Change++
}

// Leave ends an entry; true if it was the last.
func (t *Tenure) Leave() bool {
	t.Entries--
	t.Change++
	return t.Entries == 0
}

// Replace adds the entry of a waiter that a leaving one has admitted.
func (t *Tenure) Replace() { t.Entries++ }

// Use notes that the present term has a hold.
func (t *Tenure) Use() { t.entered = true }

// Used reports whether it has had one.
func (t *Tenure) Used() bool { return t.entered }

// PassOn begins the next term, with one entry and the next token. The block must not be used up.
func (t *Tenure) PassOn() {
	t.Token++
	t.passes++
	t.Entries, t.entered = 1, false
}

// Raise makes token the present term's, if it is higher. It begins another block.
func (t *Tenure) Raise(token int64) { t.Token = max(t.Token, token) }

// PassedOn reports whether this is not the first term.
func (t *Tenure) PassedOn() bool { return t.passes > 0 }

// UsedUp reports whether no token is left for another term, of a block of so many.
func (t *Tenure) UsedUp(block int32) bool { return t.passes == block-1 }
