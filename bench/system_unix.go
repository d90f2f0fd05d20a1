//go:build linux || freebsd

package main

import (
	"os"
	"syscall"
	"time"
	"unsafe"
)

// sharesMemory says that processes can, and that this one can tell what it uses.
const sharesMemory = true

// mapShared maps the file into memory that all processes see that map it.
func mapShared(name string) (*shared, func(), error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	size := int(unsafe.Sizeof(shared{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, nil, err
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	return (*shared)(unsafe.Pointer(&mem[0])), func() { _ = syscall.Munmap(mem) }, nil
}

// cpuTime is what this process has used; 0 where none can tell.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// nap sleeps, by the kernel's timer.
func nap(d time.Duration) {
	if d > 0 {
		t := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&t, nil)
	}
}

// endWithParent has the kernel end the process with this program, whatever ends it.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
