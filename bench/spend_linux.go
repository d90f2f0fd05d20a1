package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// alarms are timers of the kernel's that are not in use.
var alarms = sync.Pool{New: func() any { return newAlarm() }}

// spend lets that much time pass. An idle Go process waits in epoll_wait, which counts in milliseconds, and
// rounds up the last one. So whatever happens in the process while a goroutine sleeps makes its time.Sleep
// longer, by up to a millisecond. A lock that hands over has an answer to come after its grant, which would
// count as if the lock were slow. A timer of the kernel's is an event itself.
func spend(d time.Duration) {
	if d <= 0 {
		return
	}
	f := alarms.Get().(*os.File)
	defer alarms.Put(f)
	raw, err := f.SyscallConn()
	if err == nil {
		var refused error
		err = raw.Control(func(fd uintptr) {
			refused = unix.TimerfdSettime(int(fd), 0,
				&unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
		})
		if err == nil {
			err = refused
		}
	}
	if err == nil {
		_, err = f.Read(make([]byte, 8)) // how often it has gone off
	}
	if err != nil {
		panic(fmt.Sprint("a timer of the kernel: ", err))
	}
}

func newAlarm() *os.File {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		panic(fmt.Sprint("a timer of the kernel: ", err))
	}
	return os.NewFile(uintptr(fd), "timerfd")
}
