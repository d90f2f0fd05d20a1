// Package newcomer plays the first ten minutes of a developer who has never seen the project: an empty
// module, an empty GOPATH, and a module proxy that has a release.
package newcomer
