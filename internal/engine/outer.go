package engine

// Outer is how to get in and out of rlock's types. rlock sets it; package inner gives it its types.
var Outer struct {
	Session  func(session any) *Session
	Mutex    func(mutex any) *Mutex
	NewMutex func(Mutex) any
}
