package contain_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/contain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatEndsItsGoroutineEndsNoOther(t *testing.T) {
	for want, f := range map[string]func(){
		"":                                     func() {},
		`level=ERROR msg="x panicked" panic=1`: func() { panic(1) },
		"contain_test.go":                      func() { panic(1) }, // in the stack
		`"x called runtime.Goexit"`:            runtime.Goexit,
	} {
		var out bytes.Buffer
		ran := false
		contain.Run(slog.New(slog.NewTextHandler(&out, nil)), "x", func() { ran = true; f() })
		if got := out.String(); !ran || !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%q logged as %s", want, got)
		}
	}
}

// unable ends the goroutine in its own way where it should log.
type unable struct {
	slog.Handler
	end func()
}

func (u unable) Handle(context.Context, slog.Record) error { u.end(); return nil }

func TestALoggerMayBeWhatFails(t *testing.T) {
	for _, end := range []func(){func() { panic("logger") }, runtime.Goexit} {
		for _, f := range []func(){func() { panic("f") }, runtime.Goexit} {
			contain.Run(slog.New(unable{slog.Default().Handler(), end}), "x", f)
		}
	}
}
