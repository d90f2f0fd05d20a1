// Package failure has the errors of locks: what they match, and their text.
//
// Users see them as types of package rlock, whose documentation shows every field. [Public] converts the
// structs of this package to those types; rlock sets it.
//
// Begin with failure.go. Errors of a lock carry its name (Named), and those of a wait that ended carry the
// holder (OfWait): the reader of the error need not ask Redis.
//
// Each text begins with "lockline: " once. What puts words before another error takes the prefix from it.
package failure
