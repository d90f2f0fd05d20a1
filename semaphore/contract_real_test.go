package semaphore_test

import (
	"testing"

	"github.com/lockline/lockline/internal/testing/contract"
)

func TestContractOfOnePermitOnARealServer(t *testing.T) {
	t.Parallel()
	contract.RunReal(t, one)
}

func TestContractOfOnePermitOfThreeOnARealServer(t *testing.T) {
	t.Parallel()
	contract.RunReal(t, oneOfThree)
}
