//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// helper runs as the command of lockline exec in these tests. args[0] chooses its behavior. It writes lines
// to files, which the tests read. The first line shows that it runs.
func helper(args []string) int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	switch args[0] {
	case "beat":
		return beat(args[1], signals)
	case "apart":
		return apart(args[1], signals)
	case "until":
		return until(args[1], signals)
	case "increment":
		return increment(args[1], args[2])
	}
	return 99
}

func note(file, format string, values ...any) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintf(f, format+"\n", values...)
}

// beat writes the time every 2 ms, and each signal that it gets. It never ends by itself.
func beat(file string, signals <-chan os.Signal) int {
	ticks := time.NewTicker(2 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case s := <-signals:
			note(file, "signal %d", s)
		case <-ticks.C:
			note(file, "beat %d", time.Now().UnixNano())
		}
	}
}

// apart starts an orphan that runs beat in another session of the operating system. It ends when it has got a
// signal and the orphan has got SIGTERM.
func apart(file string, signals <-chan os.Signal) int {
	cmd := exec.Command("sh", "-c", `"$@" &`, "sh", os.Args[0], "helper", "beat", file)
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if cmd.Run() != nil {
		return 1
	}
	<-signals
	for { // until the orphan has got SIGTERM
		text, _ := os.ReadFile(file)
		if bytes.Contains(text, fmt.Appendf(nil, "signal %d", syscall.SIGTERM)) {
			return 41
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// until writes the token, and then each signal that it gets. It ends when a file exists whose name is file
// with ".end" behind it.
func until(file string, signals <-chan os.Signal) int {
	note(file, "token %s", os.Getenv("LOCKLINE_TOKEN"))
	ticks := time.NewTicker(2 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case s := <-signals:
			note(file, "signal %d", s)
		case <-ticks.C:
			if _, err := os.Stat(file + ".end"); err == nil {
				note(file, "end")
				return 40
			}
		}
	}
}

// increment adds 1 to the number in a file. If two processes do so at the same time, one of the increments is
// lost.
func increment(counter, tokens string) int {
	count, err := readCounter(counter)
	if err != nil {
		return 1
	}
	time.Sleep(5 * time.Millisecond)
	if err := os.WriteFile(counter, []byte(strconv.Itoa(count+1)), 0o600); err != nil {
		return 1
	}
	note(tokens, "%s", os.Getenv("LOCKLINE_TOKEN"))
	return 0
}

func readCounter(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}
