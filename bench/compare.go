package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

// apart is by which factor two contenders must differ for their order to mean anything.
const apart = 1.15

// sure is how likely a median must lie in the range that is given for it.
const sure = .75

// pace is how fast a contender was: the median of its rounds, and the range in which that of
// ever more rounds would surely lie.
type pace struct{ median, low, high float64 }

func paceOf(rounds []figures) pace {
	var speeds []float64
	for _, f := range rounds {
		if v, ok := f["cycles_per_s"]; ok {
			speeds = append(speeds, v)
		}
	}
	if len(speeds) == 0 {
		return pace{}
	}
	slices.Sort(speeds)
	k := spared(len(speeds))
	return pace{medianOf(speeds), speeds[k], speeds[len(speeds)-1-k]}
}

// spared is how many of n sorted rounds are not needed at either end for the range of the median. Whatever
// their distribution, a round is as likely above its median as below: of n coins, more than k show either side.
func spared(n int) int {
	ways, _ := math.Lgamma(float64(n + 1))
	missed := 0.0
	for k := 0; ; k++ {
		same, _ := math.Lgamma(float64(k + 1))
		other, _ := math.Lgamma(float64(n - k + 1))
		missed += 2 * math.Exp(ways-same-other-float64(n)*math.Ln2)
		if missed > 1-sure {
			return max(0, k-1) // of one or two rounds, there is no more than all
		}
	}
}

// to compares the medians. Only if clear, the rounds bear their order out.
func (p pace) to(q pace) (ratio float64, clear bool) {
	return p.median / q.median, p.low > q.high || q.low > p.high
}

// unclear says that the medians make an order that the rounds do not bear out.
func (p pace) unclear(q pace) bool {
	ratio, clear := p.to(q)
	return p.median*q.median > 0 && isApart(ratio) && !clear
}

func isApart(ratio float64) bool { return max(ratio, 1/ratio) >= apart }

func (x *result) pace() pace { return paceOf(x.rounds) }

// unsteady are those of one scenario whose order with another is unclear. That other one is, too: if
// only one of two had further rounds, whatever the machine does by then would hit that one alone.
func unsteady(results []*result) (some []*result) {
	for _, x := range results {
		if slices.ContainsFunc(results, func(y *result) bool { return x.pace().unclear(y.pace()) }) {
			some = append(some, x)
		}
	}
	return some
}

// earlier is what --json of another run wrote, as far as an order can be made of it.
type earlier struct {
	Results []struct {
		Scenario  string    `json:"scenario"`
		Contender string    `json:"contender"`
		Rounds    []figures `json:"rounds"`
	} `json:"results"`
}

// compare tells in which scenarios two runs disagree about which of two is faster. Nearer to each other
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
		paces[[2]string{x.Scenario, x.Contender}] = paceOf(x.Rounds)
	}
	agree, open, differ := 0, []string{}, []string{}
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
			case !isApart(was) || !isApart(is):
			case was > 1 == (is > 1):
				agree++
			case clearly && still:
				differ = append(differ, told)
			default:
				open = append(open, told)
			}
		}
	}
	fmt.Fprintf(out, "\nCompared with %s: of the pairs that differ by %.2f or more in both runs, %d have the same order in both, %d have not.\n",
		file, apart, agree, len(open)+len(differ))
	if len(open) > 0 {
		fmt.Fprintf(out, "Of these, %d are no clear order in one of the runs or both: the ranges of their medians overlap.\n%s\n", len(open), strings.Join(open, "\n"))
	}
	if len(differ) > 0 {
		return fmt.Errorf("another order than in %s:\n%s", file, strings.Join(differ, "\n"))
	}
	return nil
}
