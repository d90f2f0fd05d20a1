package main

import (
	"bytes"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testredis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAHolderThatHasLostItsLockCannotWrite(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	got, err := run(t.Context(), "redis://"+testredis.Embedded(t).Addr(), &out)
	if err != nil {
		t.Fatal(err)
	}
	if got.fast != nil || !errors.Is(got.frozen, errFenced) || got.balance != 70 {
		t.Errorf("%+v, want a balance of 70 and one fenced off", got)
	}
	const said = "second holder withdraws 30: done\n" +
		"first holder withdraws 50: refused, fenced off: the row was written under a later lock\n" +
		"balance: 70\n"
	if out.String() != said {
		t.Errorf("it said\n%swant\n%s", &out, said)
	}
}
