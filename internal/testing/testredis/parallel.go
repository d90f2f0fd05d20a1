package testredis

import "flag"

// ManyAtOnce lets four parallel tests run at once, unless -parallel is given. The default is the number of
// processors, but tests with servers mostly wait. ManyAtOnce must be called by TestMain.
func ManyAtOnce() { _ = flag.Set("test.parallel", "4") }
