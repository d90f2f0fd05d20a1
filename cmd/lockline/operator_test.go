package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	redisserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

// nameOf returns the name of a lock, even if the name is not valid UTF-8.
func nameOf(s lockState) string {
	if s.NameBytes != nil {
		return string(s.NameBytes)
	}
	return s.Name
}

// awkward returns names of locks with the characters that separate the parts of keys, and with other special
// characters.
func awkward() []string {
	names := []string{"orders:42", "}", "}x", `\`, `\}`, `\\x`, "{", "{}", "a}:t", "a}:q", "{a}", "x:{y}",
		"ünï", "a\nb", "\xff\xfe", " ", "*", "[a]", "/a/b", "-x"}
	parts := []string{"{", "}", `\`, ":", "q", "t", "r", "*", "?", "[", "]", "/", " ", "\x00", "\xff"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var name strings.Builder
		for range 1 + random.IntN(6) {
			name.WriteString(parts[random.IntN(len(parts))])
		}
		names = append(names, name.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func difference(a, b []string) (only []string) {
	for _, s := range slices.Concat(a, b) {
		if slices.Contains(a, s) != slices.Contains(b, s) {
			only = append(only, s)
		}
	}
	return only
}

func TestLsFindsEveryLockByItsName(t *testing.T) {
	for _, prefix := range []string{"lockline", "a*[b]?", "{app}"} {
		m := miniredis.RunT(t)
		rdb := testlock.Client(t, m.Addr())
		session := testlock.NewSession(t, rdb, rlock.WithPrefix(prefix))
		other := testlock.NewSession(t, rdb, rlock.WithPrefix(prefix+"2"))
		names := awkward()
		var want, got []string
		for _, name := range names {
			take(t, rlock.New(session, name))
			take(t, rlock.New(other, name+" of another prefix"))
			want = append(want, "reentrant "+name)
			if len(name)%2 == 0 {
				take(t, fairlock.New(session, name))
				want = append(want, "fair "+name)
			}
			if len(name)%3 == 0 {
				take(t, testlock.RedLock(name, session))
				want = append(want, "redlock "+name)
			}
		}
		for _, s := range operateJSON[[]lockState](t, m.Addr(), "ls", "--prefix", prefix) {
			got = append(got, s.Kind+" "+nameOf(s))
			if !s.Held || s.Holder == nil || s.Kind != "redlock" && s.Holder.Session != session.ID() ||
				s.Holder.PID != os.Getpid() || s.Count != 1 || s.Error != "" {
				t.Errorf("%+v", s)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("prefix %q: found %d locks, want %d; only there: %q", prefix, len(got), len(want),
				difference(got, want))
		}
	}
}

// An operator who wants to restart a server of a RedLock must know how many servers have its holder. So
// inspect shows the part on each server.
func TestInspectShowsOnWhichServersARedLockIs(t *testing.T) {
	var servers []string
	var sessions []*rlock.Session
	args := []string{"inspect"}
	first := miniredis.RunT(t)
	for _, m := range []*miniredis.Miniredis{first, miniredis.RunT(t), miniredis.RunT(t)} {
		servers = append(servers, m.Addr())
		sessions = append(sessions, testlock.NewSession(t, testlock.Client(t, m.Addr())))
		if m != first {
			args = append(args, "--also", "redis://"+m.Addr())
		}
	}
	args = append(args, "x")
	wants := func(verdict string, parts ...string) {
		t.Helper()
		out, _, _ := operate(t, servers[0], args...)
		for i, part := range parts {
			if line := fmt.Sprintf("  %-24s %s", servers[i], part); !strings.Contains(out, line) {
				t.Errorf("no %q in\n%s", line, out)
			}
		}
		if !strings.HasSuffix(out, verdict+"\n") {
			t.Errorf("not %q:\n%s", verdict, out)
		}
	}
	wants("no majority: the same holder is on 0 of 3 servers at most", "free", "free", "free")
	hold := testlock.Take(t, testlock.RedLock("x", sessions...))
	mine := fmt.Sprintf("process %d on", os.Getpid())
	wants("held on all 3 servers named: one of them may restart, if these are all", mine, mine, mine)
	all := args
	args = slices.Concat(args[:3], []string{"x"}) // names only two of the three servers
	wants("held on 2 of 2: name all servers to see whether one may restart", mine, mine)
	for wrong, says := range map[string]string{
		"--also redis://" + servers[0]:                                "is named twice",
		"--kind fair --also redis://" + servers[1]:                    "--also is for a RedLock",
		"--redisson --also redis://" + servers[1]:                     "--also is for a RedLock",
		"--also redis://" + servers[1] + " --also redis://nonsense:x": "--also is not a Redis URL",
	} {
		args := append([]string{"inspect", "x"}, strings.Fields(wrong)...)
		_, errOut, code := operate(t, servers[0], args...)
		if code != exitTrouble || !strings.Contains(errOut, says) {
			t.Errorf("%s: exit code %d: %s", wrong, code, errOut)
		}
	}
	args = all
	first.RequireAuth("secret") // a password that --redis does not have
	wants("held on 2 of 3 servers: restart none that has the holder",
		"lock \"x\": 0 of 1 servers answered, 1 are needed: server "+servers[0]+": NOAUTH", mine, mine)
	first.Close() // the server that --redis names
	wants("held on 2 of 3 servers: restart none that has the holder", "", mine, mine)
	testlock.Unlock(t, hold)
	wants("no majority: the same holder is on 0 of 3 servers at most", "", "free", "free")
}

func TestHintsAreOfTheCommandLine(t *testing.T) {
	m := theirRedis(t)
	m.SetError("ERR This instance has cluster support disabled")
	for _, command := range []string{"ls", "inspect"} {
		out, errOut, code := operate(t, m.Addr()+"?addr="+m.Addr(), command, "x")
		if code != exitTrouble || strings.Count(errOut, "take ?addr out of the URL of --redis)") != 1 {
			t.Errorf("%s: exit code %d: %s%s", command, code, out, errOut)
		}
	}
}

func TestLsPatternsAreOfNames(t *testing.T) {
	m := theirRedis(t)
	session := testlock.NewSession(t, testlock.Client(t, m.Addr()))
	for _, name := range []string{"orders:1", "orders:2", "stock/a", "}x", `\y`} {
		take(t, rlock.New(session, name))
	}
	for pattern, want := range map[string]int{"*": 5, "orders:*": 2, "orders:[2-9]": 1, "stock*": 1, "?x": 1,
		`\\*`: 1, `\}x`: 1, "none": 0} {
		if got := operateJSON[[]lockState](t, m.Addr(), "ls", pattern); len(got) != want {
			t.Errorf("%q finds %d locks, want %d: %+v", pattern, len(got), want, got)
		}
	}
	if _, errOut, code := operate(t, m.Addr(), "ls", "[a"); code != exitTrouble ||
		!strings.Contains(errOut, "not a pattern") {
		t.Errorf("a broken pattern: exit code %d, %s", code, errOut)
	}
}

// A busy server keeps metadata of very many free locks. So ls must not send a request for each of them.
func TestLsInspectsNoLockThatIsFree(t *testing.T) {
	m := theirRedis(t)
	rdb := testlock.Client(t, m.Addr())
	session := testlock.NewSession(t, rdb)
	for i := range 10 {
		for _, newMutex := range testlock.Kinds {
			testlock.Works(t, newMutex(session, fmt.Sprint("free ", i)))
		}
		testlock.Works(t, testlock.RedLock(fmt.Sprint("free ", i), session))
	}
	take(t, rlock.New(session, "held"))
	take(t, fairlock.New(session, "over"))
	m.HSet("lockline:f:{over}", "ends", "1")
	m.HSet("lockline:f:{waited for}", "lives", "1", "queued", "1")
	_, err := m.ZAdd("lockline:f:{waited for}:q", 1, "s:1")
	testlock.Must(t, err)
	inspected := 0
	m.Server().SetPreHook(func(_ *redisserver.Peer, _ string, args ...string) bool {
		if len(args) > 0 && testlock.Script(args[0]) == "inspect" {
			inspected++
		}
		return false
	})
	got := operateJSON[[]lockState](t, m.Addr(), "ls")
	m.Server().SetPreHook(nil)
	if len(got) != 2 || got[0].Name != "held" || !got[0].Held || got[1].Name != "waited for" ||
		got[1].Held || len(got[1].Queue) != 1 {
		t.Errorf("%+v", got)
	}
	if inspected < 2 || inspected > 4 { // each request may be repeated with the script's text
		t.Errorf("%d locks were inspected", inspected)
	}
}

func TestLsShowsWhatItCannotRead(t *testing.T) {
	m := theirRedis(t)
	rdb := testlock.Client(t, m.Addr())
	must := func(err error) {
		testlock.Must(t, err)
	}
	must(rdb.Set(t.Context(), "lockline:r:{text}", "1", 0).Err())
	must(rdb.HSet(t.Context(), "lockline:zz:{newer\xff}", "owner", "1").Err())
	must(rdb.ZAdd(t.Context(), "lockline:f:{dead holder}:q", redis.Z{Score: 1, Member: "s:1"}).Err())
	// The next key is a lock of an older version.
	must(rdb.HSet(t.Context(), "lockline:f:{older}", "s:1", "1", "t", "5", "s", "0", "d", "").Err())
	// The next key is the queue of a RedLock.
	must(rdb.HSet(t.Context(), "lockline:t:{line}", "owner", "s:1").Err())
	must(rdb.HSet(t.Context(), "lockline:l:{latch}", "n", "1", "w", "1").Err()) // a latch without a run id
	got := operateJSON[[]lockState](t, m.Addr(), "ls")
	if len(got) != 5 || got[0].Name != "dead holder" || len(got[0].Queue) != 1 || got[0].Held ||
		got[1].Name != "latch" || got[1].Count != 1 ||
		string(got[2].NameBytes) != "newer\xff" || got[2].Error == "" ||
		got[3].Name != "older" || !strings.Contains(got[3].Error, "an older version of Lockline") ||
		got[4].Name != "text" || got[4].Error == "" {
		t.Errorf("%+v", got)
	}
	out, _, _ := operate(t, m.Addr(), "ls")
	if strings.Count(out, "\n") != 6 {
		t.Errorf("not a table of five: %s", out)
	}
}

func TestInspectShowsHolderAndQueueInOrder(t *testing.T) {
	m := theirRedis(t)
	rdb := testlock.Client(t, m.Addr())
	holder := testlock.NewSession(t, rdb, rlock.WithLabel("till 3"))
	waiting := testlock.NewSession(t, rdb, rlock.WithLabel("till \u202e4"))
	later := testlock.NewSession(t, rdb)
	hold := take(t, fairlock.New(holder, "drawer", rlock.WithNote("order 42")))
	wait(t, fairlock.New(waiting, "drawer"))
	wait(t, fairlock.New(later, "drawer", rlock.WithNote("order \u202e43")))
	wait(t, fairlock.New(later, "drawer"))

	states := operateJSON[[]lockState](t, m.Addr(), "inspect", "drawer")
	if len(states) != len(lockKinds) || states[0].Held || !states[1].Held {
		t.Fatalf("%+v", states)
	}
	s := states[1]
	host, _ := os.Hostname()
	if s.Holder.Label != "till 3" || s.Holder.PID != os.Getpid() || s.Holder.Host != host ||
		s.Token != hold.Token() || s.RemainingMS <= 0 || s.Holder.Note != "order 42" {
		t.Errorf("%+v, %+v", s, s.Holder)
	}
	if len(s.Queue) != 3 || s.Queue[0].Session != waiting.ID() || s.Queue[0].Note != "" ||
		s.Queue[1].Note != "order \u202e43" || s.Queue[0].Owner != waiting.ID()+":1" ||
		s.Queue[1].Owner != later.ID()+":1" || s.Queue[2].Owner != later.ID()+":2" {
		t.Errorf("queue %+v", s.Queue)
	}

	if line := s.line(); !strings.Contains(line, `(till 3, note "order 42")`) {
		t.Errorf("watch writes %s", line)
	}
	out, _, code := operate(t, m.Addr(), "inspect", "drawer")
	if code != exitOK || strings.Contains(out, "reentrant") || strings.Contains(out, "\u202e") ||
		strings.Index(out, waiting.ID()+":1") > strings.Index(out, later.ID()+":1") ||
		!strings.Contains(out, `(till 3, note "order 42")`) ||
		!strings.Contains(out, `(no label, note "order \u202e43")`) {
		t.Errorf("exit code %d: %s", code, out)
	}
	for _, command := range []string{"ls", "ls --waits", "unlock --force --token 1"} {
		args := append(strings.Fields(command), "drawer")
		out, errOut, _ := operate(t, m.Addr(), args...)
		if !strings.Contains(out+errOut, `(till 3, note "order 42")`) {
			t.Errorf("%s: %s%s", command, out, errOut)
		}
	}
	if out, _, _ := operate(t, m.Addr(), "inspect", "other"); out != "other  free (prefix lockline)\n" {
		t.Errorf("a lock that nobody has: %s", out)
	}
}

func TestALockThatIsKeptBeyondItsHoldIsSaidToBe(t *testing.T) {
	m := theirRedis(t)
	session := testlock.NewSession(t, testlock.Client(t, m.Addr()))
	hold := testlock.Take(t, fairlock.New(session, "x"), rlock.HoldAtLeast(time.Minute))
	const kept = "(no label) (has unlocked: HoldAtLeast)"
	if out, _, _ := operate(t, m.Addr(), "inspect", "x"); strings.Contains(out, kept) {
		t.Errorf("while it is held: %s", out)
	}
	testlock.Must(t, hold.Unlock(t.Context()))
	for _, command := range []string{"inspect", "ls"} {
		if out, errOut, _ := operate(t, m.Addr(), command, "x"); !strings.Contains(out, kept) {
			t.Errorf("%s: %s%s", command, out, errOut)
		}
	}
	if _, errOut, code := operate(t, m.Addr(), "unlock", "--force", "x"); code != exitOK {
		t.Errorf("unlock: %s", errOut)
	}
}

func TestForcedUnlockFreesOneLock(t *testing.T) {
	m := theirRedis(t)
	session := testlock.NewSession(t, testlock.Client(t, m.Addr()))
	plain, fair := rlock.New(session, "x"), fairlock.New(session, "x")
	hold := take(t, plain)
	take(t, fair)

	for _, args := range [][]string{{"unlock", "x"}, {"unlock", "--force", "x"}, {"unlock", "--force"},
		{"unlock", "--force", "--kind", "odd", "x"}} {
		args = append(args, "--json")
		out, errOut, code := operate(t, m.Addr(), args...)
		if code != exitTrouble || errOut == "" || out != "" {
			t.Errorf("%v: exit code %d: %s%s", args, code, out, errOut)
		}
	}
	got := operateJSON[freed](t, m.Addr(), "unlock", "--force", "--kind", "reentrant", "x")
	if !got.Freed || got.Was.Token != hold.Token() || got.Was.Kind != "reentrant" {
		t.Errorf("%+v", got)
	}
	if st, err := fair.Inspect(t.Context()); err != nil || !st.Held {
		t.Errorf("the other lock: %+v, %v", st, err)
	}
	out, _, code := operate(t, m.Addr(), "unlock", "--force", "x") // only the fair lock is left
	if code != exitOK || !strings.Contains(out, "fair, freed") {
		t.Errorf("exit code %d: %s", code, out)
	}
	out, errOut, code := operate(t, m.Addr(), "unlock", "--force", "--json", "x")
	if code != exitWrong || !strings.Contains(errOut, `lock "x" (prefix lockline): not held`) {
		t.Errorf("nobody holds it, yet exit code %d: %s", code, errOut)
	}
	if got := decoded[freed](t, out); got.Freed || got.Was != nil || got.Held == nil || len(got.Held) > 0 {
		t.Errorf("nobody holds it, yet %s", out)
	}
}

func TestAForcedUnlockOfWhatIsNotHeldNamesWhatIs(t *testing.T) {
	m := theirRedis(t)
	session := testlock.NewSession(t, testlock.Client(t, m.Addr()))
	hold := take(t, rlock.New(session, "x"))
	set, err := latch.New(session, "y").TrySet(t.Context(), 2)
	if err != nil || !set {
		t.Fatal(set, err)
	}
	const aLatch = `; "y" is a latch (count 2), which is no lock: there is nothing to free`
	for args, says := range map[string]string{
		"--kind fair x": `lock "x" (fair, prefix lockline): not held; ` +
			`the reentrant lock of this name is held: --kind reentrant`,
		"y":              `lock "y" (prefix lockline): not held` + aLatch,
		"--kind latch y": `lock "y" (latch, prefix lockline): not held` + aLatch,
		"--kind fair y":  `lock "y" (fair, prefix lockline): not held` + aLatch,
		"z":              `lock "z" (prefix lockline): not held`,
		"--redisson x":   `lock "x" (shared with Redisson): not held`,
	} {
		line := append([]string{"unlock", "--force"}, strings.Fields(args)...)
		_, errOut, code := operate(t, m.Addr(), line...)
		if code != exitWrong || errOut != "lockline: "+says+"\n" {
			t.Errorf("%s: exit code %d: %s", args, code, errOut)
		}
	}
	if hold.Err() != nil {
		t.Error(hold.Err())
	}
}

func TestForcedUnlockWithATokenFreesTheHoldThatWasSeen(t *testing.T) {
	m := theirRedis(t)
	session := testlock.NewSession(t, testlock.Client(t, m.Addr()), rlock.WithLabel("till 3"))
	first := take(t, fairlock.New(session, "x"))
	seen := fmt.Sprint(first.Token())
	testlock.Must(t, first.Unlock(t.Context()))
	_, errOut, code := operate(t, m.Addr(), "unlock", "--force", "--token", seen, "x")
	if code != exitWrong || !strings.Contains(errOut, "not held") {
		t.Errorf("nobody holds it: exit code %d: %s", code, errOut)
	}
	hold := take(t, fairlock.New(session, "x"))
	take(t, rlock.New(session, "x")) // a second lock named x; the token names the lock that is meant
	out, errOut, code := operate(t, m.Addr(), "unlock", "--force", "--token", seen, "--json", "x")
	got := decoded[freed](t, out)
	if code != exitWrong || got.Freed || got.Was != nil || len(got.Held) != 2 ||
		!strings.Contains(errOut, fmt.Sprintf("(till 3) holds it with token %d (fair)", hold.Token())) {
		t.Errorf("somebody else holds it: exit code %d: %s%s", code, out, errOut)
	}
	for _, args := range [][]string{{"--token", "0"}, {"--token", "-1"}, {"--token", "x"}} {
		args = append([]string{"unlock", "--force", "x"}, args...)
		if _, errOut, code := operate(t, m.Addr(), args...); code != exitTrouble {
			t.Errorf("%v: exit code %d: %s", args, code, errOut)
		}
	}
	if hold.Err() != nil {
		t.Error(hold.Err())
	}
	its := fmt.Sprint(hold.Token())
	out, errOut, code = operate(t, m.Addr(), "unlock", "--force", "--token", its, "x")
	if code != exitOK || !strings.Contains(out, "fair, freed") {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
}

// The command finds a holder of the lock. Before it sends its request, the lock gets a new holder.
func TestForcedUnlockWithATokenLeavesTheNextHolderAlone(t *testing.T) {
	m := theirRedis(t)
	rdb := testlock.Client(t, m.Addr())
	for _, k := range lockKinds {
		if k.open == nil {
			continue
		}
		lock := k.open(testlock.NewSession(t, rdb), "x")
		first := take(t, lock)
		var out bytes.Buffer
		o := &operator{prefix: "lockline", kinds: []lockKind{k}, name: "x", json: true, out: &out, rdb: rdb,
			session: testlock.NewSession(t, rdb)}
		held, err := o.held(t.Context())
		if err != nil || len(held) != 1 {
			t.Fatalf("%v, %v", held, err)
		}
		testlock.Must(t, first.Unlock(t.Context()))
		next := take(t, lock)
		err = o.forceUnlock(t.Context(), held[0], held[0].Token)
		if exit, ok := errors.AsType[*exitError](err); !ok || exit.code != exitWrong ||
			!strings.Contains(err.Error(), fmt.Sprintf("holds it with token %d (%v)", next.Token(), k.Kind)) {
			t.Errorf("%s: %v", k.String(), err)
		}
		if got := decoded[freed](t, out.String()); got.Freed || len(got.Held) != 1 ||
			got.Held[0].Token != next.Token() {
			t.Errorf("%s: %s", k.String(), &out)
		}
		if st, err := lock.state(t.Context()); err != nil || st.Token != next.Token() || !st.Held {
			t.Errorf("%s: %+v, %v", k.String(), st, err)
		}
	}
}

func TestOperatorsSeeLocksSharedWithRedisson(t *testing.T) {
	m := theirRedis(t)
	session := testlock.NewSession(t, testlock.Client(t, m.Addr()))
	hold := take(t, redisson.New(session, "x"))
	take(t, redisson.New(session, "a{b}"))
	take(t, redisson.New(session, "{x}"))
	got := operateJSON[[]lockState](t, m.Addr(), "ls", "--redisson")
	if len(got) != 3 || got[0].Name != "a{b}" || got[1].Name != "x" || got[1].Token != hold.Token() ||
		got[2].Name != "{x}" {
		t.Errorf("%+v", got)
	}
	if got := operateJSON[freed](t, m.Addr(), "unlock", "--redisson", "--force", "x"); !got.Freed {
		t.Errorf("%+v", got)
	}
}

// A safeBuffer can be read while another goroutine writes to it.
type safeBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestWatchWritesEachChange(t *testing.T) {
	m := theirRedis(t)
	session := testlock.NewSession(t, testlock.Client(t, m.Addr()), rlock.WithLabel("till 3"))
	lock := rlock.New(session, "x")
	out := &safeBuffer{}
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int)
	go func() {
		var errOut bytes.Buffer
		code <- run(ctx, []string{"lockline", "watch", "--redis", "redis://" + m.Addr(), "--json",
			"--interval", "2ms", "--kind", "r", "x"}, out, &errOut)
	}()
	sights := func() (s []sight) {
		for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			var one sight
			if json.Unmarshal([]byte(line), &one) == nil {
				s = append(s, one)
			}
		}
		return s
	}
	seen := func(n int) func() bool { return func() bool { return len(sights()) >= n } }
	testlock.Eventually(t, "free", seen(1))
	first := take(t, rlock.New(session, "x", rlock.WithNote("order 42")))
	testlock.Eventually(t, "held", seen(2))
	testlock.Must(t, first.Unlock(t.Context()))
	testlock.Eventually(t, "free again", seen(3))
	second := take(t, lock)
	testlock.Eventually(t, "held again", seen(4))
	cancel()
	if c := <-code; c != exitInterrupted {
		t.Errorf("exit code %d", c)
	}
	got := sights()
	if len(got) != 4 || got[0].Held || !got[1].Held || got[1].Token != first.Token() || got[2].Held ||
		got[3].Token != second.Token() ||
		got[1].Holder.Label != "till 3" || got[1].Holder.Note != "order 42" || got[3].At.Before(got[1].At) {
		t.Errorf("%+v", got)
	}
}

func TestWatchOutlivesAnOutage(t *testing.T) {
	m := theirRedis(t)
	out, errOut := &safeBuffer{}, &safeBuffer{}
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int)
	go func() {
		code <- run(ctx, []string{"lockline", "watch", "--redis", "redis://" + m.Addr(), "--interval", "2ms",
			"--kind", "f", "x"}, out, errOut)
	}()
	testlock.Eventually(t, "free", func() bool { return strings.Contains(out.String(), "free") })
	m.Close()
	testlock.Eventually(t, "trouble", func() bool { return strings.Contains(errOut.String(), "lockline: ") })
	testlock.Must(t, m.Restart())
	take(t, fairlock.New(testlock.NewSession(t, testlock.Client(t, m.Addr())), "x"))
	testlock.Eventually(t, "held", func() bool { return strings.Contains(out.String(), "held by process") })
	if !strings.HasSuffix(errOut.String(), "Redis answers again\n") {
		t.Errorf("after the outage: %s", errOut)
	}
	cancel()
	if c := <-code; c != exitInterrupted {
		t.Errorf("exit code %d", c)
	}
}

func TestShellsCompleteCommandsAndFlags(t *testing.T) {
	program := os.Args // the completion of the root command reads os.Args
	t.Cleanup(func() { os.Args = program })
	for args, want := range map[string]string{
		"lockline --generate-shell-completion":            "inspect",
		"lockline unlock --f --generate-shell-completion": "--force",
	} {
		var out, errOut bytes.Buffer
		os.Args = strings.Fields(args)
		if code := run(t.Context(), os.Args, &out, &errOut); code != exitOK ||
			!strings.Contains(out.String(), want) {
			t.Errorf("%s: exit code %d, %s%s", args, code, &out, &errOut)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "pwsh"} {
		var script, errOut bytes.Buffer
		code := run(t.Context(), []string{"lockline", "completion", shell}, &script, &errOut)
		if code != exitOK || !strings.Contains(script.String(), "generate-shell-completion") {
			t.Errorf("%s: exit code %d, %s%s", shell, code, &script, &errOut)
		}
	}
}
