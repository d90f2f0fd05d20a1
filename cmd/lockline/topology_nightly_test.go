//go:build nightly && unix

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// demonstrates runs lockline demo, and fails the test if the demo fails.
func demonstrates(t *testing.T, url string) {
	t.Helper()
	var out bytes.Buffer
	if err := runDemo(t.Context(), target{URL: url}, time.Second, &out); err != nil {
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
		rules := []any{"ACL", "SETUSER", "user", "on", ">secret", "~*", "&*", "+@all"}
		testlock.Must(t, s.Client(t).Do(t.Context(), rules...).Err())
	}
	url := "redis://user:secret@" + node + "/0?read_timeout=7s&conn_max_lifetime=1h"
	rdb, err := target{URL: url}.open(t.Context())
	testlock.Must(t, err)
	defer rdb.Close()
	if o := rdb.(*redis.ClusterClient).Options(); o.Username != "user" || o.Password != "secret" ||
		o.ReadTimeout != 7*time.Second || o.ConnMaxLifetime != time.Hour {
		t.Errorf("of the URL's options these are left: %+v", o)
	}
	if master := cluster.Master(t, "{counter}"); master.Addr == node { // has the demo's lock
		node = cluster.Nodes[1].Addr
	}
	demonstrates(t, "redis://"+node)
}

func TestSentinelsLeadToTheMaster(t *testing.T) {
	t.Parallel()
	group := testredis.StartSentinel(t, 0)
	name, one, two := masterOf(t, group), group.Sentinels[0].Addr, group.Sentinels[1].Addr
	execs(t, one+"?master_name="+name, 0, "n", "--", "true")
	execs(t, one+"?master_name="+name, 0, "--fair", "n", "--", "true")
	demonstrates(t, "redis://"+one+"?master_name="+name)

	for url, says := range map[string][]string{
		one:                   {one + " is the port of a Sentinel", "add ?master_name=NAME"},
		one + "/1?protocol=2": {"is the port of a Sentinel"},
		one + "?master_name=other&addr=" + two: {"the Sentinel " + one + ` does not know a master "other"`,
			"the Sentinel " + two + " does not"},
		group.Nodes[0].Addr + "?master_name=x": {"the Sentinel " + group.Nodes[0].Addr + ": ",
			"unknown command"},
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
	said := execs(t, one+"?addr="+two+"&master_name="+name, exitTrouble, "--wait", "2s", "n", "--", "true")
	if !strings.Contains(said, "no Sentinel can be reached") || !strings.Contains(said, one) ||
		!strings.Contains(said, two) {
		t.Errorf("Sentinels are down: %s", said)
	}
	if out, _, code := operate(t, one+"?master_name="+name, "doctor"); code != exitWrong ||
		!strings.Contains(out, "no Sentinel can be reached") {
		t.Errorf("doctor: exit code %d: %s", code, out)
	}
}

func TestDoctorFollowsSentinels(t *testing.T) {
	t.Parallel()
	group := testredis.StartSentinel(t, 1)
	url := "redis://" + group.Sentinels[0].Addr + "?master_name=" + masterOf(t, group)
	e := examine(t, url, time.Now)
	e.want(t, "reach", fine, "answers")
	e.want(t, "locks", fine, "")
	if want := group.Nodes[0].Addr + ", the master that the Sentinels name"; e[0].Server != want {
		t.Errorf("the server is %q, want %q", e[0].Server, want)
	}

	if _, errOut, code := operate(t, group.Sentinels[0].Addr, "inspect", "x"); code != exitTrouble ||
		!strings.Contains(errOut, "add ?master_name=NAME") {
		t.Errorf("without the master's name: exit code %d: %s", code, errOut)
	}
}

func TestDoctorFindsFrozenSentinelsAndLongTimeouts(t *testing.T) {
	t.Parallel()
	group := testredis.StartSentinel(t, 1)
	url := "redis://" + group.Sentinels[0].Addr + "?master_name=" + masterOf(t, group)
	e := examine(t, url, time.Now)
	e.want(t, "quorum", fine, "3 of 3 answer, 2 are needed") // the URL names only one of the Sentinels
	e.want(t, "down-after", fine, "down-after-milliseconds 500")

	client := redis.NewSentinelClient(&redis.Options{Addr: group.Sentinels[0].Addr})
	defer client.Close()
	testlock.Must(t, client.Set(t.Context(), masterOf(t, group), "down-after-milliseconds", "120000").Err())
	e = examine(t, url, time.Now)
	e.want(t, "down-after", warning, "down-after-milliseconds 120000")
	e.want(t, "agreement", warning, "120000")
	group.Sentinels[1].Freeze()
	defer group.Sentinels[1].Thaw()
	e = examine(t, url, time.Now)
	e.want(t, "reach", warning, "timeout")
	e.want(t, "quorum", warning, "2 of 3 answer")
	group.Sentinels[2].Freeze()
	defer group.Sentinels[2].Thaw()
	examine(t, url, time.Now).want(t, "quorum", failure, "1 of 3 answer")
}

// masterOf returns the name under which the Sentinels know their master.
func masterOf(t *testing.T, group *testredis.Sentinel) string {
	t.Helper()
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: group.Sentinels[0].Addr})
	defer sentinel.Close()
	masters, err := sentinel.Masters(t.Context()).Result()
	if err != nil || len(masters) != 1 {
		t.Fatalf("%v, %v", masters, err)
	}
	return masters[0].(map[any]any)["name"].(string)
}

func TestLsFindsLocksOnEveryMasterOfACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	rdb := cluster.Client(t)
	session := testlock.NewSession(t, rdb)
	masters := map[*testredis.Server]bool{}
	for i := range 30 {
		name := fmt.Sprint("lock ", i)
		take(t, rlock.New(session, name))
		masters[cluster.Master(t, "lockline:r:{"+name+"}")] = true
	}
	if len(masters) != 3 {
		t.Fatalf("the locks are on %d masters only", len(masters))
	}
	one, two, three := cluster.Nodes[0].Addr, cluster.Nodes[1].Addr, cluster.Nodes[2].Addr
	for _, addr := range []string{one, three + "?addr=" + two} { // each node leads to the others
		if got := operateJSON[[]lockState](t, addr, "ls"); len(got) != 30 {
			t.Errorf("%s: found %d locks of 30", addr, len(got))
		}
	}
	if out, errOut, code := operate(t, cluster.Nodes[0].Addr, "doctor"); code != exitOK ||
		strings.Count(out, "a master of a Cluster whose state is ok") != 3 {
		t.Errorf("doctor: exit code %d, %s%s", code, out, errOut)
	}
}

func TestTheDocumentedURLAndRightsLeadThroughSentinels(t *testing.T) {
	t.Parallel()
	group := testredis.StartSentinel(t, 0)
	rights := testlock.DocumentedRights(t)
	for _, sentinel := range group.Sentinels {
		setRules(t, sentinel.Client(t), "lockline", rights.Sentinel)
	}
	setRules(t, group.Nodes[0].Client(t), "lockline", rights.Server)
	_, url, found := strings.Cut(testlock.Operations(t), "LOCKLINE_REDIS='redis://SENTINELUSER:")
	url, _, _ = strings.Cut(url, "'")
	if !found {
		t.Fatal("no URL of Sentinels is documented")
	}
	url = strings.NewReplacer(
		"sentinel-1:26379", group.Sentinels[0].Addr, "sentinel-2:26379", group.Sentinels[1].Addr,
		"mymaster", masterOf(t, group), "=USER", "=lockline").Replace("lockline:" + url)
	execs(t, url, 0, "n", "--", "true")
	if _, errOut, code := operate(t, url, "inspect", "n"); code != exitOK {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	for _, sentinel := range group.Sentinels {
		if refused := refusedTo(t, sentinel.Client(t)); refused != nil {
			t.Errorf("refused: %q", refused)
		}
	}
}

func TestDoctorFindsANodeThatIsDown(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	cluster.Nodes[2].Kill()
	rdb := cluster.Nodes[0].Client(t)
	testlock.Eventually(t, "noticed", func() bool {
		return strings.Contains(rdb.ClusterInfo(t.Context()).Val(), "cluster_state:fail")
	})
	e := examine(t, "redis://"+cluster.Nodes[0].Addr, time.Now)
	e.want(t, "reach", failure, "")
	e.want(t, "cluster", failure, "state is fail")
}

func TestLsShowsTheLocksOfTheNodesThatAnswer(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	for _, node := range cluster.Nodes {
		rdb := node.Client(t)
		testlock.Must(t, rdb.ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
	}
	s := testlock.NewSession(t, cluster.Client(t))
	dead, alive := cluster.Nodes[0], cluster.Nodes[1]
	held, waitedFor := 0, ""
	for i := range 30 {
		name := fmt.Sprint("lock ", i)
		if cluster.Master(t, "lockline:r:{"+name+"}") != dead {
			held++
			waitedFor = name
		}
		take(t, rlock.New(s, name))
	}
	waiting := testlock.NewSession(t, cluster.Client(t))
	begin(t, rlock.New(waiting, waitedFor), rlock.New(s, waitedFor).Inspect, waiting)
	list := func() (string, string, int) { return operate(t, alive.Addr, "ls") }
	if out, errOut, code := list(); code != exitOK || strings.Count(out, "process ") != 30 {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	dead.Kill()
	out, errOut, code := list()
	if code != exitTrouble || strings.Count(out, "process ") != held ||
		!strings.Contains(errOut, "the locks of some nodes are not known: node "+dead.Addr) {
		t.Errorf("exit code %d, not %d locks: %s%s", code, held, out, errOut)
	}
	out, errOut, code = operate(t, alive.Addr, "ls", "--waits")
	if code != exitTrouble || strings.Count(out, waitedFor) != 1 ||
		!strings.Contains(errOut, "the locks of some nodes are not known: node "+dead.Addr) {
		t.Errorf("--waits: exit code %d: %s%s", code, out, errOut)
	}
}
