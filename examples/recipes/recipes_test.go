package recipes

import (
	"context"
	"database/sql"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/lockline/lockline/locktest"
	"github.com/lockline/lockline/rlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errWork = errors.New("the work failed")

func nothing(context.Context) error { return nil }

func TestTheStatusSaysHowTheLockFailed(t *testing.T) {
	for _, c := range []struct {
		name       string
		before     func(t *testing.T, server *locktest.Server)
		work       func(server *locktest.Server, session *rlock.Session, ctx context.Context) error
		code       int
		retryAfter string
	}{
		{"done", nil, nil, http.StatusNoContent, ""},
		{"the work fails", nil, func(*locktest.Server, *rlock.Session, context.Context) error {
			return errWork
		}, http.StatusInternalServerError, ""},
		{"taken", func(t *testing.T, server *locktest.Server) {
			locktest.Take(t, rlock.New(server.NewSession(), "order"))
		}, nil, http.StatusLocked, "2"},
		{"an outage", func(_ *testing.T, server *locktest.Server) { server.Refuse() }, nil,
			http.StatusServiceUnavailable, "10"},
		{"silence", func(_ *testing.T, server *locktest.Server) { server.Silence() }, nil,
			http.StatusServiceUnavailable, "10"},
		{"no right", func(_ *testing.T, server *locktest.Server) { server.Fail("NOPERM no permissions") },
			nil, http.StatusServiceUnavailable, "10"},
		{"lost", nil, func(server *locktest.Server, _ *rlock.Session, _ context.Context) error {
			server.Lose("order")
			return nil
		}, http.StatusConflict, ""},
		{"lost, and the work notices", nil,
			func(server *locktest.Server, _ *rlock.Session, ctx context.Context) error {
				server.Lose("order")
				return context.Cause(ctx)
			}, http.StatusConflict, ""},
		{"closed", nil, func(_ *locktest.Server, session *rlock.Session, _ context.Context) error {
			return session.Close()
		}, http.StatusConflict, ""},
		{"unlocked", nil, func(_ *locktest.Server, _ *rlock.Session, ctx context.Context) error {
			return rlock.HoldFrom(ctx).Unlock(ctx)
		}, http.StatusConflict, ""},
		{"the unlock is not answered", nil,
			func(server *locktest.Server, _ *rlock.Session, _ context.Context) error {
				server.Silence()
				return nil
			}, http.StatusNoContent, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.NewServer(t)
				session := server.NewSession()
				order := rlock.New(session, "order")
				if c.before != nil {
					c.before(t, server)
				}
				work := nothing
				if c.work != nil {
					work = func(ctx context.Context) error { return c.work(server, session, ctx) }
				}
				w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
				serve(w, r, order, work)
				if got := w.Header().Get("Retry-After"); w.Code != c.code || got != c.retryAfter {
					t.Errorf("status %d, Retry-After %q; want %d, %q", w.Code, got, c.code, c.retryAfter)
				}
				server.Resume()
			})
		})
	}
}

func TestAProcessIsReadyIfRedisCarriesOutRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		session := server.NewSession()
		check := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			return ready(ctx, session)
		}
		for range 2 { // the first check must not disturb the second
			if err := check(); err != nil {
				t.Error(err)
			}
		}
		server.Fail("NOPERM no permissions")
		if err := check(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("without rights: %v", err)
		}
		server.Resume()
		server.Silence()
		if err := check(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without an answer: %v", err)
		}
		server.Resume()
		locktest.Take(t, rlock.New(server.NewSession(), "startup"))
		if err := check(); err != nil {
			t.Errorf("beside another process: %v", err)
		}
	})
}

// database returns a database that has an empty table of jobs, account 1 with balance 0, and a fence.
func database(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1) // because each connection to :memory: has its own database
	if _, err := db.ExecContext(t.Context(), `
		CREATE TABLE done (job TEXT PRIMARY KEY);
		CREATE TABLE fence (name TEXT PRIMARY KEY, token INTEGER NOT NULL);
		INSERT INTO fence VALUES ('accounts', 0);
		CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, token INTEGER NOT NULL);
		INSERT INTO account VALUES (1, 0, 0)`); err != nil {
		t.Fatal(err)
	}
	return db
}

// wantBalance fails the test unless account 1 has this balance.
func wantBalance(t *testing.T, db *sql.DB, want int) {
	t.Helper()
	var got int
	err := db.QueryRowContext(t.Context(), "SELECT balance FROM account WHERE id = 1").Scan(&got)
	if err != nil || got != want {
		t.Errorf("balance %d, %v; want %d", got, err, want)
	}
}

// add adds 10 to the balance of account 1.
func add(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + 10 WHERE id = 1")
	return err
}

func TestAJobThatIsDoneIsNotRepeatedAndOneThatFailedIs(t *testing.T) {
	db, session := database(t), locktest.NewSession(t)
	customer := rlock.New(session, "customer:7")
	fails := func(ctx context.Context, tx *sql.Tx) error { return errors.Join(add(ctx, tx), errWork) }
	if err := once(t.Context(), db, customer, "a", fails); !errors.Is(err, errWork) {
		t.Error(err)
	}
	wantBalance(t, db, 0)
	for range 2 {
		if err := once(t.Context(), db, customer, "a", add); err != nil {
			t.Error(err)
		}
	}
	wantBalance(t, db, 10)
	if err := once(t.Context(), db, customer, "b", add); err != nil {
		t.Error(err)
	}
	wantBalance(t, db, 20)
}

func TestATransactionOfAFormerHolderIsRolledBack(t *testing.T) {
	db, session := database(t), locktest.NewSession(t)
	accounts := rlock.New(session, "accounts")
	for range 2 {
		if err := fenced(t.Context(), db, accounts, add); err != nil {
			t.Error(err)
		}
	}
	wantBalance(t, db, 20)
	// The fence now has a token as of a later holder, so the next call has a lower token.
	if _, err := db.ExecContext(t.Context(), "UPDATE fence SET token = ?", int64(1)<<62); err != nil {
		t.Fatal(err)
	}
	if err := fenced(t.Context(), db, accounts, add); err == nil {
		t.Error("a former holder has committed")
	}
	wantBalance(t, db, 20)
}

func TestARequestThatIsRepeatedIsCarriedOutOnce(t *testing.T) {
	db := database(t)
	for range 2 {
		if err := deposit(t.Context(), db, 1, 10, 5); err != nil {
			t.Error(err)
		}
	}
	wantBalance(t, db, 10)
	if err := deposit(t.Context(), db, 1, 10, 4); err == nil {
		t.Error("a former holder has written")
	}
	wantBalance(t, db, 10)
	if err := deposit(t.Context(), db, 1, 10, 6); err != nil {
		t.Error(err)
	}
	wantBalance(t, db, 20)
	if err := deposit(t.Context(), db, 2, 10, 6); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("an account that does not exist: %v", err)
	}
}

// fragment matches the code blocks of the page that are bodies of functions.
var fragment = regexp.MustCompile("(?s)<!-- check: inside [^\n]*-->\n```go\n(.*?)```\n")

func TestThePageHasTheseFunctions(t *testing.T) {
	page, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range fragment.FindAllStringSubmatch(string(page), -1) {
		blocks = append(blocks, strings.TrimSpace(m[1]))
	}
	source, err := os.ReadFile("recipes.go")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "recipes.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		body := string(source[files.Position(f.Body.Lbrace).Offset+1 : files.Position(f.Body.Rbrace).Offset])
		body = strings.TrimSpace(strings.ReplaceAll(body, "\n\t", "\n"))
		i := slices.Index(blocks, body)
		if i < 0 {
			t.Errorf("no block of docs/recipes.md is the body of %s:\n%s", f.Name.Name, body)
			continue
		}
		blocks = slices.Delete(blocks, i, i+1)
	}
	for _, b := range blocks {
		t.Errorf("this block of docs/recipes.md is the body of no function of recipes.go:\n%s", b)
	}
}
