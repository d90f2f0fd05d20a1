package multilock_test

import (
	"testing"

	"github.com/lockline/lockline/internal/testing/contract"
)

func TestContractOnRealServers(t *testing.T) {
	t.Parallel()
	contract.RunReal(t, several)
}

func TestContractOfRedLockOnRealServers(t *testing.T) {
	t.Parallel()
	contract.RunReal(t, redLock)
}
