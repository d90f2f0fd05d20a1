package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/internal/wire"
)

// quiet is a logger that drops the log lines of go-redis, because stderr belongs to the user's command.
// Commands report the resulting errors.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// redisFlags returns the flags for the address of Redis and the prefix of the locks.
func redisFlags() []cli.Flag {
	url := fromEnvironment("redis", "`URL` of the Redis server, or of any node of a Cluster; "+
		"?master_name=NAME names Sentinels, ?addr=HOST:PORT further nodes or Sentinels. "+
		"With Sentinels, the user before the host is that of the Sentinels, "+
		"and ?username=NAME&password=PASSWORD is that of the server")
	url.Value = "redis://127.0.0.1:6379/0"
	return append(accessFlags(url), &cli.StringFlag{Name: "prefix", Value: "lockline",
		Usage: "prefix of all keys; the same as in the programs that use the locks"})
}

// accessFlags returns the flags for the connection to Redis. Passwords belong in a file with the URL,
// because all users of a machine may read the command lines of its processes. The flags for TLS have the
// names that redis-cli uses.
func accessFlags(url cli.Flag) []cli.Flag {
	return []cli.Flag{
		url,
		fromEnvironment("redis-file",
			"`FILE` that has the URL instead of --redis, because ps shows a password on the command line"),
		fromEnvironment("cacert", "`FILE` of the CA certificates (PEM) for the server's certificate; "+
			"with rediss:// (default: those of the system)"),
		fromEnvironment("cert", "`FILE` of the certificate (PEM) to show to the server"),
		fromEnvironment("key", "`FILE` of the private key (PEM) of --cert"),
	}
}

// fromEnvironment returns a flag that an environment variable can set, too.
func fromEnvironment(name, usage string) *cli.StringFlag {
	return &cli.StringFlag{Name: name, Sources: cli.EnvVars(variable(name)), Usage: usage}
}

func variable(flag string) string {
	return "LOCKLINE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// A target is the Redis that a command line names. It may contain a password, so demo sends it to its
// processes by stdin and not as an argument.
type target struct {
	URL               string
	CACert, Cert, Key string // files for TLS; "" for none
	from              string // name of the option or the file with the URL
	file              string // name of the file with the URL; "" if the URL is not from a file
	byDefault         bool   // no option and no variable names Redis
	noReplica         bool   // true: a connection to a replica is an error
	noVariables       bool   // environment variables have no effect, see demoCommand
	wrong             error  // error of the options or of the file; URL is "" then
}

func targetOf(cmd *cli.Command) target {
	t := target{CACert: cmd.String("cacert"), Cert: cmd.String("cert"), Key: cmd.String("key")}
	t.URL, t.from, t.wrong = urlOf(cmd)
	if t.from == cmd.String("redis-file") {
		t.file = t.from
	}
	t.byDefault = !cmd.IsSet("redis") && cmd.String("redis-file") == ""
	t.noVariables = variableOf(cmd, "redis") == ""
	return t
}

// quotation matches the part of a URL that an error quotes. If the URL lacks the host, this part may be a
// password.
var quotation = regexp.MustCompile(` ?"[^"]*"`)

// broken returns the error if t.URL is not a URL of Redis. The error contains the reason that the parser
// gave, unless this reason could quote a password.
func (t target) broken(reason error) error {
	text := t.from + " is not a Redis URL such as redis://user:password@host:6379/0"
	secret := func(part string) bool {
		return strings.Contains(part, "@") || strings.Contains(part, "password")
	}
	u, err := url.Parse(t.URL)
	var unparsed *url.Error
	switch {
	case err == nil && !secret(u.Opaque+u.Path+u.RawQuery+u.Fragment):
		text += " (" + strings.TrimPrefix(reason.Error(), "redis: ") + ")"
	case errors.As(err, &unparsed) && !secret(t.URL):
		text += " (" + quotation.ReplaceAllString(unparsed.Err.Error(), "") + ")"
	case secret(t.URL):
		text += " (special characters of the user and the password must be percent-encoded, " +
			"as %2F for a slash)"
	}
	return errors.New(text)
}

// unanswered returns the error if Redis has not answered the first request within --wait.
func (t target) unanswered(wait time.Duration) error {
	hint := shortWait(wait)
	if u, err := url.Parse(t.URL); err == nil && u.Scheme == "rediss" {
		hint = " (does the server speak TLS? If not, --redis must begin with redis://)"
	}
	return fmt.Errorf("no answer from Redis at %s before the wait was over%s", t.place(), hint)
}

// shortWait returns a hint, in parentheses, if a wait may end before even a fast server has answered.
// Otherwise it returns "". wait is 0 if there is no --wait, or if --wait is 0.
func shortWait(wait time.Duration) string {
	if wait == 0 || wait >= 100*time.Millisecond {
		return ""
	}
	return fmt.Sprintf(" (--wait %v may be shorter than a round trip to Redis; "+
		"--wait 0 does not wait for holders, but waits for the answer)", wait)
}

// place returns the address for people. If it is the default address, the text says so.
func (t target) place() string {
	if t.byDefault {
		return t.host() + ", the default without --redis and LOCKLINE_REDIS"
	}
	if u, err := url.Parse(t.URL); err == nil && u.Query().Has("master_name") {
		return fmt.Sprintf("the master %q of the Sentinel %s", u.Query().Get("master_name"), t.host())
	}
	return t.host()
}

// located adds the address of Redis to an error with which Redis has replied, unless the error names a key or
// a failed connection. If the password in the URL may be wrong, it also adds a hint. It returns all other
// errors unchanged.
func (t target) located(err error) error {
	ofKey, ofContact := errors.As(err, new(*wire.ValueError)), errors.As(err, new(*unreachable))
	if err == nil || !refused(err) || ofKey || ofContact || t.URL == "" {
		return err
	}
	at := "Redis at " + t.place()
	o, unparsed := redis.ParseURL(t.URL)
	if unparsed == nil && o.DB != 0 {
		at += fmt.Sprintf(", database %d", o.DB)
	}
	return fmt.Errorf("%w (%s%s)", err, at, t.aboutPassword(err))
}

// aboutPassword returns a hint at the form of the URL if the server has refused the password, or requires
// one. Otherwise it returns "".
func (t target) aboutPassword(err error) string {
	wanted := func(word string) bool { return strings.Contains(err.Error(), word) }
	u, unparsed := url.Parse(t.URL)
	if unparsed != nil || !wanted("NOAUTH") && !wanted("WRONGPASS") && !wanted("unauthenticated") {
		return ""
	}
	_, given := u.User.Password()
	switch {
	case given:
		return "; the user or the password in the URL is wrong: redis://USER:PASSWORD@HOST:PORT, " +
			"or redis://:PASSWORD@HOST:PORT for the default user"
	case u.User.Username() != "":
		return "; the text before the @ in the URL has no colon, so it is the user: " +
			"a password alone is redis://:PASSWORD@HOST:PORT"
	}
	return "; the URL has no password: redis://:PASSWORD@HOST:PORT, or redis://USER:PASSWORD@HOST:PORT"
}

// urlOf returns the URL of --redis or of the file of --redis-file, and the name of that source. Options have
// precedence over environment variables.
func urlOf(cmd *cli.Command) (url, from string, err error) {
	url, path := cmd.String("redis"), cmd.String("redis-file")
	inLine := func(f string) bool {
		name := variableOf(cmd, f)
		return cmd.IsSet(f) && (name == "" || os.Getenv(name) != cmd.String(f))
	}
	switch {
	case path == "", inLine("redis") && !inLine("redis-file"):
		return url, optionOf(cmd, "redis"), nil
	case cmd.IsSet("redis") && url != "" && inLine("redis") == inLine("redis-file"):
		return "", "", fmt.Errorf("give one: %s or %s", optionOf(cmd, "redis"), optionOf(cmd, "redis-file"))
	}
	if url, err = readURL(path); err != nil {
		return "", "", fmt.Errorf("--redis-file: %w", err)
	}
	return url, path, nil
}

// variableOf returns the environment variable that can set an option of the command, or "" if there is none.
func variableOf(cmd *cli.Command, option string) string {
	for _, f := range cmd.Flags {
		flag, ok := f.(*cli.StringFlag)
		if ok && flag.Name == option && len(flag.GetEnvVars()) > 0 {
			return flag.GetEnvVars()[0]
		}
	}
	return ""
}

// optionOf returns an option for an error, with the environment variable that can set it.
func optionOf(cmd *cli.Command, option string) string {
	if name := variableOf(cmd, option); name != "" {
		return fmt.Sprintf("--%s (%s)", option, name)
	}
	return "--" + option
}

func readURL(file string) (string, error) {
	text, err := os.ReadFile(file)
	return strings.TrimSpace(string(text)), err
}

// host returns the address for people, without a password.
func (t target) host() string {
	u, err := url.Parse(t.URL)
	if err != nil {
		return "?"
	}
	if o, err := redis.ParseURL(t.URL); err == nil { // ParseURL adds the default host and port
		return o.Addr
	}
	return cmp.Or(u.Host, u.Path)
}

// open returns a client of the server, of the whole Cluster to which a node belongs, or of the master that
// Sentinels name. It waits for an answer at most until ctx ends, and repeats a request only as often as the
// library does. If nothing answers, the error is an *unreachable. If the URL has ?addr, open sends no
// request.
func (t target) open(ctx context.Context) (redis.UniversalClient, error) {
	redis.SetLogger(quiet{})
	type result struct {
		rdb redis.UniversalClient
		err error
	}
	opened := make(chan result)
	go func() { // go-redis does not watch ctx while it waits for a reply
		rdb, err := t.connect(ctx)
		select {
		case opened <- result{rdb, err}:
		case <-ctx.Done():
			if err == nil {
				_ = rdb.Close()
			}
		}
	}()
	select {
	case r := <-opened:
		if r.err != nil && ctx.Err() != nil {
			r.err = context.Cause(ctx)
		}
		return r.rdb, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (t target) connect(ctx context.Context) (redis.UniversalClient, error) {
	if t.wrong != nil {
		return nil, t.wrong
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, t.broken(err)
	}
	switch {
	case u.Query().Has("master_name"):
		return t.openMaster(ctx)
	case u.Query().Has("addr"):
		return t.openCluster(u)
	}
	options, err := redis.ParseURL(t.URL)
	if err != nil {
		return nil, t.broken(err)
	}
	options.Dialer, err = t.secure(options.TLSConfig, &options.DialerRetries, options.DialTimeout)
	if err != nil {
		return nil, err
	}
	options.CredentialsProviderContext = t.rotated(userOf)
	if t.noReplica {
		options.OnConnect = t.refuseReplica
		options.ConnMaxLifetime = cmp.Or(options.ConnMaxLifetime, lookingLifetime)
	}
	first := *options
	first.OnConnect = nil // connect returns a special error for a Sentinel below
	first.DB = 0          // a Cluster and a Sentinel refuse every other database
	asking := redis.NewClient(&first)
	defer asking.Close()
	mode, err := t.hello(ctx, asking.Process, "mode")
	switch {
	case err != nil && !refused(err):
		return nil, &unreachable{t.host(), "redis at " + t.place(), err, mayPass(err)}
	case mode == "cluster":
		return t.openCluster(u)
	case mode == "sentinel":
		return nil, fmt.Errorf("%s is the port of a Sentinel, which keeps no locks itself: "+
			"add ?master_name=NAME to the URL of --redis", t.host())
	}
	return redis.NewClient(options), nil // if HELLO was refused, the next request returns the error
}

// hello returns a field of the reply to HELLO, for example "role". Any user may send HELLO without arguments.
func (t target) hello(ctx context.Context, send sender, name string) (any, error) {
	cmd := redis.NewMapStringInterfaceCmd(ctx, "hello")
	err := t.request(ctx, send, cmd)
	return cmd.Val()[name], err
}

// lookingLifetime is the longest time for which a command that looks at locks uses a connection. After a
// failover, the address may lead to another server. A connection to the old server would show old data.
const lookingLifetime = 5 * time.Second

// refuseReplica returns an error if the server is a replica, whose data may be old. It is used as OnConnect.
// The scripts notice a replica because it refuses their HDEL, so they notice nothing if the user may not call
// HDEL. SCAN notices nothing either.
func (t target) refuseReplica(ctx context.Context, c *redis.Conn) error {
	hello := redis.NewMapStringInterfaceCmd(ctx, "hello")
	if err := c.Process(ctx, hello); err == nil && isReplica(hello.Val()) {
		return fmt.Errorf("the server at %s is a replica, whose data may be old: "+
			"name the master, or the Sentinels with ?master_name=NAME", t.host())
	}
	return nil // if HELLO was refused, the server counts as a master
}

// isReplica reports whether a server is a replica, by its reply to HELLO.
func isReplica(hello map[string]any) bool {
	return hello["role"] == "replica" || hello["role"] == "slave"
}

// openCluster returns a client of the whole Cluster. It handles some parameters of the URL itself, because
// the parser of go-redis accepts them only for single servers.
func (t target) openCluster(u *url.URL) (redis.UniversalClient, error) {
	query := u.Query()
	if u.Scheme == "unix" {
		return nil, errors.New("--redis names a node of a Cluster by a socket: name its host and port, " +
			"because a socket does not lead to the other nodes")
	}
	if db := cmp.Or(query.Get("db"), strings.Trim(u.Path, "/"), "0"); db != "0" {
		return nil, fmt.Errorf("locks on a Cluster are in database 0: take %q out of the URL of --redis", db)
	}
	verify := query.Get("skip_verify")
	query.Del("db")
	query.Del("skip_verify")
	of := *u
	of.RawQuery = query.Encode()
	options, err := redis.ParseClusterURL(of.String())
	if err != nil {
		return nil, t.broken(err)
	}
	if verify == "true" || verify == "1" {
		if options.TLSConfig == nil {
			return nil, t.broken(errors.New("skip_verify is for rediss://"))
		}
		options.TLSConfig.InsecureSkipVerify = true
	}
	options.Dialer, err = t.secure(options.TLSConfig, &options.DialerRetries, options.DialTimeout)
	if err != nil {
		return nil, err
	}
	options.CredentialsProviderContext = t.rotated(userOf)
	return redis.NewClusterClient(options), nil
}

// userOf returns the user and the password of a URL that names a server or a node of a Cluster.
func userOf(text string) (user, password string, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", "", err
	}
	password, _ = u.User.Password()
	return u.User.Username(), password, nil
}

// openMaster returns a client of the master that Sentinels name.
func (t target) openMaster(ctx context.Context) (redis.UniversalClient, error) {
	options, err := redis.ParseFailoverURL(t.URL)
	if err != nil {
		return nil, t.broken(err)
	}
	if options.RouteByLatency || options.RouteRandomly { // go-redis would panic
		return nil, errors.New("--redis: route_by_latency and route_randomly cannot be used with master_name")
	}
	options.Dialer, err = t.secure(options.TLSConfig, &options.DialerRetries, options.DialTimeout)
	if err != nil {
		return nil, err
	}
	options.CredentialsProviderContext = t.rotated(func(url string) (string, string, error) {
		o, err := redis.ParseFailoverURL(url)
		if err != nil {
			return "", "", err
		}
		return o.Username, o.Password, nil
	})
	if err := t.findMaster(ctx, options); err != nil {
		return nil, err
	}
	return redis.NewFailoverClient(options), nil
}

// findMaster sends a request to all Sentinels at the same time, and returns nil as soon as one of them knows
// the master. go-redis would find the master, too, but returns the same error for all causes.
func (t target) findMaster(ctx context.Context, o *redis.FailoverOptions) error {
	type answer struct {
		addr string
		err  error
	}
	answers := make(chan answer, len(o.SentinelAddrs))
	for _, addr := range o.SentinelAddrs {
		go func() {
			sentinel := redis.NewSentinelClient(&redis.Options{
				Addr: addr, Username: o.SentinelUsername, Password: o.SentinelPassword,
				TLSConfig: o.TLSConfig, Dialer: o.Dialer, DialerRetries: o.DialerRetries,
				DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
			})
			defer sentinel.Close()
			ask := redis.NewCmd(ctx, "sentinel", "get-master-addr-by-name", o.MasterName)
			answers <- answer{addr, t.request(ctx, sentinel.Process, ask)}
		}()
	}
	var errs []string
	answered, passing := false, false
	for range o.SentinelAddrs {
		a := <-answers
		switch a.err {
		case nil:
			return nil
		case redis.Nil:
			errs = append(errs,
				fmt.Sprintf("the Sentinel %s does not know a master %q", a.addr, o.MasterName))
		default:
			errs = append(errs, fmt.Sprintf("the Sentinel %s: %v%s", a.addr, a.err, wire.Hint(a.err)))
		}
		answered, passing = answered || refused(a.err), passing || mayPass(a.err)
	}
	all := errors.New(strings.Join(errs, "; "))
	if answered {
		return all
	}
	return &unreachable{t.host(), "no Sentinel can be reached", all, passing}
}

// An unreachable is the error if Redis does not answer.
type unreachable struct {
	host, what string
	err        error
	passing    bool // Redis may answer in a moment
}

func (e *unreachable) Error() string { return e.what + ": " + e.err.Error() + wire.Hint(e.err) }
func (e *unreachable) Unwrap() error { return e.err }

// refused reports whether a server has replied with an error.
func refused(err error) bool { return errors.As(err, new(redis.Error)) }

// once is a request that go-redis does not repeat. With repetitions, a failure to connect would take four
// times as long.
type once struct{ redis.Cmder }

func (once) NoRetry() bool { return true }

type sender = func(ctx context.Context, cmd redis.Cmder) error

// request sends a request as the library does. If there is no reply, it sends the request again, up to
// wire.Tries times in all. If it cannot connect, it returns the error at once.
func (t target) request(ctx context.Context, send sender, cmd redis.Cmder) error {
	for try := 1; ; try++ {
		err := wire.Explain(ctx, send(ctx, once{cmd}), strings.HasPrefix(t.URL, "rediss:"), false)
		if err == nil || refused(err) || !wire.Judge(err).Resend || try >= wire.Tries || ctx.Err() != nil {
			return err
		}
	}
}
