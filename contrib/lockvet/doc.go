// Package lockvet finds mistakes in the use of Lockline's locks. go vet runs it:
//
//	go install github.com/lockline/lockline/contrib/lockvet/cmd/lockvet@latest
//	go vet -vettool=$(go env GOPATH)/bin/lockvet ./...
//
// It knows all kinds of locks, [rlock.Locker], elections, and your own functions that return the same results
// as Lock. It reports
//
//   - a context from outside that is used under a lock. In the function literal of a Do, this is the context
//     that the Do was given. Between a Lock and its Unlock, it is the context that the Lock was given;
//   - a Hold that is discarded, or that is not unlocked on a path to a return;
//   - the context of a hold that is used after the Unlock;
//   - a duration without a unit, as in WaitAtMost(2);
//   - an error of a Lock or a Do that is dropped.
//
// It reports only code that is a mistake for certain, so it does not find all mistakes:
//
//   - A context counts as used if a call gets this context, or a context derived from it. Contexts of
//     context.WithoutCancel may be used anywhere. The next list has calls that may get any context.
//   - Deferred calls, goroutines, and function literals may use any context. The function literal of a Do is
//     an exception.
//   - In a package that calls rlock.WithOwner, a context from outside may be used under a lock.
//   - A hold that is returned, stored, captured, or passed to a function counts as unlocked. So does any hold
//     in the function main, or in a function that closes a session.
//   - A lock with a fixed lease needs no Unlock. So a discarded hold is a mistake only if the same function
//     makes the lock, and passes neither rlock.WithLease nor an option that lockvet cannot see. A hold with a
//     name needs an Unlock, unless the function passes such an option, or assigns the lock to a variable that
//     already has a value.
//   - Files of tests, and files that import testing, are not checked. A test often plays several holders at
//     the same time, and makes mistakes on purpose.
//
// The following calls may get any context, because most of them only read it, log or count:
//
//   - a call that returns nothing, or only strings, numbers, and true or false;
//   - a call of a function, but not of a method, that returns no error and has no parameter besides the
//     context. If the name of this function begins with With, as in errgroup.WithContext, the context counts
//     as used;
//   - a call of a function or method that is named Ctx, or whose name contains FromContext or a similar word,
//     for example FromIncomingContext, FromContextOrDiscard or URLParamFromCtx;
//   - a call of a method of a hold or a session.
//
// The comment //lockvet:ignore REASON hides the reports for its line and for the next line. At a Lock or Do,
// it hides all reports about this call.
//
// # golangci-lint
//
// The command golangci-lint custom builds a golangci-lint that contains lockvet. The command reads the file
// .custom-gcl.yml:
//
//	version: v2.15.0
//	plugins:
//	  - module: github.com/lockline/lockline/contrib/lockvet
//	    import: github.com/lockline/lockline/contrib/lockvet/plugin
//	    version: latest
//
// Enable lockvet as a custom linter in .golangci.yml:
//
//	version: "2"
//	linters:
//	  enable: [lockvet]
//	  settings:
//	    custom:
//	      lockvet:
//	        type: module
//
// [rlock.Locker]: https://pkg.go.dev/github.com/lockline/lockline/rlock#Locker
package lockvet
