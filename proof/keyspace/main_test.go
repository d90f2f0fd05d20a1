package keyspace

import (
	"testing"

	"github.com/lockline/lockline/internal/testing/testredis"
)

func TestMain(m *testing.M) { testredis.Run(m) }
