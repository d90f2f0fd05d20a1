package session

import (
	"crypto/rand"
	"io"
	"testing"

	"github.com/google/uuid"
)

// zeros is a source of random numbers that are always the same.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A program may want ids that repeat, for example in a simulation. But the ids of sessions must never repeat.
func TestSessionsDifferWhateverRandomNumbersTheProgramHasChosen(t *testing.T) {
	uuid.SetRand(zeros{})
	defer uuid.SetRand(nil)
	defer func(before io.Reader) { rand.Reader = before }(rand.Reader)
	rand.Reader = zeros{}
	if first := uuid.New(); first != uuid.New() {
		t.Fatal("ids of package uuid do not repeat here")
	}
	if one, other := NewID(), NewID(); one == other {
		t.Errorf("two sessions are %s", one)
	}
}
