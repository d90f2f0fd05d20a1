package rlock_test

import (
	"testing"
	"time"

	"github.com/lockline/lockline/rlock"
)

func TestSinceIsTheTimeOfTheToken(t *testing.T) {
	at := time.Date(2026, 11, 25, 10, 30, 0, 1000, time.UTC)
	if got := (rlock.Holder{Owner: "a:1", Token: at.UnixMicro()}).Since(); !got.Equal(at) {
		t.Errorf("since %v, want %v", got, at)
	}
	if got := (rlock.Holder{Token: at.UnixMicro()}).Since(); !got.IsZero() {
		t.Errorf("a free lock: since %v", got)
	}
	if got := (rlock.Holder{Owner: "a:1"}).Since(); !got.IsZero() {
		t.Errorf("a JVM's: since %v", got)
	}
}
