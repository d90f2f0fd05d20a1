package locktest

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/memserver"
	"github.com/lockline/lockline/rlock"
)

// A Server is a Redis server in memory, with the network that leads to it. Make it with [NewServer]. All
// methods but NewSession may be called from any goroutine, also from the code under test. If a method is used
// wrongly, the test fails. The methods of a nil or zero Server panic.
type Server struct {
	t      testing.TB
	redis  *memserver.Redis
	direct *redis.Client // the Server's own client, which Silence and Refuse do not affect
	logger *slog.Logger
	born   time.Time
	addr   string

	mu      sync.Mutex // guards the fields below
	links   []*link
	silent  bool // a Silence of all clients is in effect, also for later clients
	refuses bool // a Refuse of all clients is in effect, also for later clients
	misused bool // a client has dialed from a synctest bubble, although the server was made outside it
}

// A link is the network between one client and the server. Its proxy makes the faults.
type link struct {
	net     *faultproxy.Proxy
	session *rlock.Session // the session of NewSession; nil: the client is for Client or Options
	holds   *holds         // counts of the holds of the session; nil without a session
	faulty  bool           // the client cannot reach the server; guarded by Server.mu
}

// NewServer starts an empty server. The server ends with the test, after its sessions and clients. NewServer
// panics if t is nil.
func NewServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, born: time.Now()}
	t.Cleanup(handle.KeepAll())
	s.logger = newLogger(t)
	s.redis = memserver.New(t)
	direct := s.newProxy()
	s.addr, s.direct = direct.Addr(), direct.Client(t)
	return s
}

// NewSession opens a session with a client of its own. The server and other sessions treat the new session
// like another process. The session writes its log to the log of the test, unless the options contain
// [rlock.WithLogger]. If an option is not valid, NewSession stops the test, so only the goroutine of the test
// may call it. The session is closed at the end of the test, unless the code under test has closed it.
func (s *Server) NewSession(options ...rlock.SessionOption) *rlock.Session {
	s.t.Helper()
	if wrong := s.misplaced(); wrong != nil {
		s.t.Fatal(wrong)
	}
	l, client := s.newClient()
	session, err := rlock.NewSession(client, append([]rlock.SessionOption{rlock.WithLogger(s.logger)},
		options...)...)
	if err != nil {
		s.t.Fatalf("locktest: NewSession: %v", err)
	}
	s.mu.Lock()
	l.session, l.holds = session, follow(session)
	s.mu.Unlock()
	s.t.Cleanup(func() {
		s.mu.Lock()
		misused := s.misused
		s.mu.Unlock()
		if misused {
			return // the session has channels of the bubble, and closing them outside it ends the program
		}
		s.Resume() // while the server is silent, Close would wait for a reply
		if err := session.Close(); err != nil {
			s.t.Errorf("locktest: at the end of the test: %v", err)
		}
	})
	return session
}

// Client returns a new client of the server, for code that makes its session itself or uses Redis directly.
// The client is closed at the end of the test, but the code under test must close its session. [Server.Lose]
// and [Server.Restart] do not notify a session of such a client. The session notices a loss with its next
// request or renewal.
func (s *Server) Client() *redis.Client {
	_, client := s.newClient()
	return client
}

// Options returns the options of a new client of the server. To change some of these options, call Options
// instead of Client:
//
//	options := server.Options()
//	options.ReadTimeout = time.Second
//	client := redis.NewClient(options)
//
// The test must close the client. In a bubble, do not set PoolSize, because in a small pool, goroutines wait
// for connections. For these waits, go-redis shares timers between bubbles, which ends the program.
func (s *Server) Options() *redis.Options { return s.options(s.newLink()) }

func (s *Server) options(l *link) *redis.Options {
	options := l.net.Options()
	options.Addr = s.addr // all links have one address, because a RedLock recognizes servers by addresses
	options.ContextTimeoutEnabled = true
	options.DialerRetries = 1 // a closed client must not continue to dial
	dial := options.Dialer
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if wrong := s.misplaced(); wrong != nil {
			s.mu.Lock()
			again := s.misused
			s.misused = true
			s.mu.Unlock()
			if !again {
				s.t.Error(wrong)
			}
			return nil, wrong
		}
		return dial(ctx, network, addr)
	}
	return options
}

func (s *Server) newClient() (*link, *redis.Client) {
	l := s.newLink()
	client := redis.NewClient(s.options(l))
	s.t.Cleanup(func() { _ = client.Close() })
	return l, client
}

// Silence cuts the server off, as if the network lost all packets. Connections stay open, requests have no
// effect, and clients get no replies. If sessions are given, only these sessions are cut off. Silence lasts
// until Resume or Restart.
func (s *Server) Silence(sessions ...*rlock.Session) {
	s.t.Helper()
	s.fault("Silence", sessions, &s.silent, func(p *faultproxy.Proxy) { p.BlackHole(true, true) })
}

// Refuse cuts all connections, and refuses new connections. The server keeps its data. If sessions are given,
// only the connections of these sessions are cut and refused. Refuse lasts until Resume or Restart.
func (s *Server) Refuse(sessions ...*rlock.Session) {
	s.t.Helper()
	s.fault("Refuse", sessions, &s.refuses, func(p *faultproxy.Proxy) { p.Refuse(true) })
}

// Fail makes the server answer every command of every client with this error. The text of the error should
// begin with a word in capitals, as in "LOADING Redis is loading the dataset in memory". If the text is
// empty, the test fails. Fail lasts until a Resume without sessions, or until Restart.
func (s *Server) Fail(reply string) {
	s.t.Helper()
	if reply == "" {
		s.t.Error("locktest: Fail: the error is empty; Resume ends a Fail")
		return
	}
	s.redis.SetError(reply)
}

// Resume ends Silence, Refuse and Fail for all clients. The server still has its data, except for expired
// keys. If sessions are given, Resume only ends each Silence and Refuse that was called with these sessions.
// In this case, Resume ends no Fail, and no Silence or Refuse that was called without sessions.
func (s *Server) Resume(sessions ...*rlock.Session) {
	s.t.Helper()
	if len(sessions) == 0 {
		s.redis.SetError("")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	links, ok := s.of("Resume", sessions)
	if !ok {
		return
	}
	if len(sessions) == 0 {
		s.silent, s.refuses = false, false
	}
	for _, l := range links {
		l.faulty = s.silent || s.refuses
		l.net.BlackHole(s.silent, s.silent)
		l.net.Refuse(s.refuses)
	}
}

// Restart ends the server and starts it again without data, like a Redis without persistence. Connections are
// cut, and all locks, waiters and tokens are gone. Restart ends Silence, Refuse and Fail. It notifies the
// sessions of the server, as [Server.Lose] does. (In production, a session that neither waits nor sends a
// request would not notice the restart before its next renewal.) In fake time, Restart takes some
// milliseconds.
func (s *Server) Restart() {
	s.t.Helper()
	before := s.begun()
	s.redis.SetError("") // during a Fail, the server would refuse the SCRIPT FLUSH of Kill
	s.redis.Kill()
	time.Sleep(time.Millisecond) // tokens are times, and new ones must be higher than all forgotten ones
	s.Resume()
	s.redis.Serve()
	s.confirmHolds("Restart", before, func(lock) bool { return true })
}

// sessions returns the links that have a session.
func (s *Server) sessions() (links []*link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		if l.session != nil {
			links = append(links, l)
		}
	}
	return links
}

// fault calls `do` with the proxy of each of these sessions. Without sessions, fault calls `do` with the
// proxies of all links, and sets *all, so that newLink gives later links the same fault.
func (s *Server) fault(method string, sessions []*rlock.Session, all *bool, do func(*faultproxy.Proxy)) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	links, ok := s.of(method, sessions)
	if !ok {
		return
	}
	if len(sessions) == 0 {
		*all = true
	}
	for _, l := range links {
		l.faulty = true
		do(l.net)
	}
}

// of returns the links of these sessions, or all links if no session is given. If NewSession of s has not
// made one of the sessions, the test fails, and ok is false. The caller must hold s.mu.
func (s *Server) of(method string, sessions []*rlock.Session) (links []*link, ok bool) {
	s.t.Helper()
	if len(sessions) == 0 {
		return s.links, true
	}
	for _, session := range sessions {
		i := slices.IndexFunc(s.links, func(l *link) bool { return session != nil && l.session == session })
		if i < 0 {
			s.t.Errorf("locktest: %s: the session was not made by NewSession of this server", method)
			return nil, false
		}
		links = append(links, s.links[i])
	}
	return links, true
}

func (s *Server) newProxy() *faultproxy.Proxy {
	p := s.redis.Proxy()
	p.StopRecording()
	return p
}

func (s *Server) newLink() *link {
	l := &link{net: s.newProxy()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = append(s.links, l)
	l.faulty = s.silent || s.refuses
	l.net.BlackHole(s.silent, s.silent)
	if s.refuses {
		l.net.Refuse(true)
	}
	return l
}

// A misplacedError is the error of a server that was made outside the synctest bubble which uses it.
type misplacedError struct{}

func (misplacedError) Error() string {
	return "locktest: the server was made outside the synctest bubble that uses it: " +
		"call NewServer or NewSession in the bubble, with the T of the bubble"
}

// Unwrap returns an error that Lockline takes for a wrong setting, so a waiting Lock fails at once. Otherwise
// Lock would try again after a pause. The pause might never end, because the clock of a bubble stops while
// the bubble waits for something outside.
func (misplacedError) Unwrap() error { return net.UnknownNetworkError("in the bubble") }

// misplaced returns an error if its caller runs in a bubble, and the server was made outside all bubbles. The
// clock of a bubble begins in the year 2000, so such a caller seems to run long before the server was made.
func (s *Server) misplaced() error {
	if time.Now().Round(0).Before(s.born.Round(0).Add(-24 * time.Hour)) { // Round(0) selects the wall clock
		return misplacedError{}
	}
	return nil
}

// newLogger returns a logger that writes to the log of the test. After the test has ended, it drops lines.
func newLogger(t testing.TB) *slog.Logger {
	l := &testLog{t: t}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.over = true
	})
	return slog.New(slog.NewTextHandler(l, nil))
}

type testLog struct {
	t    testing.TB
	mu   sync.Mutex // guards over
	over bool
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return len(p), nil
	}
	return l.t.Output().Write(p)
}
