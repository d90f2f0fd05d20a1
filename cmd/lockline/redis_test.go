//go:build unix

package main

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
)

// execs runs lockline exec with a URL's host and what follows, and returns what it said.
func execs(t *testing.T, addr string, code int, args ...string) string {
	t.Helper()
	p := startExec(t, addr, args...)
	p.wantCode(code)
	return p.errOut.String()
}

// demonstrates runs lockline demo.
func demonstrates(t *testing.T, url string) {
	t.Helper()
	var out bytes.Buffer
	if err := runDemo(t.Context(), demoOptions{redis: target{URL: url}, processes: 2, duration: time.Second}, &out); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestANodeLeadsToItsCluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	node := cluster.Nodes[0].Addr
	masters := map[*testredis.Server]bool{}
	for i := 0; len(masters) < 3; i++ {
		name := fmt.Sprint("lock ", i)
		if m := cluster.Master(t, "lockline:r:{"+name+"}"); !masters[m] {
			masters[m] = true
			execs(t, node, 0, name, "--", "true")
			execs(t, node, 0, "--fair", name, "--", "true")
		}
	}
	for _, db := range []string{"/1", "?db=1", "/1?addr=" + cluster.Nodes[1].Addr} {
		if said := execs(t, node+db, exitTrouble, "n", "--", "true"); !strings.Contains(said, "database 0") {
			t.Errorf("%s: %s", db, said)
		}
	}
	for _, s := range cluster.Nodes {
		testlock.Must(t, s.Client(t).Do(t.Context(), "ACL", "SETUSER", "user", "on", ">secret", "~*", "&*", "+@all").Err())
	}
	rdb, err := target{URL: "redis://user:secret@" + node + "/0?read_timeout=7s&max_conn_age=1h"}.open(t.Context())
	testlock.Must(t, err)
	defer rdb.Close()
	if o := rdb.(*redis.ClusterClient).Options(); o.Username != "user" || o.Password != "secret" || o.ReadTimeout != 7*time.Second || o.ConnMaxLifetime != time.Hour {
		t.Errorf("of the URL's options these are left: %+v", o)
	}
	if master := cluster.Master(t, "{counter}"); master.Addr == node { // the lock of the demo
		node = cluster.Nodes[1].Addr
	}
	demonstrates(t, "redis://"+node)
	for _, s := range cluster.Nodes {
		for key := range keys(t, s.Client(t)) {
			if strings.HasPrefix(key, "lockline-demo") {
				t.Errorf("the demo has left %s", key)
			}
		}
	}
	var out, errOut bytes.Buffer
	if code := run(t.Context(), []string{"lockline", "soak", "--redis", "redis://" + node}, &out, &errOut); code != exitTrouble || !strings.Contains(errOut.String(), "one server") {
		t.Errorf("soak: exit code %d: %s", code, &errOut)
	}
}

func TestSentinelsLeadToTheMaster(t *testing.T) {
	t.Parallel()
	group := testredis.StartSentinel(t, 0)
	name, one, two := masterOf(t, group), group.Sentinels[0].Addr, group.Sentinels[1].Addr
	execs(t, one+"?master_name="+name, 0, "n", "--", "true")
	execs(t, one+"?master_name="+name, 0, "--fair", "n", "--", "true")
	demonstrates(t, "redis://"+one+"?master_name="+name)

	for url, says := range map[string][]string{
		one:                                    {one + " is the port of a Sentinel", "add ?master_name=NAME", name},
		one + "/1?protocol=2":                  {"is the port of a Sentinel", name},
		one + "?master_name=other&addr=" + two: {`do not know a master "other"`, fmt.Sprintf("they know %q\n", name)},
		group.Nodes[0].Addr + "?master_name=x": {"no Sentinel says where the master is", "unknown command"},
	} {
		said := execs(t, url, exitTrouble, "n", "--", "true")
		for _, s := range says {
			if !strings.Contains(said, s) {
				t.Errorf("%s: %s", url, said)
			}
		}
	}
	group.Sentinels[0].Kill()
	execs(t, one+"?addr="+two+"&master_name="+name, 0, "n", "--", "true")
	group.Sentinels[1].Kill()
	said := execs(t, one+"?addr="+two+"&master_name="+name, exitTrouble, "n", "--", "true")
	if !strings.Contains(said, "no Sentinel can be reached") || !strings.Contains(said, one) || !strings.Contains(said, two) {
		t.Errorf("Sentinels are down: %s", said)
	}
	if out, _, code := operate(t, one+"?master_name="+name, "doctor"); code != exitWrong || !strings.Contains(out, "no Sentinel can be reached") {
		t.Errorf("doctor: exit code %d: %s", code, out)
	}
}

func TestAServerThatRefusesHelloIsUsedAsItIs(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--rename-command", "HELLO", "")
	execs(t, server.Addr+"/3", 0, "n", "--", "true")
	if n := testlock.Client(t, server.Addr).DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys in database 0", n)
	}
}

func TestSignalEndsExecWhileRedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testlock.Must(t, err)
	defer listener.Close()
	file := filepath.Join(t.TempDir(), "file")
	p := startExec(t, listener.Addr().String(), append([]string{"n"}, self("until", file)...)...)
	conn, err := listener.Accept()
	testlock.Must(t, err)
	defer conn.Close() // it never answers
	p.signal(syscall.SIGTERM)
	p.wantCode(128 + int(syscall.SIGTERM))
}
