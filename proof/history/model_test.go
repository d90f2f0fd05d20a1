package history_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/lockline/lockline/proof/history"
)

func acquire(owner string, token, call, done int64) history.Op {
	return history.Op{Lock: "x", Owner: owner, Kind: history.Acquire, Token: token, Call: call, Return: done}
}

func release(owner string, token, at int64) history.Op {
	return history.Op{Lock: "x", Owner: owner, Kind: history.Release, Token: token, Call: at, Return: at}
}

func lose(owner string, token, at int64) history.Op {
	return history.Op{Lock: "x", Owner: owner, Kind: history.Lose, Token: token, Call: at, Return: at}
}

// models has the models that accept a history: m for a mutex, r for a reentrant mutex, f for a fenced mutex,
// and b for a mutex that is both reentrant and fenced.
func TestEachModelRefusesWhatItsMutexCouldNotHaveShown(t *testing.T) {
	for name, c := range map[string]struct {
		ops    []history.Op
		models string
	}{
		"one after another": {[]history.Op{acquire("a", 1, 0, 1), release("a", 1, 2),
			acquire("b", 2, 0, 3), release("b", 2, 4)}, "mrfb"},
		"two holders": {[]history.Op{acquire("a", 1, 0, 1), acquire("b", 2, 2, 3),
			release("a", 1, 4), release("b", 2, 5)}, ""},
		"a holder that was killed": {[]history.Op{acquire("a", 1, 0, 1), lose("a", 1, 2),
			acquire("b", 2, 0, 9), release("b", 2, 10)}, "mrfb"},
		"two holders, one is killed": {[]history.Op{acquire("a", 1, 0, 1), acquire("b", 2, 2, 3),
			lose("a", 1, 4), release("b", 2, 5)}, ""},
		"another one releases": {[]history.Op{acquire("a", 1, 0, 1), release("b", 1, 2),
			acquire("b", 2, 3, 4)}, ""},
		"an unlock too many": {[]history.Op{acquire("a", 1, 0, 1), release("a", 1, 2),
			release("a", 1, 3)}, ""},
		"entered twice": {[]history.Op{acquire("a", 1, 0, 1), acquire("a", 1, 2, 3),
			release("a", 1, 4), release("a", 1, 5)}, "rb"},
		"entered twice, left once": {[]history.Op{acquire("a", 1, 0, 1), acquire("a", 1, 2, 3),
			release("a", 1, 4), acquire("b", 2, 5, 6)}, ""},
		"entered twice, lost at once": {[]history.Op{acquire("a", 1, 0, 1), acquire("a", 1, 2, 3),
			lose("a", 1, 4), acquire("b", 2, 5, 6)}, "rb"},
		"a nested token of its own": {[]history.Op{acquire("a", 1, 0, 1), acquire("a", 2, 2, 3),
			release("a", 2, 4), release("a", 1, 5)}, "r"},
		"a token fell back": {[]history.Op{acquire("a", 2, 0, 1), release("a", 2, 2), acquire("b", 1, 3, 4),
			release("b", 1, 5)}, "mr"},
		"a token twice": {[]history.Op{acquire("a", 2, 0, 1), release("a", 2, 2), acquire("b", 2, 3, 4),
			release("b", 2, 5)}, "mr"},
	} {
		got := ""
		for i, letter := range "mrfb" {
			if porcupine.CheckOperations(history.Model(i&1 > 0, i&2 > 0), history.Operations(c.ops)) {
				got += string(letter)
			}
		}
		if got != c.models {
			t.Errorf("%s: accepted by %q, want %q", name, got, c.models)
		}
	}
}

// The judge, which is fast enough for millions of holds, agrees with the model on histories of a correct
// lock, of a lock that does not exclude others, and of a lock that grants a token twice.
func TestTheJudgeAgreesWithTheModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	right, total := 0, 3000
	for range total {
		var ops []history.Op
		free, token := int64(0), int64(100)
		broken := rnd.IntN(4) == 0
		for i := range 2 + rnd.IntN(6) {
			call := max(0, free+rnd.Int64N(20)-15)
			granted := max(call, free) + rnd.Int64N(3)
			if broken && rnd.IntN(3) == 0 {
				granted = call + rnd.Int64N(3)
			}
			end := granted + rnd.Int64N(10)
			token++
			if broken && rnd.IntN(4) == 0 {
				token -= rnd.Int64N(3)
			}
			owner := fmt.Sprint(i)
			done := granted + rnd.Int64N(3)
			ops = append(ops, acquire(owner, token, call, done))
			if nested := done + rnd.Int64N(3); nested < end && rnd.IntN(3) == 0 {
				ops = append(ops, acquire(owner, token, nested, nested), release(owner, token, end))
			}
			if rnd.IntN(5) == 0 {
				ops = append(ops, lose(owner, token, end))
			} else {
				ops = append(ops, release(owner, token, end))
			}
			free = end
		}
		want := porcupine.CheckOperations(history.Model(true, true), history.Operations(ops))
		v := history.Judge(history.Holds(ops))
		if got := v == (history.Verdict{}); got != want {
			t.Fatalf("the model says %v, the judge %+v, of\n%+v", want, v, ops)
		}
		if want {
			right++
		}
	}
	if right < total/4 || right > total*9/10 {
		t.Errorf("%d of %d histories are right: this shows nothing", right, total)
	}
}
