//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
)

func TestWatchEndsWhenNobodyReadsItsLines(t *testing.T) {
	m := theirRedis(t)
	reads, writes, err := os.Pipe()
	testlock.Must(t, err)
	defer writes.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var errOut bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"lockline", "watch", "--redis", "redis://" + m.Addr(), "--interval", "2ms",
			"--kind", "f", "x"}, writes, &errOut)
	}()
	line := make([]byte, 100)
	n, err := reads.Read(line)
	if !strings.Contains(string(line[:n]), "free") {
		t.Errorf("%q, %v", line[:n], err)
	}
	testlock.Must(t, reads.Close()) // as grep -q does; watch has no more changes to write
	select {
	case c := <-code:
		if c != exitUnread || errOut.String() != "" {
			t.Errorf("exit code %d: %s", c, &errOut)
		}
	case <-time.After(testlock.Patience):
		t.Error("it has not ended")
		cancel()
		<-code
	}
}
