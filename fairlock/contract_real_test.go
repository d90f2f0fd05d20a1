package fairlock_test

import (
	"testing"

	"github.com/lockline/lockline/internal/testing/contract"
)

func TestContractOnARealServer(t *testing.T) {
	t.Parallel()
	contract.RunReal(t, fair)
}
