package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// alarms has timers of the kernel that no goroutine uses at present.
var alarms = sync.Pool{New: func() any { return newAlarm() }}

// spend waits for the time d with a timer of the kernel, which wakes the process at the exact time.
//
// time.Sleep is not exact enough, because an idle Go process waits in epoll_wait, which counts in
// milliseconds and rounds up. So while a goroutine sleeps, each event in the process makes the sleep longer,
// by up to a millisecond. A lock with hand-overs causes such an event, because a reply comes after the grant.
// With time.Sleep, this lock would seem slow.
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
		_, err = f.Read(make([]byte, 8)) // returns when the timer has fired
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
