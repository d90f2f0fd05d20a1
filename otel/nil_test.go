package otellock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/lockline/lockline/multilock"
	otellock "github.com/lockline/lockline/otel"
	"github.com/lockline/lockline/rlock"
)

func TestOptionsThatAreNilMeanTheDefault(t *testing.T) {
	o, err := otellock.NewObserver(nil, otellock.WithMeterProvider(nil), otellock.WithTracerProvider(nil),
		otellock.WithPattern(nil))
	if err != nil {
		t.Fatal(err)
	}
	o.Observe(context.Background(), rlock.Event{Kind: rlock.Acquired, Name: "x", Depth: 1})
}

func TestANilObserverIgnoresEventsAndANilQuorumIsAnError(t *testing.T) {
	for _, o := range []*otellock.Observer{nil, {}} {
		o.Observe(context.Background(), rlock.Event{Kind: rlock.Acquired, Name: "x", Depth: 1})
		_, err := o.ObserveQuorum(new(multilock.Quorum))
		if err == nil || !strings.Contains(err.Error(), "a nil Observer") {
			t.Errorf("no Observer: %v", err)
		}
	}
	o, err := otellock.NewObserver()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.ObserveQuorum(nil); err == nil || !strings.Contains(err.Error(), "the Quorum is nil") {
		t.Errorf("no Quorum: %v", err)
	}
}
