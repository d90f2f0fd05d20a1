package explore

import (
	"cmp"
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
	"github.com/lockline/lockline/proof/keyspace"
)

// A server runs scripts on a key space. It remembers the effects of requests from run to run, because most
// runs begin with the same steps.
type server struct {
	text    func(name string) string
	scripts map[string]*keyspace.Script // compiled scripts, by digest
	spaces  map[string]int              // indexes in content, by the text of Space.Encode
	content []*keyspace.Space
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
	verdict   verdict
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

// names returns the names of the library's scripts by their digests.
var names = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for _, name := range script.Names() {
		all[wire.NewScript(script.Text(name)).Digest()] = name
	}
	return all
})

// script returns the script with this digest, and compiles it at its first use.
func (s *server) script(digest string) *keyspace.Script {
	if c := s.scripts[digest]; c != nil {
		return c
	}
	name := names()[digest]
	c, err := keyspace.Compile(name, s.text(name))
	if err != nil {
		panic(fmt.Sprintf("explore: script %q: %v", name, err))
	}
	s.scripts[digest] = c
	return c
}

// A command is one call of a script, as the server sees the call.
type command struct {
	digest     string
	keys, argv []string
	reply      string // "" before the server has run the command
	err        error  // the error in the server's reply
	cmd        redis.Cmder
}

func (c *command) name() string { return path.Base(names()[c.digest]) }

// text returns a text that identifies the command.
func (c *command) text() string {
	return c.digest + "\x00" + strings.Join(c.keys, "\x00") + "\x00\x00" + strings.Join(c.argv, "\x00")
}

// A request has the commands that a session sends together.
type request struct {
	p        *process
	label    string
	commands []*command
	ran      bool          // the server has run the commands
	err      error         // error that the sender gets instead of replies
	done     chan struct{} // closed when the sender can return
}

// A hook takes the place of the network in the client of a process.
type hook struct{ p atomic.Pointer[process] }

func (h *hook) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("explore: a client dials")
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

// readTimeout is the time after which a client stops waiting for a reply.
const readTimeout = 3 * time.Second

// send blocks until the explorer has answered the commands, or until the client would give up.
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
	r.mu.Lock()
	defer r.mu.Unlock()
	var first error
	for _, c := range q.commands {
		if c.err != nil {
			c.cmd.SetErr(c.err)
			first = cmp.Or(first, c.err)
		} else {
			c.cmd.(interface{ SetVal(string) }).SetVal(r.original(c.reply))
		}
	}
	return first
}

func fail(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}

// command reads a command of go-redis, and replaces random texts in its arguments by names.
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
			panic(fmt.Sprintf("explore: an argument of type %T", a))
		}
	}
	if words[0] != "evalsha" {
		panic(fmt.Sprintf("explore: a session sends %.100q", words))
	}
	n := args[2].(int)
	c := &command{digest: words[1], keys: words[3 : 3+n], argv: words[3+n:], cmd: cmd}
	r := p.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.name() == "acquire" {
		r.keys, r.channels, r.retention = c.keys, c.argv[7], c.argv[5]
	}
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

// label returns a name for a command. The name does not depend on the time.
func (c *command) label(p *process) string {
	if len(c.argv) > 0 && strings.HasPrefix(c.argv[0], sessionName) {
		return c.name() + " " + short(c.argv[0])
	}
	return c.name() + " of " + p.letter
}

// short returns an owner field without the beginning that all owner fields have.
func short(owner string) string { return strings.TrimPrefix(owner, sessionName) }

// A refused is the error in a reply of the server.
type refused string

func (e refused) Error() string { return string(e) }
func (refused) RedisError()     {}

var _ redis.Error = refused("")

// drop ends a request with an error for its sender. If the server has not run the request, it may still run
// the request later. But it does not if the world's number of late requests is used up, or if Close of the
// session has returned. The caller must hold run.mu.
func (r *run) drop(q *request, err error) {
	r.remove(q)
	if !q.ran && r.left.Late > 0 && !q.p.gone {
		r.left.Late--
		r.late = append(r.late, &request{p: q.p, label: q.label, commands: q.commands})
	}
	q.err = err
	close(q.done)
}

// remove removes a request from the requests without a reply. The caller must hold run.mu.
func (r *run) remove(q *request) {
	r.requests = slices.DeleteFunc(r.requests, func(other *request) bool { return other == q })
}

var errCut = &net.OpError{Op: "read", Net: "tcp", Err: io.EOF}

// now returns the time of Redis in microseconds. The caller must hold run.mu.
func (r *run) now() int64 { return time.Now().Add(-r.setBack).UnixMicro() }

// execute runs a request at the server, and checks the effects of its scripts. The caller must hold run.mu.
func (r *run) execute(q *request) {
	q.ran = true
	for _, c := range q.commands {
		key := cause{r.space, c.text(), r.now(), r.listening()}
		e, ok := r.server.effects[key]
		if !ok {
			env := keyspace.Env{Now: key.now, Listening: func(channel string) int {
				if r.listener(channel) != nil {
					return 1
				}
				return 0
			}}
			before := r.data()
			did := r.server.script(c.digest).Run(before, env, c.keys, c.argv)
			did.Space.Purge(env.Now)
			e = effect{space: r.server.number(did.Space), reply: did.Reply, published: did.Published}
			if did.Err != nil {
				e.err = refused(did.Err.Error())
			}
			e.verdict = judge(env, c, before, did)
			r.server.effects[key] = e
		}
		r.space = e.space
		c.reply, c.err = e.reply, e.err
		r.log("  %s -> %s", strings.Join(append([]string{c.name()}, c.argv...), " "), e.reply)
		r.checkRequest(c, e.verdict)
		for _, m := range e.published {
			if to := r.listener(m.Channel); to != nil {
				to.queue = append(to.queue, m)
			}
		}
	}
}

// data returns a copy of the data in Redis. The caller must hold run.mu.
func (r *run) data() *keyspace.Space {
	space := r.server.content[r.space].Clone()
	space.Purge(r.now())
	return space
}
