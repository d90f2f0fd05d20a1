// Package testredis starts real servers of Redis or Valkey for tests. It starts single servers, Clusters, and
// masters with Sentinels. Each server listens at 127.0.0.1 and has a temporary folder. Each server ends with
// the test that started it, except the server of Shared, which ends after all tests of the package.
package testredis

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience limits each wait for a server or a group of them to become ready.
const patience = 30 * time.Second

// A Server is one server process.
type Server struct {
	Addr string

	t    testing.TB
	bin  string
	port int
	dir  string
	args []string

	mu     sync.Mutex // guards the fields below
	proc   *os.Process
	exited chan struct{} // closed when proc has exited and was waited for
}

// Start starts a server without persistence. args has further options of the command line, for example
// "--appendonly", "yes". If there is no binary, the test is skipped. With LOCKLINE_REQUIRE_REDIS=1, the test
// fails instead. The server ends with the test. If the test has failed, the output of the server is logged.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return startWith(t, func(*Server) []string {
		return append([]string{"--save", "", "--appendonly", "no"}, args...)
	})
}

// StartReplica starts a replica of s, as Start does, and returns when the replica is in sync. A replica does
// not inherit options from its master, so args must repeat the options that the replica needs.
func (s *Server) StartReplica(t testing.TB, args ...string) *Server {
	t.Helper()
	// By default, the master waits for further replicas for 5 s.
	must(t, s.Client(t).ConfigSet(t.Context(), "repl-diskless-sync-delay", "0").Err())
	replica := Start(t, append([]string{"--repl-diskless-sync-delay", "0",
		"--replicaof", "127.0.0.1", strconv.Itoa(s.port)}, args...)...)
	client := replica.Client(t)
	await(t, func() string { return outOfSync(t.Context(), client) })
	return replica
}

// Binary returns the path of the binary that Start runs. The environment variable LOCKLINE_REDIS_SERVER can
// name the binary. If the variable is not set, Binary looks for redis-server and then valkey-server in the
// PATH. ok is false if there is no binary.
func Binary() (path string, ok bool) {
	names := []string{"redis-server", "valkey-server"}
	if name := os.Getenv("LOCKLINE_REDIS_SERVER"); name != "" {
		names = []string{name}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}

var warnOnce sync.Once

func requireBinary(t testing.TB) string {
	t.Helper()
	bin, ok := Binary()
	if ok {
		return bin
	}
	const missing = "no redis-server or valkey-server found: install Redis or Valkey " +
		"(for example: apt-get install redis-server), or name the binary in LOCKLINE_REDIS_SERVER"
	if os.Getenv("LOCKLINE_REQUIRE_REDIS") == "1" {
		t.Fatal("testredis: " + missing)
	}
	// go test shows the reason of a skip only with -v.
	warnOnce.Do(func() { fmt.Fprintln(os.Stderr, "testredis: SKIPPING TESTS: "+missing) })
	t.Skip("testredis: SKIPPED: " + missing)
	return ""
}

// startWith starts a server whose arguments depend on its port and directory.
func startWith(t testing.TB, args func(*Server) []string) *Server {
	t.Helper()
	bin := requireBinary(t)
	for attempt := 1; ; attempt++ {
		s := &Server{t: t, bin: bin, dir: t.TempDir(), port: FreePort(t)}
		s.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
		s.args = args(s)
		err := s.launch()
		if err == nil {
			t.Cleanup(func() {
				s.Kill()
				if t.Failed() {
					t.Logf("output of the server at %s:\n%s", s.Addr, s.output())
				}
			})
			return s
		}
		s.Kill()
		if attempt == 3 {
			t.Fatalf("testredis: %v\n%s", err, s.output())
		}
	}
}

// FreePort returns a free port. The port that is 10000 higher is free, too, because a node of a Cluster uses
// it for the bus. Both ports are below 32768, where the ports of outgoing connections begin on Linux. So no
// outgoing connection can take the port of a server while the server restarts.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 10000 + rand.IntN(12000)
		if isFree(port) && isFree(port+10000) {
			return port
		}
	}
	t.Fatal("testredis: no free port")
	return 0
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// launch starts the process and waits until it serves.
func (s *Server) launch() error {
	out, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()

	// A configuration file in args must stay the first argument.
	args := append(s.args[:len(s.args):len(s.args)],
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--daemonize", "no")
	cmd := exec.Command(s.bin, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = EndWithParent()
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	s.mu.Lock()
	s.proc, s.exited = cmd.Process, exited
	s.mu.Unlock()

	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if s.serves(cmd.Process.Pid) {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("the server at %s ended at once", s.Addr)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("the server at %s does not answer", s.Addr)
}

// serves reports whether the server answers. Because two tests may have chosen the same port, serves checks
// that the process pid answers. If args set a password, this check is not possible, and serves returns true.
func (s *Server) serves(pid int) bool {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, "PING\r\nINFO server\r\nQUIT\r\n"); err != nil {
		return false
	}
	lines := bufio.NewScanner(conn)
	if !lines.Scan() || strings.HasPrefix(lines.Text(), "-LOADING") {
		return false
	}
	if strings.HasPrefix(lines.Text(), "-NOAUTH") { // args set a password, so INFO fails, too
		return true
	}
	for lines.Scan() {
		if id, ok := strings.CutPrefix(lines.Text(), "process_id:"); ok {
			return id == strconv.Itoa(pid)
		}
	}
	return false
}

// Client returns a client of the server. The client has the default options of go-redis, changed by mod. It
// is closed when the test t ends.
func (s *Server) Client(t testing.TB, mod ...func(*redis.Options)) *redis.Client {
	opt := &redis.Options{Addr: s.Addr}
	for _, m := range mod {
		m(opt)
	}
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// PID returns the process id.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Pid
}

// Freeze stops the process with SIGSTOP, and returns when the process has stopped. Its connections stay open,
// and the kernel still accepts new connections.
func (s *Server) Freeze() {
	s.t.Helper()
	s.signal(StopSignal)
	// The kernel may deliver the signal a moment after the call returns.
	for deadline := time.Now().Add(patience); !standsStill(s.PID()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Errorf("testredis: the server at %s does not stop", s.Addr)
			return
		}
	}
}

// Thaw continues a process after Freeze.
func (s *Server) Thaw() {
	s.t.Helper()
	s.signal(ContinueSignal)
}

func (s *Server) signal(sig os.Signal) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.proc.Signal(sig); err != nil {
		s.t.Errorf("testredis: %v to the server at %s: %v", sig, s.Addr, err)
	}
}

// Kill ends the process with SIGKILL, even if the process is frozen, and returns when the process has ended.
func (s *Server) Kill() {
	s.mu.Lock()
	proc, exited := s.proc, s.exited
	s.mu.Unlock()
	if proc == nil {
		return // the process was never started
	}
	_ = proc.Kill() // an error means that the process has ended
	<-exited
}

// Restart kills the process if it runs, and starts a new one on the same port and in the same folder. It
// returns when the server answers. The data are lost, unless the args of Start had options for persistence.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill()
	if err := s.launch(); err != nil {
		t.Fatalf("testredis: restart: %v\n%s", err, s.output())
	}
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "output.log") }

// output returns the last 4096 bytes of the server's output.
func (s *Server) output() string {
	b, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4096):])
}

// await polls until ready returns "". If this takes longer than patience, await stops the test with the last
// text of ready.
func await(t testing.TB, ready func() (missing string)) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for missing := ready(); missing != ""; missing = ready() {
		if time.Now().After(deadline) {
			t.Fatalf("testredis: not ready after %v: %s", patience, missing)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
