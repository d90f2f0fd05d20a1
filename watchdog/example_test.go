package watchdog_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lockline/lockline/watchdog"
)

// A grant is something that a server has granted for a limited time.
type grant struct {
	watchdog.Lease
	name string
	lost chan struct{}
}

// A registry stands for the server. It renews a grant twice. After that, it no longer has the grant.
type registry struct{ renewals int }

func (r *registry) Server(*watchdog.Lease) any { return "localhost" }

func (r *registry) Renew(_ context.Context, _ any, batch []*watchdog.Lease) []watchdog.Result {
	sentAt := time.Now()
	results := make([]watchdog.Result, len(batch))
	for i, l := range batch {
		if r.renewals++; r.renewals > 2 {
			results[i] = watchdog.Result{Gone: true}
			continue
		}
		fmt.Println("renewed", l.Owner.(*grant).name)
		results[i] = watchdog.Result{Deadline: sentAt.Add(time.Minute)}
	}
	return results
}

func (r *registry) Lost(l *watchdog.Lease, deadlinePassed bool) {
	g := l.Owner.(*grant)
	fmt.Println("lost", g.name)
	close(g.lost)
}

func (r *registry) Failed(l *watchdog.Lease, err error) { fmt.Println(err) }

func ExampleNew() {
	w := watchdog.New(&registry{})
	defer w.Close()

	g := &grant{name: "orders", lost: make(chan struct{})}
	g.Owner = g
	w.Add(&g.Lease, time.Now().Add(time.Minute), 50*time.Millisecond)
	<-g.lost

	// Output:
	// renewed orders
	// renewed orders
	// lost orders
}
