package explore

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/lockline/lockline/internal/testing/testredis"
)

var (
	root = filepath.Join("..", "..")
	most = flag.Int("states", 2_000_000, "how many states of a world are visited at most")
	only = flag.String("world", "", "explores this world, or all, instead of the small ones")
)

func TestMain(m *testing.M) { testredis.Run(m) }
