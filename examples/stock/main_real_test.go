package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testredis"
)

func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestEveryLockSellsAllAndNothingTwice(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	sales, err := run(t.Context(), "redis://"+testredis.Embedded(t).Addr(), &out)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &out)
	if len(sales) != len(ways) || strings.Count(out.String(), "\n") != 1+len(ways) {
		t.Fatalf("%d sales: %s", len(sales), &out)
	}
	for _, s := range sales {
		if s.sold+s.refused+s.failed != requests || s.failed > 0 {
			t.Errorf("%s: %d sold, %d refused, %d failed of %d", s.way, s.sold, s.refused, s.failed, requests)
		}
		if s.way != "none" && (s.sold != items*units || s.left != 0) {
			t.Errorf("%s: %d sold and %d left of %d", s.way, s.sold, s.left, items*units)
		}
		if s.way == "none" && s.oversold() <= 0 {
			t.Errorf("without a lock nothing was sold twice: this shows nothing")
		}
	}
	whole, item, segment := sales[1], sales[2], sales[3]
	if whole.atOnce != 1 || item.atOnce <= 1 || item.atOnce > items || segment.atOnce <= items ||
		segment.atOnce > items*segments {
		t.Errorf("payments at once: %d with one lock, %d with %d and %d with %d",
			whole.atOnce, item.atOnce, items, segment.atOnce, items*segments)
	}
	if item.took >= whole.took || segment.took >= whole.took {
		t.Errorf("one lock took %v, one for each item %v, one for each segment %v: "+
			"finer locks must sell faster", whole.took, item.took, segment.took)
	}
}
