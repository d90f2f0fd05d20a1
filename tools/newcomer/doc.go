// Package newcomer tests the first ten minutes of a developer who has never seen the project. The developer
// has an empty module, an empty GOPATH, and a module proxy that has a release.
package newcomer
