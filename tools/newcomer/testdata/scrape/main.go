// OpenTelemetry observes a lock, and Prometheus scrapes the metrics.
package main

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	otellock "github.com/lockline/lockline/otel"
	"github.com/lockline/lockline/rlock"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
)

func main() {
	exporter, err := prometheus.New()
	if err != nil {
		log.Fatal(err)
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	observer, err := otellock.NewObserver(otellock.WithMeterProvider(provider))
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	session, err := rlock.NewSession(rdb, rlock.WithObserver(observer))
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	if err := rlock.New(session, "orders:42").Do(context.Background(),
		func(context.Context) error { return nil }); err != nil {
		log.Fatal(err)
	}

	server := httptest.NewServer(promhttp.Handler())
	defer server.Close()
	scrape, err := http.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer scrape.Body.Close()
	if _, err := io.Copy(os.Stdout, scrape.Body); err != nil {
		log.Fatal(err)
	}
}
