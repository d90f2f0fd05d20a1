package session

import (
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

func TestWhatASessionCannotBeToldIsRefusedByName(t *testing.T) {
	for option, spoil := range map[string]func(*Config){
		"WithPrefix":          func(c *Config) { c.Prefix = "" },
		"WithWatchdogTimeout": func(c *Config) { c.Lease = protocol.MinLease - 1 },
		"WithWaiterTimeout":   func(c *Config) { c.WaiterTimeout = 0 },
		"WithLabel":           func(c *Config) { c.Label = "\xff" },
	} {
		cfg := sound
		spoil(&cfg)
		if s, err := New(&nowhere{}, cfg); s != nil || err == nil ||
			!strings.HasPrefix(err.Error(), "lockline: "+option+": ") {
			t.Errorf("%s: %v", option, err)
		}
	}
	cfg := sound
	cfg.Label = strings.Repeat("x", protocol.MaxName+1)
	if _, err := New(&nowhere{}, cfg); err == nil || len(err.Error()) > 200 {
		t.Errorf("a label that is too long: %v", err)
	}
	for _, c := range []wire.Client{nil, (*nowhere)(nil)} {
		if s, err := New(c, sound); s != nil || err == nil ||
			!strings.HasPrefix(err.Error(), "lockline: NewSession: ") {
			t.Errorf("%T: %v", c, err)
		}
	}
}

func TestTheShortestConfigIsEnough(t *testing.T) {
	cfg := sound
	cfg.Lease, cfg.WaiterTimeout, cfg.Label = protocol.MinLease, protocol.MinLease,
		strings.Repeat("x", protocol.MaxName)
	s, err := New(&nowhere{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer end(t, s)
	if s.Args.Lease != "10" || s.Args.WaiterTimeout != "10" || s.Args.Retention != "15000" ||
		s.Args.Channels != "p:s:" || s.Lease != 10*time.Millisecond {
		t.Errorf("%+v", s.Args)
	}
}
