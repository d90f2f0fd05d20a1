package testredis

import "flag"

// ManyAtOnce, called by a TestMain, has four parallel tests run at once unless -parallel says otherwise: by
// default there are as many as processors, and tests with servers mostly wait.
func ManyAtOnce() { _ = flag.Set("test.parallel", "4") }
