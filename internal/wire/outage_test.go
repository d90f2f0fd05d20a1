package wire

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// lines has the lines that a logger has written. take returns and removes them.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) take() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		all = append(all, line)
	}
	l.text.Reset()
	return all
}

// outages is a Link to a server that a test can make fail, with the log of the Link.
type outages struct {
	*answering
	*Link
	lines
	sc *Script
}

func newOutages(t *testing.T) *outages {
	o := &outages{answering: &answering{}, sc: NewScript("return 'x'")}
	log := slog.New(slog.NewTextHandler(o, nil))
	o.Link = NewLink(o.answering, Options{Context: t.Context(), Logger: log})
	return o
}

// sendFor sends a request each second for d.
func (o *outages) sendFor(d time.Duration, err error) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		o.will(0, err)
		o.Call(context.Background(), copier{o.sc}, 1, nil)
	}
}

func (o *outages) want(t *testing.T, when string, words ...string) {
	t.Helper()
	got := o.take()
	if len(got) != min(len(words), 1) {
		t.Errorf("%s: %d lines: %s", when, len(got), got)
	}
	for _, w := range words {
		if len(got) > 0 && !strings.Contains(got[0], w) {
			t.Errorf("%s: no %q: %s", when, w, got[0])
		}
	}
}

var refused = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

func TestAnOutageIsLoggedOnceAfterASecondOrTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(t)
		o.sendFor(2*time.Second, refused)
		o.want(t, "in the first two seconds")
		o.sendFor(time.Hour, refused)
		o.want(t, "in an hour", "level=WARN", "lockline: Redis does not answer", "connection refused",
			"for=2s")
		o.sendFor(time.Minute, nil)
		o.want(t, "when it answers", "level=INFO", "lockline: Redis answers again", "after=1h0m2s")
		o.sendFor(10*time.Second, redisError("LOADING Redis is loading"))
		o.want(t, "while it loads", "Redis refuses all requests", "LOADING")
		o.sendFor(2*time.Second, nil)
		o.want(t, "when it has loaded", "Redis answers again", "after=10s")
		o.sendFor(10*time.Second, refused)
		o.want(t, "in an outage that follows at once")
		o.sendFor(2*time.Second, nil)
		o.want(t, "when that one ends")
		o.sendFor(10*time.Second, refused)
		o.sendFor(time.Minute, refused)
		o.want(t, "as it lasts", "connection refused")
	})
}

// A hold that was renewed while the request was in flight may be lost, too, because the server may have
// restarted after the renewal. So the session must not leave this hold out when it checks its holds.
func TestAnOutageIsReportedWithTheTimeAtWhichItWasNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(t)
		var reported []time.Time
		defer o.OnOutage(func(since time.Time) { reported = append(reported, since) })()
		o.will(time.Second, io.EOF)
		o.Call(t.Context(), copier{o.sc}, 1, nil)
		noticed := time.Now()
		o.sendFor(3*time.Second, io.EOF)
		o.sendFor(3*time.Second, nil)
		if want := []time.Time{noticed, noticed}; !slices.Equal(reported, want) {
			t.Errorf("%v, want %v", reported, want)
		}
	})
}

func TestTheLogOfAnOutageSaysWhatIsWrongWithTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(t)
		o.sendFor(5*time.Second, io.EOF)
		o.want(t, "the server has TLS alone", "give the client a TLSConfig", "EOF")

		o = newOutages(t)
		o.reading.speaksTLS = true
		o.will(25*time.Second, context.DeadlineExceeded)
		go o.Call(t.Context(), copier{o.sc}, 1, nil)
		time.Sleep(3 * time.Second)
		o.want(t, "the server has no TLS", "in flight", "does the server speak TLS?")
		time.Sleep(time.Minute)
		o.want(t, "later", "the TLS handshake was not answered")
	})
}

func TestWhatItsCallerIsToldAtOnceIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(t)
		for _, err := range []error{
			redisError("WRONGTYPE x"), &ValueError{}, redis.ErrClosed, context.Canceled,
			dialing(&net.AddrError{Err: "missing port in address", Addr: "a"}),
		} {
			o.sendFor(10*time.Second, err)
			o.want(t, err.Error())
			o.sendFor(time.Minute, nil)
		}
		for range 10 {
			o.sendFor(time.Second, errors.New("i/o timeout"))
			o.sendFor(time.Second, nil)
		}
		o.want(t, "of single failures")
	})
}

// The error of a renewal is returned to no caller, so it must be logged.
func TestARefusalOfAllRequestsIsLoggedThoughNoRepetitionHelps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			err  error
			want []string
		}{
			{redisError("WRONGPASS x"), []string{"Redis refuses all requests", "WRONGPASS", "ACL GETUSER"}},
			{redisError("NOPERM x"), []string{"Redis refuses all requests", "#acl-rules"}},
			{redisError("OOM command not allowed"), []string{"Redis refuses all requests", "maxmemory"}},
			{dialing(x509.UnknownAuthorityError{}), []string{"Redis does not answer", "RootCAs"}},
		} {
			o := newOutages(t)
			o.sendFor(10*time.Second, c.err)
			o.want(t, c.err.Error(), c.want...)
		}
	})
}

func TestTheLogOfAServerThatClosesConnectionsNamesMaxclients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(t)
		o.sendFor(time.Second, nil)
		o.sendFor(10*time.Second, &net.OpError{Op: "write", Err: syscall.EPIPE})
		o.want(t, "after it has answered", "Redis does not answer", "broken pipe", "maxclients")
	})
}

// The client of Sentinels does not know the address of the master, but the error of a connection has it.
func TestTheLogNamesTheMasterThatSentinelsName(t *testing.T) {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m"})
	defer client.Close()
	l := NewLink(client, Options{Context: t.Context(), Logger: slog.New(slog.DiscardHandler)})
	addr := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 6379}
	timeout := &net.OpError{Op: "read", Addr: addr, Err: io.EOF}
	for _, c := range []struct {
		err  error
		want string
	}{
		{timeout, "10.0.0.7:6379, the master that the Sentinels name"},
		{io.EOF, "the master that the Sentinels name"},
		{nil, "the master that the Sentinels name"},
	} {
		if got := l.nameOf(&l.whole, c.err); got != c.want {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}

func TestARefusalOfAClusterNamesTheNode(t *testing.T) {
	l := NewLink(&answering{}, Options{Context: t.Context()})
	got := l.explained(t.Context(), &server{addr: "10.0.0.7:6379"}, time.Now(), redisError("OOM x"))
	if got.Error() != "OOM x (node 10.0.0.7:6379)" || !errors.Is(got, redisError("OOM x")) {
		t.Errorf("%v", got)
	}
}

func TestARequestWithoutAnAnswerIsLoggedWhileItIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(t)
		o.will(time.Hour, refused)
		for range 3 {
			go o.Call(t.Context(), copier{o.sc}, 1, nil)
		}
		time.Sleep(2*time.Second - time.Nanosecond)
		o.want(t, "just before")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		o.want(t, "then", "Redis does not answer", "for=2s", "in flight")
		time.Sleep(time.Hour)
		o.want(t, "with its error", "connection refused")
	})
}

func TestAnAnswerInTimeIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(t)
		o.will(time.Second, nil)
		for range 100 {
			o.Call(t.Context(), copier{o.sc}, 1, nil)
		}
		o.want(t, "at a second each")
	})
}
