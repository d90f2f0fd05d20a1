package session

import (
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/protocol"
)

func closes(s *Session) bool {
	select {
	case <-s.Closing():
		return true
	default:
		return false
	}
}

func TestAnAttemptIsNeverRepeated(t *testing.T) {
	s, other := open(t), open(t)
	const goroutines, each = 4, 10_000
	attempts := make([][]string, goroutines)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range attempts {
		wg.Go(func() {
			<-start
			for range each {
				attempts[i] = append(attempts[i], s.Attempt())
			}
		})
	}
	close(start)
	wg.Wait()
	seen := map[string]bool{other.Attempt(): true}
	for _, some := range attempts {
		for _, a := range some {
			if id, _, _ := strings.Cut(a, ":"); id != s.ID() || seen[a] {
				t.Fatalf("attempt %q of session %q, repeated: %v", a, s.ID(), seen[a])
			}
			seen[a] = true
		}
	}
}

func TestASessionSaysWhereItIsAndItsLabel(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, label := range []string{"", "a label"} {
		cfg := sound
		cfg.Label = label
		s := openAs(t, cfg)
		defer end(t, s)
		want := strings.TrimSpace(protocol.HolderInfo(os.Getpid(), host, label))
		if s.About("") != want {
			t.Errorf("%q, want %q", s.About(""), want)
		}
	}
}

func TestNothingBeginsOnceShutdownHasBegun(t *testing.T) {
	s := open(t)
	if !s.Begin() {
		t.Error("nothing can begin")
	}
	s.End()
	if closes(s) {
		t.Error("waits end too early")
	}
	end(t, s)
	if s.Begin() {
		t.Error("something began")
	}
	if !closes(s) {
		t.Error("waits do not end")
	}
}

func TestTheSubscriptionsEndWithTheSession(t *testing.T) {
	s := server{}.open(t)
	before := goleak.IgnoreCurrent()
	s.Hub.Subscribe("x")
	end(t, s)
	goleak.VerifyNone(t, before)
}

func TestShutdownWaitsForAllThatIsCounted(t *testing.T) {
	work := map[string]func(s *Session){
		"Begin": func(s *Session) {
			s.Begin()
			time.AfterFunc(time.Second, s.End)
		},
		"Go": func(s *Session) {
			s.Begin()
			s.Go(func() { time.Sleep(time.Second) })
			s.End()
		},
	}
	for name, begin := range work {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openAs(t, sound)
				begin(s)
				if end(t, s); time.Since(s.born) != time.Second {
					t.Errorf("it ended after %v", time.Since(s.born))
				}
			})
		})
	}
}
