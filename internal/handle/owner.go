package handle

import (
	"context"
	"slices"
	"sync"
)

// An Owner is a context below which code finds the holds that other code below it took, as if it had their
// contexts.
type Owner struct {
	context.Context

	mu    sync.Mutex // guards holds; a leaf
	holds []Holding  // neither unlocked nor forgotten, the latest last
}

type ownerKey struct{}

// OwnerOf is the owner that ctx descends from; nil if there is none.
func OwnerOf(ctx context.Context) *Owner {
	o, _ := ctx.Value(ownerKey{}).(*Owner)
	return o
}

// WithOwner makes an owner below ctx.
func WithOwner(ctx context.Context) context.Context { return &Owner{Context: ctx} }

// As has o note the holds that are taken below the returned context, whatever owner ctx has; none does if o
// is nil.
func As(ctx context.Context, o *Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, o)
}

// Value finds the latest of its holds that has the key. One that was lost stays until it is unlocked, so that
// no code below takes the lock afresh that has not noticed the loss.
func (o *Owner) Value(key any) any {
	if key == (ownerKey{}) {
		return o
	}
	o.mu.Lock()
	holds := slices.Clone(o.holds)
	o.mu.Unlock()
	for _, of := range slices.Backward(holds) { // Find may take other mutexes
		if found := of.Find(key); found != nil {
			return found
		}
	}
	return o.Context.Value(key)
}

func (o *Owner) String() string { return "lockline.WithOwner" }

func (o *Owner) add(of Holding) {
	if o != nil {
		o.mu.Lock()
		o.holds = append(o.holds, of)
		o.mu.Unlock()
	}
}

func (o *Owner) remove(of Holding) {
	if o != nil {
		o.mu.Lock()
		o.holds = slices.DeleteFunc(o.holds, func(other Holding) bool { return other == of })
		o.mu.Unlock()
	}
}
