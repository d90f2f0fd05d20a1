// Package protocols tests programs with the present protocol beside programs with a former protocol. For each
// former protocol, testdata has the last version of the scripts that take a lock or permits. CHANGELOG.md has
// a table of protocols.
package protocols

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

//go:embed testdata
var scripts embed.FS

// A former is a kind of lock in programs that use a former protocol.
type former struct {
	protocol int
	letter   string // letter of the kind, in the key
	permits  string // number of permits to take; "": a lock without permits
	limit    string // number of all permits
}

// acquire sends the request of a TryLock by a session of the former protocol, and returns the reply or the
// text of the error.
func (f former) acquire(t *testing.T, w *testlock.Wire, session string) string {
	t.Helper()
	key := "lockline:" + f.letter + ":{x}"
	keys := []string{key, key + ":t", key + ":q", key + ":a", key + ":d"}
	file, number := "lock", "1"
	switch {
	case f.permits != "":
		keys, file, number = append(keys, key+":h"), "permit", f.permits
	case f.protocol == 2:
		keys = []string{key, key + ":q", key + ":w"}
	}
	text, err := scripts.ReadFile(fmt.Sprintf("testdata/%d-%s.lua", f.protocol, file))
	testlock.Must(t, err)
	void := strconv.FormatInt(time.Now().Add(time.Second).UnixMicro(), 10)
	argv := []any{session + ":1", number, void, "15000", "12@there ", "15000", "0", "lockline:s:", "", "1"}
	if f.permits != "" {
		argv = append(argv, f.limit, "")
	}
	reply, err := w.Client.Eval(t.Context(), string(text), keys, argv...).Text()
	if err != nil {
		return err.Error()
	}
	return reply
}

var newLocks = map[string]func(s *rlock.Session) rlock.Locker{
	"r": func(s *rlock.Session) rlock.Locker { return rlock.New(s, "x") },
	"f": func(s *rlock.Session) rlock.Locker { return fairlock.New(s, "x") },
	"w": func(s *rlock.Session) rlock.Locker { return rwlock.New(s, "x") },
	"p": func(s *rlock.Session) rlock.Locker { return semaphore.New(s, "x", 1).Locker(1) },
}

const all = "1000000000" // number of permits that a writer takes

// The cases are the rows of the table in CHANGELOG.md.
func TestNoLockHasHoldersOfTwoProtocols(t *testing.T) {
	shares, refuses := regexp.MustCompile(`^Q `), regexp.MustCompile(`WRONGTYPE`)
	waits := regexp.MustCompile(`^Q|LOCKLINE`)
	for _, c := range []struct {
		former
		reply *regexp.Regexp // reply to the former program while the present one holds the lock
		err   string         // error of the present program while the former one holds the lock
	}{
		{former{1, "r", "", ""}, waits, "an older version of Lockline"},
		{former{1, "f", "", ""}, waits, "an older version of Lockline"},
		{former{1, "w", all, all}, refuses, "this version of Lockline did not write"},
		{former{1, "p", "1", "1"}, refuses, "this version of Lockline did not write"},
		{former{2, "r", "", ""}, shares, "locked by a:1 (12@there)"},
		{former{2, "f", "", ""}, shares, "locked by a:1 (12@there)"},
		{former{2, "w", all, all}, refuses, "this version of Lockline did not write"},
		{former{2, "p", "1", "1"}, refuses, "this version of Lockline did not write"},
	} {
		t.Run(fmt.Sprint(c.protocol, c.letter), func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				m := newLocks[c.letter](testlock.NewSession(t, w.Client))
				if reply := c.acquire(t, w, "a"); !strings.HasPrefix(reply, "G ") {
					t.Fatalf("the former program gets %q", reply)
				}
				_, hold, err := m.TryLock(t.Context())
				if hold != nil || err == nil || !strings.Contains(err.Error(), c.err) ||
					errors.Is(err, rlock.ErrLocked) != (c.reply == shares) {
					t.Errorf("the present program gets %v", err)
				}
				time.Sleep(2 * time.Minute) // all leases end, and keys expire
				present := testlock.Take(t, m)
				if reply := c.acquire(t, w, "b"); !c.reply.MatchString(reply) {
					t.Errorf("the former program gets %q", reply)
				}
				testlock.Must(t, present.Err())
				testlock.Unlock(t, present)
				time.Sleep(2 * time.Minute)
				if reply := c.acquire(t, w, "c"); !strings.HasPrefix(reply, "G ") {
					t.Errorf("the former program gets %q once nothing is left", reply)
				}
			})
		})
	}
}

// The second row of the table in CHANGELOG.md says that they exclude each other.
func TestPermitsOfTheFirstTwoProtocolsExcludeEachOther(t *testing.T) {
	for _, pair := range [][2]int{{1, 2}, {2, 1}} {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			if reply := (former{pair[0], "p", "1", "1"}).acquire(t, w, "a"); !strings.HasPrefix(reply, "G ") {
				t.Errorf("protocol %d: %q", pair[0], reply)
			}
			if reply := (former{pair[1], "p", "1", "1"}).acquire(t, w, "b"); !strings.HasPrefix(reply, "Q ") {
				t.Errorf("protocol %d beside %d: %q", pair[1], pair[0], reply)
			}
		})
	}
}

func TestTheChangelogListsEachProtocol(t *testing.T) {
	page, err := os.ReadFile("../../CHANGELOG.md")
	testlock.Must(t, err)
	_, section, _ := strings.Cut(string(page), "\n### Protocols\n")
	section, _, _ = strings.Cut(section, "\n### ")
	rows := regexp.MustCompile(`(?m)^\|(\d+)\|`).FindAllStringSubmatch(section, -1)
	for i, row := range rows {
		if row[1] != strconv.Itoa(i+1) {
			t.Errorf("row %d is of protocol %s", i+1, row[1])
		}
	}
	if len(rows) != protocol.Version {
		t.Errorf("%d protocols are listed, and the present one is %d", len(rows), protocol.Version)
	}
}
