package lockvet_test

import (
	"testing"

	"github.com/golangci/plugin-module-register/register"
	"go.uber.org/goleak"
	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/lockline/lockline/contrib/lockvet"
	_ "github.com/lockline/lockline/contrib/lockvet/plugin"

	// Packages in testdata import these packages, and go mod tidy does not read testdata.
	_ "github.com/lockline/lockline/election"
	_ "github.com/lockline/lockline/multilock"
	_ "github.com/lockline/lockline/redisson"
	_ "github.com/lockline/lockline/rwlock"
	_ "github.com/lockline/lockline/semaphore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMistakesWithEachKindOfLockAreReported(t *testing.T) {
	analysistest.Run(t, ".", lockvet.Analyzer, "./testdata/mistakes")
}

func TestAllowedCodeIsNotReported(t *testing.T) {
	analysistest.Run(t, ".", lockvet.Analyzer, "./testdata/allowed", "./testdata/owners")
}

func TestGolangciLintFindsThePlugin(t *testing.T) {
	plugin, err := register.GetPlugin("lockvet")
	if err != nil {
		t.Fatal(err)
	}
	linter, err := plugin(nil)
	if err != nil {
		t.Fatal(err)
	}
	analyzers, err := linter.BuildAnalyzers()
	if err != nil || len(analyzers) != 1 || analyzers[0] != lockvet.Analyzer {
		t.Errorf("BuildAnalyzers: %v, %v", analyzers, err)
	}
	if mode := linter.GetLoadMode(); mode != register.LoadModeTypesInfo {
		t.Errorf("GetLoadMode: %v, but lockvet needs types", mode)
	}
}
