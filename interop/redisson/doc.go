// Package redisson proves that lockline/redisson keeps its word: a JVM with Redisson
// stands on the other side of a real server. The tests are nightly ones. They need a JDK and Maven, and are
// skipped unless LOCKLINE_REQUIRE_JVM=1 asks for them:
//
//	LOCKLINE_REQUIRE_JVM=1 go test -count=1 -tags nightly ./interop/redisson
package redisson
