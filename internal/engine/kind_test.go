package engine

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/protocol"
)

// lease is an option like the options of package rlock.
type lease time.Duration

func (l lease) Apply(c *Config) { c.Lease = time.Duration(l) }

func TestOptionsApplyInTheirOrderToWhatAnAcquisitionStartsFrom(t *testing.T) {
	start := Config{Lease: time.Second, Wait: time.Minute, Bounded: true}
	if got, want := NewConfig(start, []any{lease(2), nil, "no option", lease(3)}), (Config{Lease: 3,
		Wait: time.Minute, Bounded: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := NewConfig(start, []any(nil)); got != start {
		t.Errorf("without options: %+v", got)
	}
}

func TestAConfigThatCannotBeIsAnError(t *testing.T) {
	for c, ok := range map[Config]bool{
		{}:                                          true,
		{Lease: protocol.MinLease}:                  true,
		{Lease: protocol.MinLease - 1}:              false,
		{Lease: -1}:                                 false,
		{Bounded: true}:                             true,
		{Bounded: true, Wait: time.Hour}:            true,
		{Bounded: true, Wait: -1}:                   false,
		{Wait: -1}:                                  true, // Wait is not used then
		{Lease: time.Hour, Bounded: true}:           true,
		{Bounded: true, Wait: time.Millisecond}:     true,
		{Bounded: true, Wait: time.Millisecond - 1}: false,
		{AtLeast: time.Millisecond}:                 true,
		{AtLeast: time.Millisecond - 1}:             false,
		{AtLeast: -1}:                               false,
		{Lease: time.Hour, Bounded: true, Wait: -time.Second}: false,
	} {
		if err := c.Check(); (err == nil) != ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
