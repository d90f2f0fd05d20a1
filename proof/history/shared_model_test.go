package history_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/lockline/lockline/proof/history"
)

// read returns op as an operation of a reader.
func read(op history.Op) history.Op {
	op.Read = true
	return op
}

// some returns op as an acquisition of n permits.
func some(n int, op history.Op) history.Op {
	op.Permits = n
	return op
}

// refuses fails the test unless both the model and the judge accept a history. If accepted is false, both
// must refuse the history.
func refuses(
	t *testing.T, name string, accepted bool, model porcupine.Model, v history.Verdict, ops []history.Op,
) {
	t.Helper()
	if got := porcupine.CheckOperations(model, history.Operations(ops)); got != accepted {
		t.Errorf("%s: the model says %v, want %v", name, got, accepted)
	}
	if got := v == (history.Verdict{}); got != accepted {
		t.Errorf("%s: the judge says %+v, want %v", name, v, accepted)
	}
}

func TestTheModelRefusesWhatAReadWriteLockCouldNotHaveShown(t *testing.T) {
	for name, c := range map[string]struct {
		ops      []history.Op
		accepted bool
	}{
		"readers together": {[]history.Op{read(acquire("a", 2, 1, 2)),
			read(acquire("b", 1, 3, 4)), read(release("a", 2, 5)), read(release("b", 1, 6))}, true},
		"readers of one token": {[]history.Op{read(acquire("a", 1, 1, 2)),
			read(acquire("b", 1, 3, 4)), read(release("a", 1, 5)), read(release("b", 1, 6))}, true},
		"one after another": {[]history.Op{acquire("a", 1, 1, 2), release("a", 1, 3),
			read(acquire("b", 2, 1, 4)), read(release("b", 2, 5)), acquire("c", 3, 1, 6), release("c", 3, 7)},
			true},
		"two writers": {[]history.Op{acquire("a", 1, 1, 2), acquire("b", 2, 3, 4),
			release("a", 1, 5), release("b", 2, 6)}, false},
		"a reader beside a writer": {[]history.Op{acquire("a", 1, 1, 2),
			read(acquire("b", 2, 3, 4)), release("a", 1, 5), read(release("b", 2, 6))}, false},
		"a writer beside a reader": {[]history.Op{read(acquire("a", 1, 1, 2)),
			acquire("b", 2, 3, 4), read(release("a", 1, 5)), release("b", 2, 6)}, false},
		"a writer beside one of two": {[]history.Op{read(acquire("a", 1, 1, 2)),
			read(acquire("b", 1, 3, 4)), read(release("a", 1, 5)), acquire("c", 2, 3, 6),
			read(release("b", 1, 7))}, false},
		"a writer beside a dead reader": {[]history.Op{read(acquire("a", 1, 1, 2)), lose("a", 1, 3),
			acquire("b", 2, 1, 9), release("b", 2, 10)}, true},
		"a writer whose token fell back": {[]history.Op{acquire("a", 2, 1, 2), release("a", 2, 3),
			acquire("b", 1, 4, 5), release("b", 1, 6)}, false},
		"a writer's token twice": {[]history.Op{acquire("a", 2, 1, 2), release("a", 2, 3),
			acquire("b", 2, 4, 5), release("b", 2, 6)}, false},
		"a writer not above a reader": {[]history.Op{read(acquire("a", 2, 1, 2)),
			read(release("a", 2, 3)), acquire("b", 2, 4, 5), release("b", 2, 6)}, false},
		"a writer above the last one only": {[]history.Op{read(acquire("a", 3, 1, 2)),
			read(acquire("b", 1, 1, 2)), read(release("a", 3, 3)), read(release("b", 1, 3)),
			acquire("c", 2, 4, 5)}, false},
		"a reader not above a writer": {[]history.Op{acquire("a", 2, 1, 2), release("a", 2, 3),
			read(acquire("b", 1, 4, 5)), read(release("b", 1, 6))}, false},
		"a reader with a writer's token": {[]history.Op{acquire("a", 2, 1, 2), release("a", 2, 3),
			read(acquire("b", 2, 4, 5)), read(release("b", 2, 6))}, false},
		"reads twice": {[]history.Op{read(acquire("a", 1, 1, 2)),
			read(acquire("a", 1, 3, 4)), read(release("a", 1, 5)), read(release("a", 1, 6)),
			acquire("b", 2, 1, 7)}, true},
		"reads twice, left once": {[]history.Op{read(acquire("a", 1, 1, 2)),
			read(acquire("a", 1, 3, 4)), read(release("a", 1, 5)), acquire("b", 2, 6, 7),
			read(release("a", 1, 8))}, false},
		"reads twice, lost at once": {[]history.Op{read(acquire("a", 1, 1, 2)),
			read(acquire("a", 1, 3, 4)), lose("a", 1, 5), acquire("b", 2, 6, 7)}, true},
		"writes twice": {[]history.Op{acquire("a", 1, 1, 2), acquire("a", 1, 3, 4),
			release("a", 1, 5), release("a", 1, 6), read(acquire("b", 2, 1, 7))}, true},
		"writes twice, left once": {[]history.Op{acquire("a", 1, 1, 2), acquire("a", 1, 3, 4),
			release("a", 1, 5), read(acquire("b", 2, 6, 7)), release("a", 1, 8)}, false},
		"a nested token of its own": {[]history.Op{acquire("a", 1, 1, 2),
			read(acquire("a", 2, 3, 4)), read(release("a", 2, 5)), release("a", 1, 6)}, false},
		"a reader became a writer": {[]history.Op{read(acquire("a", 1, 1, 2)),
			acquire("a", 1, 3, 4), release("a", 1, 5), read(release("a", 1, 6))}, false},
		"went on as a reader": {[]history.Op{acquire("a", 1, 1, 2),
			read(acquire("a", 1, 3, 4)), release("a", 1, 5), read(acquire("b", 2, 3, 6)),
			read(release("a", 1, 7)), acquire("c", 3, 1, 9), read(release("b", 2, 8))}, true},
		"shares what it went on with": {[]history.Op{acquire("a", 1, 1, 2),
			read(acquire("a", 1, 3, 4)), release("a", 1, 5), read(acquire("b", 1, 3, 6)),
			read(release("a", 1, 7)), read(release("b", 1, 8))}, true},
		"shares it too early": {[]history.Op{acquire("a", 1, 1, 2),
			read(acquire("a", 1, 3, 4)), read(acquire("b", 1, 3, 5)), release("a", 1, 6),
			read(release("a", 1, 7)), read(release("b", 1, 8))}, false},
		"a writer beside who went on": {[]history.Op{acquire("a", 1, 1, 2),
			read(acquire("a", 1, 3, 4)), release("a", 1, 5), acquire("b", 2, 3, 6), read(release("a", 1, 7)),
			release("b", 2, 8)}, false},
		"a reader beside who has not yet": {[]history.Op{acquire("a", 1, 1, 2),
			read(acquire("a", 1, 3, 4)), read(release("a", 1, 5)), read(acquire("b", 2, 3, 6)),
			release("a", 1, 7), read(release("b", 2, 8))}, false},
		"writes again after it went on": {[]history.Op{acquire("a", 1, 1, 2),
			read(acquire("a", 1, 3, 4)), release("a", 1, 5), acquire("a", 1, 6, 7), release("a", 1, 8),
			read(release("a", 1, 9))}, false},
		"releases to read what it writes": {[]history.Op{acquire("a", 1, 1, 2), read(release("a", 1, 3)),
			release("a", 1, 4)}, false},
		"releases to write what it reads": {[]history.Op{read(acquire("a", 1, 1, 2)), release("a", 1, 3),
			read(release("a", 1, 4))}, false},
		"another one releases": {[]history.Op{acquire("a", 1, 1, 2), release("b", 1, 3),
			acquire("b", 2, 4, 5)}, false},
		"an unlock too many": {[]history.Op{acquire("a", 1, 1, 2), release("a", 1, 3),
			release("a", 1, 4)}, false},
		"two locks have nothing in common": {[]history.Op{acquire("a", 1, 1, 2),
			of("y", acquire("b", 1, 1, 2)), release("a", 1, 3), of("y", release("b", 1, 3))}, true},
		"a loss that nobody else can notice": {[]history.Op{acquire("a", 1, 1, 2), lose("a", 1, 3),
			read(acquire("b", 2, 4, 5))}, true},
	} {
		refuses(t, name, c.accepted, history.ReadWriteModel(),
			history.JudgeReadWrite(history.Holds(c.ops)), c.ops)
	}
}

// of returns op as an operation on this lock.
func of(lock string, op history.Op) history.Op {
	op.Lock = lock
	return op
}

func TestTheModelRefusesWhatASemaphoreCouldNotHaveShown(t *testing.T) {
	for name, c := range map[string]struct {
		ops      []history.Op
		accepted bool
	}{
		"all at once": {[]history.Op{some(3, acquire("a", 1, 1, 2)), release("a", 1, 3)}, true},
		"three together": {[]history.Op{some(2, acquire("a", 2, 1, 2)),
			some(1, acquire("b", 1, 3, 4)), release("a", 2, 5), release("b", 1, 6)}, true},
		"four together": {[]history.Op{some(2, acquire("a", 1, 1, 2)),
			some(2, acquire("b", 2, 3, 4)), release("a", 1, 5), release("b", 2, 6)}, false},
		"more than there are": {[]history.Op{some(4, acquire("a", 1, 1, 2)), release("a", 1, 3)},
			false},
		"none": {[]history.Op{acquire("a", 1, 1, 2), release("a", 1, 3)}, false},
		"one after another": {[]history.Op{some(2, acquire("a", 1, 1, 2)), release("a", 1, 3),
			some(2, acquire("b", 2, 1, 4)), release("b", 2, 5)}, true},
		"a token goes on": {[]history.Op{some(2, acquire("a", 1, 1, 2)), release("a", 1, 3),
			some(2, acquire("b", 1, 1, 4)), release("b", 1, 5)}, true},
		"a token of two": {[]history.Op{some(1, acquire("a", 1, 1, 2)),
			some(1, acquire("b", 1, 3, 4)), release("a", 1, 5), release("b", 1, 6)}, false},
		"what was lost comes back": {[]history.Op{some(2, acquire("a", 1, 1, 2)), lose("a", 1, 3),
			some(3, acquire("b", 2, 1, 9)), release("b", 2, 10)}, true},
		"what was not lost yet": {[]history.Op{some(2, acquire("a", 1, 1, 2)),
			some(3, acquire("b", 2, 3, 4)), lose("a", 1, 5), release("b", 2, 6)}, false},
		"it enters twice": {[]history.Op{some(1, acquire("a", 1, 1, 2)),
			some(1, acquire("a", 1, 3, 4)), release("a", 1, 5), release("a", 1, 6)}, false},
		"a permit comes back twice": {[]history.Op{some(1, acquire("a", 1, 1, 2)), release("a", 1, 3),
			release("a", 1, 4)}, false},
		"another one releases": {[]history.Op{some(1, acquire("a", 1, 1, 2)), release("b", 1, 3)},
			false},
		"lost before it was known": {[]history.Op{some(3, acquire("a", 1, 1, 9)), lose("a", 1, 3),
			some(3, acquire("b", 2, 4, 5)), release("b", 2, 6)}, true},
		"no room for what was lost": {[]history.Op{some(3, acquire("b", 2, 1, 2)),
			some(1, acquire("a", 1, 3, 9)), lose("a", 1, 4), release("b", 2, 6)}, false},
		"two locks": {[]history.Op{some(3, acquire("a", 1, 1, 2)), of("y", some(3, acquire("b", 1, 1, 2))),
			release("a", 1, 3), of("y", release("b", 1, 3))}, true},
	} {
		refuses(t, name, c.accepted, history.SemaphoreModel(3),
			history.JudgeSemaphore(history.Holds(c.ops), 3), c.ops)
	}
}

// agree fails the test unless a model and a judge agree about random histories. Some of the histories are
// correct, and some are not.
func agree(
	t *testing.T, model porcupine.Model, judge func([]history.Hold) history.Verdict,
	random func(*rand.Rand) []history.Op,
) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(7, 8))
	right, total := 0, 6000
	for range total {
		ops := random(rnd)
		want := porcupine.CheckOperations(model, history.Operations(ops))
		v := judge(history.Holds(ops))
		if got := v == (history.Verdict{}); got != want {
			t.Fatalf("the model says %v, the judge %+v, of\n%+v", want, v, ops)
		}
		if want {
			right++
		}
	}
	t.Logf("%d of %d are right", right, total)
	if right < total/5 || right > total*4/5 {
		t.Errorf("%d of %d histories are right: this shows nothing", right, total)
	}
}

func TestTheJudgeOfReadWriteLocksAgreesWithTheModel(t *testing.T) {
	agree(t, history.ReadWriteModel(), history.JudgeReadWrite, func(rnd *rand.Rand) (ops []history.Op) {
		broken := rnd.IntN(2) == 0
		wrong := func(one int) bool { return broken && rnd.IntN(one) == 0 }
		toRead, toWrite, token := int64(20), int64(20), int64(100) // times from which the lock is free
		shared := int64(0)                                         // token that readers may share
		for i := range 2 + rnd.IntN(6) {
			owner, reads := fmt.Sprint(i), rnd.IntN(2) == 0
			free := toWrite
			if reads {
				free = toRead
			}
			if wrong(4) {
				free -= rnd.Int64N(8)
			}
			call := max(1, free+rnd.Int64N(20)-15)
			granted := max(call, free) + rnd.Int64N(3)
			done := granted + rnd.Int64N(3)
			end := granted + rnd.Int64N(10)
			token++
			own, last := token, reads
			switch {
			case reads && shared != 0 && rnd.IntN(2) == 0:
				own = shared
			case wrong(5):
				own -= rnd.Int64N(3)
			}
			op := func(kind history.Kind, read bool, from, to int64) {
				ops = append(ops, history.Op{Lock: "x", Owner: owner, Kind: kind, Read: read, Token: own,
					Call: from, Return: to})
			}
			op(history.Acquire, reads, call, done)
			switch nested := done + 1 + rnd.Int64N(3); { // the calls of an owner do not overlap
			case nested+2 < end && rnd.IntN(2) == 0 && !reads: // downgrades to a reader
				op(history.Acquire, true, nested, nested)
				changed := nested + 1 + rnd.Int64N(end-nested-2)
				op(history.Release, false, changed, changed)
				last, toRead, shared = true, changed, own
				toWrite = max(toWrite, end)
			case nested+2 < end && rnd.IntN(3) == 0:
				inner := reads && !wrong(6) || rnd.IntN(2) == 0
				op(history.Acquire, inner, nested, nested)
				op(history.Release, inner, end-1, end-1)
				fallthrough
			default:
				toWrite = max(toWrite, end)
				if !reads {
					toRead, shared = end, 0
				}
			}
			kind := history.Release
			if rnd.IntN(5) == 0 {
				kind = history.Lose
			}
			op(kind, last, end, end)
		}
		return ops
	})
}

func TestTheJudgeOfSemaphoresAgreesWithTheModel(t *testing.T) {
	agree(t, history.SemaphoreModel(3), judgeSemaphore, func(rnd *rand.Rand) (ops []history.Op) {
		free := []int64{20, 20, 20} // times from which the permits are free
		token := int64(100)
		broken := rnd.IntN(2) == 0
		for i := range 2 + rnd.IntN(7) {
			n := 1 + rnd.IntN(3)
			slices.Sort(free)
			call := max(1, free[n-1]+rnd.Int64N(20)-15)
			granted := max(call, free[n-1]) + rnd.Int64N(3)
			if broken && rnd.IntN(3) == 0 {
				granted = call + rnd.Int64N(3)
			}
			done := granted + rnd.Int64N(4)
			end := granted + rnd.Int64N(10)
			if token++; broken && rnd.IntN(5) == 0 {
				token--
			}
			owner := fmt.Sprint(i)
			ops = append(ops, some(n, acquire(owner, token, call, done)))
			if rnd.IntN(4) == 0 {
				ops = append(ops, lose(owner, token, end))
			} else {
				ops = append(ops, release(owner, token, end))
			}
			for j := range n {
				free[j] = max(free[j], end)
			}
		}
		return ops
	})
}
