package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// apart is by which factor two contenders must differ for their order to mean anything.
const apart = 1.15

// earlier is what --json of another run wrote, as far as an order can be made of it.
type earlier struct {
	Results []struct {
		Scenario  string  `json:"scenario"`
		Contender string  `json:"contender"`
		Cycles    float64 `json:"cycles_per_s"`
	} `json:"results"`
}

// compare tells in which scenarios two runs disagree about who of two is faster, and
// returns an error if there are any. Nearer to each other than apart, in either run, no two disagree.
func (r *report) compare(out io.Writer, file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var then earlier
	if err := json.Unmarshal(b, &then); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	cycles := map[[2]string]float64{}
	for _, x := range then.Results {
		cycles[[2]string{x.Scenario, x.Contender}] = x.Cycles
	}
	agree, differ := 0, []string{}
	for i, a := range r.Results {
		for _, b := range r.Results[:i] {
			thenA, thenB := cycles[[2]string{a.scenario.name, a.contender.name}], cycles[[2]string{b.scenario.name, b.contender.name}]
			nowA, nowB := a.figures["cycles_per_s"], b.figures["cycles_per_s"]
			if a.scenario.name != b.scenario.name || thenA*thenB*nowA*nowB == 0 {
				continue
			}
			was, is := thenA/thenB, nowA/nowB
			if max(was, 1/was) < apart || max(is, 1/is) < apart {
				continue
			}
			if was > 1 == (is > 1) {
				agree++
				continue
			}
			differ = append(differ, fmt.Sprintf("%s: %s to %s was %.2f, is %.2f", a.scenario.name, a.contender.name, b.contender.name, was, is))
		}
	}
	fmt.Fprintf(out, "\nCompared with %s: of the pairs that differ by %.2f or more in both runs, %d have the same order in both, %d have not.\n", file, apart, agree, len(differ))
	if len(differ) > 0 {
		return fmt.Errorf("another order than in %s:\n%s", file, strings.Join(differ, "\n"))
	}
	return nil
}
