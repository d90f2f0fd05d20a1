// Lockvet finds mistakes in the use of Lockline's locks. go vet runs it:
//
//	go vet -vettool=$(which lockvet) ./...
//
// The comment of package [lockvet] lists the mistakes.
//
// [lockvet]: https://pkg.go.dev/github.com/lockline/lockline/contrib/lockvet
package main

import (
	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/lockline/lockline/contrib/lockvet"
)

func main() { unitchecker.Main(lockvet.Analyzer) }
