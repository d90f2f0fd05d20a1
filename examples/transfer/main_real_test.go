package main

import (
	"io"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testredis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNoMoneyIsMadeOrLost(t *testing.T) {
	t.Parallel()
	banks, shops := testredis.Embedded(t), testredis.Embedded(t)
	total, err := run(t.Context(), "redis://"+banks.Addr(), "redis://"+shops.Addr(), io.Discard)
	if err != nil || total != 2*accounts*opening {
		t.Errorf("%d in all, %v", total, err)
	}
}
