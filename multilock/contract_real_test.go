package multilock_test

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/contract"
	"github.com/lockline/lockline/multilock"
)

func TestContractOnRealServers(t *testing.T) {
	t.Parallel()
	contract.RunReal(t, several)
}

func TestContractOfRedLockOnRealServers(t *testing.T) {
	t.Parallel()
	// This timeout is long, because the machine may be busy with other tests.
	contract.RunReal(t, redLock(multilock.WithServerTimeout(5*time.Second)))
}
