// Package plugin adds lockvet to golangci-lint, as a module plugin. The comment of package [lockvet] shows
// the configuration.
//
// [lockvet]: https://pkg.go.dev/github.com/lockline/lockline/contrib/lockvet
package plugin

import (
	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"

	"github.com/lockline/lockline/contrib/lockvet"
)

func init() {
	register.Plugin("lockvet", func(any) (register.LinterPlugin, error) { return linter{}, nil })
}

type linter struct{}

func (linter) BuildAnalyzers() ([]*analysis.Analyzer, error) {
	return []*analysis.Analyzer{lockvet.Analyzer}, nil
}

func (linter) GetLoadMode() string { return register.LoadModeTypesInfo }
