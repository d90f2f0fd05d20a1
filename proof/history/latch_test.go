package history_test

import (
	"math/rand/v2"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/lockline/lockline/proof/history"
)

// latchModel models a latch by its count. A Wait takes effect at an instant at which the count is 0.
var latchModel = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, _ any) (bool, any) {
		n, op := state.(int), input.(history.Op)
		switch op.Kind {
		case history.Set:
			return n == 0, op.Permits
		case history.Count:
			return true, max(0, n-1)
		}
		return n == 0, n
	},
}

func set(n int, call, done int64) history.Op {
	return history.Op{Lock: "x", Kind: history.Set, Permits: n, Call: call, Return: done}
}

func count(call, done int64) history.Op {
	return history.Op{Lock: "x", Kind: history.Count, Call: call, Return: done}
}

func wait(call, done int64) history.Op {
	return history.Op{Lock: "x", Kind: history.Wait, Call: call, Return: done}
}

func TestTheModelRefusesWhatALatchCouldNotHaveShown(t *testing.T) {
	for name, c := range map[string]struct {
		ops      []history.Op
		accepted bool
	}{
		"no run": {[]history.Op{wait(1, 2)}, true},
		"a run": {[]history.Op{set(2, 1, 2), count(3, 4), wait(3, 9), count(5, 6)},
			true},
		"the last count is under way": {[]history.Op{set(2, 1, 2), count(3, 4), wait(3, 6), count(5, 7)},
			true},
		"before the run is known": {[]history.Op{set(2, 1, 5), wait(3, 4)}, true},
		"a wait for nothing": {[]history.Op{set(2, 1, 2), wait(3, 4), count(5, 6), count(5, 6)},
			false},
		"before the last count": {[]history.Op{set(2, 1, 2), count(3, 4), wait(3, 5), count(6, 7)},
			false},
		"a count of the run before": {[]history.Op{set(1, 1, 2), count(3, 4), wait(3, 5), set(1, 6, 7),
			wait(8, 9)}, false},
		"two runs": {[]history.Op{set(1, 1, 2), count(3, 4), set(1, 5, 6), count(7, 8),
			wait(1, 9)}, true},
		"it outlives the next run": {[]history.Op{set(1, 1, 2), wait(3, 8), count(4, 5), set(1, 6, 7),
			count(9, 10)}, true},
		"a run in a run":   {[]history.Op{set(2, 1, 2), count(3, 4), set(2, 5, 6)}, false},
		"two runs at once": {[]history.Op{set(1, 1, 3), set(1, 2, 4)}, false},
		"two latches":      {[]history.Op{set(1, 1, 2), of("y", wait(3, 4)), count(5, 6)}, true},
	} {
		model := latchModel
		model.Partition = history.Model(false, false).Partition
		refuses(t, name, c.accepted, model, history.JudgeLatch(c.ops), c.ops)
	}
}

// The judge accepts each history that the model accepts, and rejects at least half of the others.
func TestTheJudgeOfLatchesRefusesOnlyWhatTheModelRefuses(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	right, wrong, noticed := 0, 0, 0
	for range 6000 {
		var ops []history.Op
		broken := rnd.IntN(2) == 0
		n, now := 0, int64(10)
		for range 4 + rnd.IntN(8) {
			now += 1 + rnd.Int64N(8)
			call, done := now-rnd.Int64N(3), now+rnd.Int64N(3)
			lies := broken && rnd.IntN(2) == 0
			switch kind := rnd.IntN(4); {
			case kind == 0 && (n == 0 || lies):
				n = 1 + rnd.IntN(3)
				ops = append(ops, set(n, call, done))
			case kind == 1 && (n == 0 || lies):
				ops = append(ops, wait(call-rnd.Int64N(3), done))
			default:
				n = max(0, n-1)
				ops = append(ops, count(call, done))
			}
		}
		accepted := porcupine.CheckOperations(latchModel, history.Operations(ops))
		v := history.JudgeLatch(ops)
		switch {
		case accepted && v != (history.Verdict{}):
			t.Fatalf("the model accepts, and the judge says %+v, of\n%+v", v, ops)
		case accepted:
			right++
		default:
			wrong++
			if v != (history.Verdict{}) {
				noticed++
			}
		}
	}
	t.Logf("%d are right; the judge notices %d of %d that are not", right, noticed, wrong)
	if right < 1000 || wrong < 1000 || noticed < wrong/2 {
		t.Error("this shows too little")
	}
}

// An operation on a lock whose name belongs to no kind counts as Strange.
func TestWhatIsOfNoKindIsWrong(t *testing.T) {
	if v := history.JudgeAll([]history.Op{acquire("a", 1, 1, 2)}); v.Strange == 0 {
		t.Errorf("%+v", v)
	}
}
