package drive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/proof/explore/keyspace"
)

// A server runs scripts on a key space. Its results are remembered from run to run, since most runs begin
// alike.
type server struct {
	text    func(name string) string
	scripts map[string]*keyspace.Script // by digest
	spaces  map[string]int
	content []*keyspace.Space // by number in spaces
	effects map[cause]effect
}

type cause struct {
	space     int
	call      string
	now       int64
	listening string
}

type effect struct {
	space     int
	reply     string
	err       error
	published []keyspace.Message
}

func newServer(text func(name string) string) *server {
	return &server{text: text, scripts: map[string]*keyspace.Script{}, spaces: map[string]int{},
		effects: map[cause]effect{}}
}

func (s *server) number(space *keyspace.Space) int {
	key := space.Encode()
	n, ok := s.spaces[key]
	if !ok {
		n = len(s.content)
		s.spaces[key] = n
		s.content = append(s.content, space)
	}
	return n
}

// names are those of the library's scripts, by digest.
var names = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for _, name := range script.Names() {
		all[wire.NewScript(script.Text(name)).Digest()] = name
	}
	return all
})

// script compiles a script at its first use.
func (s *server) script(digest string) *keyspace.Script {
	if c := s.scripts[digest]; c != nil {
		return c
	}
	name := names()[digest]
	c, err := keyspace.Compile(name, s.text(name))
	if err != nil {
		panic(fmt.Sprintf("drive: script %q: %v", name, err))
	}
	s.scripts[digest] = c
	return c
}

// A command is one call of a script, as the server sees it.
type command struct {
	digest     string
	keys, argv []string
	reply      string // once it has run
	err        error
	cmd        redis.Cmder
}

func (c *command) name() string { return path.Base(names()[c.digest]) }

// text has all of a command.
func (c *command) text() string {
	return c.digest + "\x00" + strings.Join(c.keys, "\x00") + "\x00\x00" + strings.Join(c.argv, "\x00")
}

// A request is one or more commands that a session sends at once.
type request struct {
	p        *process
	label    string
	commands []*command
	ran      bool
	err      error         // what its sender gets, instead of replies
	done     chan struct{} // closed when its sender is to go on
}

// hook is in the place of the network in the client of a process.
type hook struct{ p atomic.Pointer[process] }

func (h *hook) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("drive: a client dials")
	}
}

func (h *hook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.p.Load().send(ctx, []redis.Cmder{cmd})
	}
}

func (h *hook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h.p.Load().send(ctx, cmds) }
}

// readTimeout is that of the clients, which is the default of go-redis.
const readTimeout = 3 * time.Second

// send has the requests wait for the explorer, until the client would give them up.
func (p *process) send(ctx context.Context, cmds []redis.Cmder) error {
	q := &request{p: p, done: make(chan struct{})}
	for _, cmd := range cmds {
		q.commands = append(q.commands, p.command(cmd))
	}
	until := time.Now().Add(readTimeout)
	if end, bounded := ctx.Deadline(); bounded && end.Before(until) {
		until = end
	}
	r := p.r
	r.mu.Lock()
	q.label = q.commands[0].label(p)
	if len(cmds) > 1 {
		q.label += fmt.Sprintf(" and %d more", len(cmds)-1)
	}
	over := r.over
	if !over {
		r.requests = append(r.requests, q)
		r.happened()
	}
	r.mu.Unlock()
	if over {
		return fail(cmds, redis.ErrClosed)
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-q.done:
	case <-t.C:
		r.mu.Lock()
		if slices.Contains(r.requests, q) {
			r.drop(q, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded})
			r.happened()
		}
		r.mu.Unlock()
	}
	if q.err != nil {
		return fail(cmds, q.err)
	}
	var first error
	for _, c := range q.commands {
		if c.err != nil {
			c.cmd.SetErr(c.err)
			first = cmpErr(first, c.err)
		} else {
			c.cmd.(interface{ SetVal(string) }).SetVal(p.r.original(c.reply))
		}
	}
	return first
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func fail(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}

func (p *process) command(cmd redis.Cmder) *command {
	args := cmd.Args()
	words := make([]string, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case string:
			words[i] = a
		case int, int32, int64:
			words[i] = fmt.Sprint(a)
		default:
			panic(fmt.Sprintf("drive: an argument of type %T", a))
		}
	}
	if words[0] != "evalsha" {
		panic(fmt.Sprintf("drive: a session sends %.100q", words))
	}
	n := args[2].(int)
	c := &command{digest: words[1], keys: words[3 : 3+n], argv: words[3+n:], cmd: cmd}
	r := p.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.name() == "acquire" && c.argv[8] != "" {
		r.alias(c.argv[8], "Nonce."+r.plain(c.argv[0]))
		attempt, _ := strconv.Atoi(c.argv[0][strings.IndexByte(c.argv[0], ':')+1:])
		p.attempts = max(p.attempts, attempt)
	}
	for i, a := range c.argv {
		c.argv[i] = r.plain(a)
	}
	return c
}

// label names a command without anything that depends on the time.
func (c *command) label(p *process) string {
	if len(c.argv) > 0 && strings.HasPrefix(c.argv[0], sessionName) {
		return c.name() + " " + short(c.argv[0])
	}
	return c.name() + " of " + p.letter
}

// short is an owner field without what all have.
func short(owner string) string { return strings.TrimPrefix(owner, sessionName) }

// refused is an error that the server replies.
type refused string

func (e refused) Error() string { return string(e) }
func (refused) RedisError()     {}

var _ redis.Error = refused("")

// drop ends a request for its sender, with an error. If the server has not run it, it may still do so. The
// caller must hold mu.
func (r *run) drop(q *request, err error) {
	r.remove(q)
	if !q.ran && r.left.Late > 0 && !q.p.gone {
		r.left.Late--
		r.late = append(r.late, &request{p: q.p, label: q.label, commands: q.commands})
	}
	q.err = err
	close(q.done)
}

func (r *run) remove(q *request) {
	r.requests = slices.DeleteFunc(r.requests, func(other *request) bool { return other == q })
}

var errCut = &net.OpError{Op: "read", Net: "tcp", Err: io.EOF}

// now is the time of Redis.
func now() int64 { return time.Now().UnixMicro() }

// execute has the server run a request. The caller must hold mu.
func (r *run) execute(q *request) {
	q.ran = true
	for _, c := range q.commands {
		key := cause{r.space, c.text(), now(), r.listening()}
		e, ok := r.server.effects[key]
		if !ok {
			env := keyspace.Env{Now: key.now, Listening: func(channel string) int {
				if r.listener(channel) != nil {
					return 1
				}
				return 0
			}}
			before := r.server.content[r.space]
			did := r.server.script(c.digest).Run(before, env, c.keys, c.argv)
			did.Space.Purge(env.Now)
			e = effect{space: r.server.number(did.Space), reply: did.Reply, published: did.Published}
			if did.Err != nil {
				e.err = refused(did.Err.Error())
			}
			r.server.effects[key] = e
		}
		r.space = e.space
		c.reply, c.err = e.reply, e.err
		r.log("  %s -> %s", strings.Join(append([]string{c.name()}, c.argv...), " "), e.reply)
		for _, m := range e.published {
			if to := r.listener(m.Channel); to != nil {
				to.queue = append(to.queue, m)
			}
		}
	}
}

// data is what Redis keeps now.
func (r *run) data() *keyspace.Space {
	space := r.server.content[r.space].Clone()
	space.Purge(now())
	return space
}
