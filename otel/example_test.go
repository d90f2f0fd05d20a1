package otellock_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	otellock "github.com/lockline/lockline/otel"
	"github.com/lockline/lockline/rlock"
)

func ExampleNewObserver() {
	server := miniredis.NewMiniRedis() // use your own Redis
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	reader := metric.NewManualReader() // in your program, the exporter has a reader
	observer, err := otellock.NewObserver(
		otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))),
		otellock.WithPattern(func(name string) string { // "orders:42" counts as "orders"
			service, _, _ := strings.Cut(name, ":")
			return service
		}))
	if err != nil {
		panic(err)
	}
	session, err := rlock.NewSession(rdb, rlock.WithObserver(observer))
	if err != nil {
		panic(err)
	}
	defer session.Close()

	ctx := context.Background()
	for order := range 3 {
		_ = rlock.New(session, fmt.Sprint("orders:", order)).Do(ctx, func(context.Context) error {
			return nil
		})
	}

	var measured metricdata.ResourceMetrics
	_ = reader.Collect(ctx, &measured)
	for _, m := range measured.ScopeMetrics[0].Metrics {
		if h, ok := m.Data.(metricdata.Histogram[float64]); ok {
			pattern, _ := h.DataPoints[0].Attributes.Value("lockline.lock.pattern")
			fmt.Println(m.Name, pattern.AsString(), h.DataPoints[0].Count)
		}
	}
	// Output:
	// lockline.lock.wait.duration orders 3
	// lockline.lock.hold.duration orders 3
}
