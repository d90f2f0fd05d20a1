package rlock_test

import (
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
)

func TestTheCommonCaseIsAsTheOthersOnARealServer(t *testing.T) {
	t.Parallel()
	commonCaseIsAsTheOthers(t, testlock.Shared(t))
}
