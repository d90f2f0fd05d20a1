// Command portable type-checks packages with their tests for another operating system, in the folder that it
// runs in:
//
//	portable GOOS [PACKAGE...]
//
// It compiles nothing, and checks no bodies of what the packages depend on, so it takes a fraction of what go
// vet does.
package main

import (
	"fmt"
	"os"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: portable GOOS PACKAGE...")
		os.Exit(2)
	}
	const mode = packages.NeedName | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
		packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo
	config := &packages.Config{Mode: mode, Tests: true,
		Env: append(os.Environ(), "GOOS="+os.Args[1], "CGO_ENABLED=0")}
	all, err := packages.Load(config, os.Args[2:]...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if packages.PrintErrors(all) > 0 {
		os.Exit(1)
	}
}
