package contain_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/contain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAPanicIsLoggedAndContained(t *testing.T) {
	for want, f := range map[string]func(){
		"":                                     func() {},
		`level=ERROR msg="x panicked" panic=1`: func() { panic(1) },
		"contain_test.go":                      func() { panic(1) }, // the stack is logged
	} {
		var out bytes.Buffer
		ran := false
		contain.Run(slog.New(slog.NewTextHandler(&out, nil)), "x", func() { ran = true; f() })
		if got := out.String(); !ran || !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%q logged as %s", want, got)
		}
	}
}

// unable is a handler that panics instead of logging.
type unable struct{ slog.Handler }

func (unable) Handle(context.Context, slog.Record) error { panic("logger") }

func TestALoggerMayBeWhatPanics(t *testing.T) {
	contain.Run(slog.New(unable{slog.Default().Handler()}), "x", func() { panic("f") })
}
