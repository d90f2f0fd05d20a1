package simnet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/proof/simnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An echo is a server that writes each message back. It records the messages with the times at which they
// arrived.
type echo struct {
	start time.Time
	mu    sync.Mutex // guards got
	got   []string
}

func (e *echo) dial() (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		p := make([]byte, 1000)
		for {
			n, err := server.Read(p)
			if err != nil {
				return
			}
			e.mu.Lock()
			e.got = append(e.got, fmt.Sprintf("%s@%v", p[:n], time.Since(e.start)))
			e.mu.Unlock()
			if _, err := server.Write(p[:n]); err != nil {
				return
			}
		}
	}()
	return client, nil
}

func (e *echo) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.got, " ")
}

func simulated(
	t *testing.T, seed uint64, f simnet.Faults, test func(t *testing.T, e *echo, h *simnet.Host, c net.Conn),
) (got string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &echo{start: time.Now()}
		h := simnet.New(seed, simnet.NewClock(), f, e.dial).Host("a")
		c, err := h.Dial(context.Background(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		test(t, e, h, c)
		_ = c.Close()
		time.Sleep(time.Minute)
		got = e.String()
	})
	return got
}

func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if n, err := io.WriteString(c, s); n != len(s) || err != nil {
		t.Fatal(n, err)
	}
}

// answer reads n bytes within a second.
func answer(c net.Conn, n int) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	p := make([]byte, n)
	n, err := io.ReadFull(c, p)
	return string(p[:n]), err
}

func TestMessagesArriveInOrderAndEachSeedHasItsInstants(t *testing.T) {
	runs := map[string]int{}
	for _, seed := range []uint64{1, 1, 1, 2} {
		runs[simulated(t, seed, simnet.Faults{Latency: 20 * time.Millisecond}, func(
			t *testing.T, _ *echo, _ *simnet.Host, c net.Conn,
		) {
			for i := range 10 {
				send(t, c, fmt.Sprint(i))
			}
			if got, err := answer(c, 10); got != "0123456789" || err != nil {
				t.Error(got, err)
			}
		})]++
	}
	if len(runs) != 2 {
		t.Errorf("%d different runs of two seeds: %v", len(runs), runs)
	}
}

func TestWhatWasSentIntoABlackHoleArrivesAfterItsSenderGaveUp(t *testing.T) {
	f := simnet.Faults{Latency: time.Millisecond, Late: 1, LateBy: time.Second}
	got := simulated(t, 1, f, func(t *testing.T, e *echo, h *simnet.Host, c net.Conn) {
		h.BlackHole(5*time.Second, simnet.Up, simnet.Down)
		send(t, c, "x")
		if got, err := answer(c, 1); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(got, err)
		}
		_ = c.Close()
		if e.String() != "" {
			t.Error(e)
		}
	})
	if !strings.HasPrefix(got, "x@5.") {
		t.Errorf("%q arrived", got)
	}
}

func TestABlackHoleSwallows(t *testing.T) {
	got := simulated(t, 1, simnet.Faults{}, func(t *testing.T, _ *echo, h *simnet.Host, c net.Conn) {
		h.BlackHole(100*time.Millisecond, simnet.Up, simnet.Down)
		send(t, c, "x")
		time.Sleep(time.Second)
		send(t, c, "y") // also lost, because it follows a lost message
	})
	if got != "" {
		t.Errorf("%q arrived", got)
	}
}

func TestABlackHoleCanSwallowRepliesAlone(t *testing.T) {
	got := simulated(t, 1, simnet.Faults{}, func(t *testing.T, _ *echo, h *simnet.Host, c net.Conn) {
		h.BlackHole(100*time.Millisecond, simnet.Down)
		send(t, c, "x")
		if got, err := answer(c, 1); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(got, err)
		}
	})
	if !strings.HasPrefix(got, "x@") {
		t.Errorf("%q arrived", got)
	}
}

func TestACutReplyIsToARequestThatArrived(t *testing.T) {
	got := simulated(t, 1, simnet.Faults{CutReply: 1}, func(
		t *testing.T, _ *echo, _ *simnet.Host, c net.Conn,
	) {
		send(t, c, "x")
		if got, err := answer(c, 1); got != "" || !errors.Is(err, io.EOF) {
			t.Error(got, err)
		}
	})
	if !strings.HasPrefix(got, "x@") {
		t.Errorf("%q arrived", got)
	}
}

func TestACutRequestDoesNotArrive(t *testing.T) {
	got := simulated(t, 1, simnet.Faults{CutRequest: 1}, func(
		t *testing.T, _ *echo, _ *simnet.Host, c net.Conn,
	) {
		send(t, c, "x")
		if got, err := answer(c, 1); got != "" || !errors.Is(err, io.EOF) {
			t.Error(got, err)
		}
	})
	if got != "" {
		t.Errorf("%q arrived", got)
	}
}

func TestADeafConnectionIsNotCut(t *testing.T) {
	got := simulated(t, 1, simnet.Faults{Deafen: 1}, func(t *testing.T, _ *echo, _ *simnet.Host, c net.Conn) {
		send(t, c, "x")
		if got, err := answer(c, 1); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(got, err)
		}
		send(t, c, "y")
	})
	if !strings.Contains(got, "x@") || !strings.Contains(got, " y@") {
		t.Errorf("%q arrived", got)
	}
}

func TestAPubSubMessageIsLostAndTheReplyBeforeItIsNot(t *testing.T) {
	simulated(t, 1, simnet.Faults{LosePush: 1}, func(t *testing.T, _ *echo, _ *simnet.Host, c net.Conn) {
		send(t, c, "x")
		send(t, c, "*3\r\n$7\r\nmessage\r\n")
		if got, err := answer(c, 2); got != "x" || err == nil {
			t.Error(got, err)
		}
	})
}

func TestAKilledHostIsCutOffForEverButWhatItSentArrives(t *testing.T) {
	got := simulated(t, 1, simnet.Faults{Latency: 10 * time.Millisecond}, func(
		t *testing.T, _ *echo, h *simnet.Host, c net.Conn,
	) {
		send(t, c, "x")
		h.Kill()
		if got, err := answer(c, 1); got != "" || !errors.Is(err, io.EOF) {
			t.Error(got, err)
		}
		var op *net.OpError
		if _, err := h.Dial(context.Background(), "", ""); !errors.As(err, &op) || op.Op != "dial" {
			t.Error(err)
		}
	})
	if !strings.HasPrefix(got, "x@") {
		t.Errorf("%q arrived", got)
	}
}

func TestThePartsOfAPipelineArriveOneAfterTheOther(t *testing.T) {
	const one, two = "*2\r\n$3\r\nGET\r\n$1\r\na\r\n", "*1\r\n$4\r\nPING\r\n"
	arrived := func(seed uint64, f simnet.Faults) int {
		got := strings.Fields(strings.NewReplacer(one, "one", two, "two").Replace(simulated(t, seed, f,
			func(t *testing.T, _ *echo, _ *simnet.Host, c net.Conn) { send(t, c, one+two+one) })))
		for i, want := range []string{"one@", "two@", "one@"}[:len(got)] {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("arrived: %q", got)
			}
		}
		return len(got)
	}
	if n := arrived(1, simnet.Faults{Latency: time.Millisecond}); n != 3 {
		t.Errorf("%d arrived", n)
	}
	cut := map[int]bool{}
	for seed := range uint64(30) {
		cut[arrived(seed, simnet.Faults{Latency: time.Millisecond, CutRequest: 1})] = true
	}
	if len(cut) != 3 || cut[3] {
		t.Errorf("a connection is cut after so many: %v", cut)
	}
}

// frozen sends x and y. While the replies are in flight, it freezes the host for a minute, and reads with a
// deadline of d. It returns the results and the duration of the Read.
func frozen(t *testing.T, seed uint64, d time.Duration) (read string, took time.Duration, err error) {
	simulated(t, seed, simnet.Faults{Latency: time.Millisecond}, func(
		t *testing.T, e *echo, h *simnet.Host, c net.Conn,
	) {
		send(t, c, "x")
		send(t, c, "y")
		h.Freeze(time.Minute)
		start := time.Now()
		_ = c.SetReadDeadline(start.Add(d))
		p := make([]byte, 10)
		var n int
		n, err = c.Read(p)
		read, took = string(p[:n]), time.Since(start)
	})
	return read, took, err
}

func TestAFrozenHostReadsAfterwardsAllThatHasArrived(t *testing.T) {
	if read, took, err := frozen(t, 1, time.Hour); read != "xy" || err != nil ||
		took.Truncate(time.Second) != time.Minute {
		t.Error(read, err, took)
	}
}

// When a frozen process continues, the deadline of its Read has passed, and a message has arrived. The Read
// may then return the message or the error of the deadline.
func TestAFrozenHostFindsItsDeadlineOrWhatHasArrived(t *testing.T) {
	ends := map[string]int{}
	for seed := range uint64(40) {
		read, took, err := frozen(t, seed, time.Second)
		if took.Truncate(time.Second) != time.Minute {
			t.Fatal(took)
		}
		ends[fmt.Sprint(read, " ", err)]++
	}
	if late := ends[fmt.Sprint(" ", os.ErrDeadlineExceeded)]; late == 0 ||
		ends["xy <nil>"] != 40-late || late == 40 {
		t.Error(ends)
	}
}

func TestWhatAFrozenHostWritesLeavesAfterwards(t *testing.T) {
	got := simulated(t, 1, simnet.Faults{Latency: time.Millisecond}, func(
		t *testing.T, e *echo, h *simnet.Host, c net.Conn,
	) {
		send(t, c, "x")
		h.Freeze(time.Minute)
		send(t, c, "y")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := h.Dial(ctx, "", ""); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		if c, err := h.Dial(context.Background(), "", ""); err != nil || time.Since(e.start) < time.Minute {
			t.Error(err, time.Since(e.start))
		} else {
			_ = c.Close()
		}
		time.Sleep(time.Second)
	})
	if !strings.Contains(got, "x@") || !strings.Contains(got, "y@1m0") {
		t.Errorf("%q arrived", got)
	}
}
