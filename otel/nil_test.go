package otellock_test

import (
	"context"
	"testing"

	otellock "github.com/lockline/lockline/otel"
	"github.com/lockline/lockline/rlock"
)

func TestOptionsThatAreNilMeanTheDefault(t *testing.T) {
	o, err := otellock.NewObserver(nil, otellock.WithMeterProvider(nil), otellock.WithTracerProvider(nil),
		otellock.WithPattern(nil))
	if err != nil {
		t.Fatal(err)
	}
	o.Observe(context.Background(), rlock.Event{Type: rlock.EventAcquired, Name: "x", Depth: 1})
}

func TestANilObserverIgnoresEvents(t *testing.T) {
	for _, o := range []*otellock.Observer{nil, {}} {
		o.Observe(context.Background(), rlock.Event{Type: rlock.EventAcquired, Name: "x", Depth: 1})
	}
}
