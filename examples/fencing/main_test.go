package main

import (
	"errors"
	"io"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testredis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAHolderThatHasLostItsLockCannotWrite(t *testing.T) {
	got, err := run(t.Context(), "redis://"+testredis.Embedded(t).Addr(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got.fast != nil || !errors.Is(got.frozen, errFenced) || got.balance != 70 {
		t.Errorf("%+v, want a balance of 70 and one fenced off", got)
	}
}
