// Command portable type-checks packages with their tests for another platform, in the folder that it runs in:
//
//	portable GOOS/GOARCH [PACKAGE...]
//
// It compiles nothing, and does not check the bodies of dependencies, so it takes a fraction of the time of
// go vet.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	system, arch := "", ""
	if len(os.Args) > 2 {
		system, arch, _ = strings.Cut(os.Args[1], "/")
	}
	if arch == "" {
		fmt.Fprintln(os.Stderr, "usage: portable GOOS/GOARCH PACKAGE...")
		os.Exit(2)
	}
	const mode = packages.NeedName | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
		packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedTypesInfo
	config := &packages.Config{Mode: mode, Tests: true,
		Env: append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")}
	all, err := packages.Load(config, os.Args[2:]...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if packages.PrintErrors(all) > 0 {
		os.Exit(1)
	}
}
