package main

import (
	"io"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testredis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLayersOfARequestReenterAndRequestsExcludeEachOther(t *testing.T) {
	t.Parallel()
	succeeded, items, err := run(t.Context(), "redis://"+testredis.Embedded(t).Addr(), 50, owners,
		time.Minute, io.Discard)
	if err != nil || succeeded != 50 || items != 50 {
		t.Errorf("%d requests succeeded, %d items, %v", succeeded, items, err)
	}
}

func TestWithoutTheMiddlewareARequestWaitsForItself(t *testing.T) {
	t.Parallel()
	nothing := func(h http.Handler) http.Handler { return h }
	succeeded, items, err := run(t.Context(), "redis://"+testredis.Embedded(t).Addr(), 2, nothing,
		time.Second, io.Discard)
	if err != nil || succeeded != 0 || items != 0 {
		t.Errorf("%d requests succeeded, %d items, %v", succeeded, items, err)
	}
}
