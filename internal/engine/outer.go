package engine

// Outer converts between rlock's types, which engine cannot import, and engine's. rlock sets it; package inner makes it type-safe.
var Outer struct {
	Session  func(session any) *Session
	Mutex    func(mutex any) *Mutex
	NewMutex func(Mutex) any
}
