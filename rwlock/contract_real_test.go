package rwlock_test

import (
	"testing"

	"github.com/lockline/lockline/internal/testing/contract"
)

func TestContractOfWritersOnARealServer(t *testing.T) {
	t.Parallel()
	contract.RunReal(t, writer)
}

func TestContractOfReadersOnARealServer(t *testing.T) {
	t.Parallel()
	contract.RunReal(t, reader)
}
