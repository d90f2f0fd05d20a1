package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// apart is by which factor two contenders must differ for their order to mean anything.
const apart = 1.15

// pace is how fast a contender was, and the middle half of its rounds.
type pace struct{ median, low, high float64 }

func paceOf(median float64, rounds []float64) pace {
	if len(rounds) == 0 {
		return pace{median, median, median}
	}
	slices.Sort(rounds)
	skip := len(rounds) / 4
	return pace{median, rounds[skip], rounds[len(rounds)-1-skip]}
}

func (p pace) steady() bool { return p.high <= p.low*apart }

// to compares the medians. Only if clear, the rounds bear their order out.
func (p pace) to(q pace) (ratio float64, clear bool) {
	return p.median / q.median, p.low > q.high || q.low > p.high
}

func (x *result) pace() pace {
	var rounds []float64
	for _, f := range x.rounds {
		rounds = append(rounds, f["cycles_per_s"])
	}
	return paceOf(x.figures["cycles_per_s"], rounds)
}

// earlier is what --json of another run wrote, as far as an order can be made of it.
type earlier struct {
	Results []struct {
		Scenario  string  `json:"scenario"`
		Contender string  `json:"contender"`
		Cycles    float64 `json:"cycles_per_s"`
		Rounds    []struct {
			Cycles float64 `json:"cycles_per_s"`
		} `json:"rounds"`
	} `json:"results"`
}

// compare tells in which scenarios two runs disagree about who of two is faster. Nearer to each other
// than apart, in either run, no two disagree. It returns an error if there are any whose rounds bear
// out, in both runs, what their medians say.
func (r *report) compare(out io.Writer, file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var then earlier
	if err := json.Unmarshal(b, &then); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	paces := map[[2]string]pace{}
	for _, x := range then.Results {
		var rounds []float64
		for _, round := range x.Rounds {
			rounds = append(rounds, round.Cycles)
		}
		paces[[2]string{x.Scenario, x.Contender}] = paceOf(x.Cycles, rounds)
	}
	agree, unsteady, differ := 0, []string{}, []string{}
	for i, a := range r.Results {
		for _, b := range r.Results[:i] {
			thenA, thenB := paces[[2]string{a.scenario.name, a.contender.name}], paces[[2]string{b.scenario.name, b.contender.name}]
			nowA, nowB := a.pace(), b.pace()
			if a.scenario.name != b.scenario.name || thenA.median*thenB.median*nowA.median*nowB.median == 0 {
				continue
			}
			was, clearly := thenA.to(thenB)
			is, still := nowA.to(nowB)
			told := fmt.Sprintf("%s: %s to %s was %.2f, is %.2f", a.scenario.name, a.contender.name, b.contender.name, was, is)
			switch {
			case max(was, 1/was) < apart || max(is, 1/is) < apart:
			case was > 1 == (is > 1):
				agree++
			case clearly && still:
				differ = append(differ, told)
			default:
				unsteady = append(unsteady, told)
			}
		}
	}
	fmt.Fprintf(out, "\nCompared with %s: of the pairs that differ by %.2f or more in both runs, %d have the same order in both, %d have not.\n",
		file, apart, agree, len(unsteady)+len(differ))
	if len(unsteady) > 0 {
		fmt.Fprintf(out, "Of these, %d are no order in one of the runs: the middle halves of their rounds overlap.\n%s\n", len(unsteady), strings.Join(unsteady, "\n"))
	}
	if len(differ) > 0 {
		return fmt.Errorf("another order than in %s:\n%s", file, strings.Join(differ, "\n"))
	}
	return nil
}
