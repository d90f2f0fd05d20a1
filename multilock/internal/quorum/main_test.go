package quorum

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/testing/fake"
	"github.com/lockline/lockline/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var scripts = Scripts{Lock: wire.NewScript("lock"), Accept: wire.NewScript("accept"), Release: wire.NewScript("release"), Inspect: wire.NewScript("inspect")}

// memberSessions are sessions of as many servers, of which nothing is asked.
func memberSessions(t testing.TB, n int) (all []*session.Session) {
	t.Helper()
	for range n {
		all = append(all, fake.Session(t, fake.Client(t, nil)))
	}
	return all
}

// makeQuorum is New where that must work.
func makeQuorum(t testing.TB, timeout time.Duration, members ...*session.Session) *Quorum {
	t.Helper()
	q, err := New(members, scripts, timeout)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// quorumsOf are those that an open session is in.
func quorumsOf(t testing.TB, s *session.Session) *quorums {
	t.Helper()
	part, err := session.PartOf(s, partKey{}, func(*session.Session) *quorums { return &quorums{of: map[id]*Quorum{}} })
	if err != nil {
		t.Fatal(err)
	}
	return part
}

func (p *quorums) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.of)
}
