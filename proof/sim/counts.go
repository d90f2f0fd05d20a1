package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Counts has the number of events of each sort.
type Counts struct {
	mu sync.Mutex // guards n
	n  map[string]int64
}

func (c *Counts) Add(what string) { c.add(what, 1) }

func (c *Counts) add(what string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int64{}
	}
	c.n[what] += n
}

func (c *Counts) Of(what string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[what]
}

func (c *Counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for what, n := range c.n {
		all = append(all, fmt.Sprintf("%s: %d", what, n))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}
