package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// The marketplace of Redis in Action, chapter 6: sellers move items from their
// inventory to the market, buyers move items and money the other way. Each is a
// process of its own, here a client. Either WATCH/MULTI/EXEC guards a move, or a lock:
// one for the market, or one for each item.

// marketOf is that scenario with so many of each.
func marketOf(sellers, buyers int, fine bool) scenario {
	kind, lock := "coarse", "one lock for the market"
	if fine {
		kind, lock = "fine", "a lock for each item"
	}
	return scenario{
		name:    fmt.Sprintf("market-%dx%d-%s", sellers, buyers, kind),
		what:    fmt.Sprintf("marketplace of Redis in Action: %d sellers, %d buyers, %s; a cycle is a purchase", sellers, buyers, lock),
		needs:   []need{waiting, oneServer},
		clients: sellers, count: buyers, goroutines: 1, fine: fine,
		run: runMarket,
	}
}

// watch is no lock: it is what the book compares locks with.
func watch() contender {
	const noLock = "it is no lock; it takes part in the market"
	return contender{
		name:   "watch",
		module: "github.com/redis/go-redis/v9",
		config: "WATCH/MULTI/EXEC, tried again until it succeeds; go-redis defaults",
		lacks:  lacks{aLock: noLock, aTurn: noLock},
		floor:  true,
		dial:   func(setup) (client, error) { return noClient{}, nil },
	}
}

type noClient struct{}

func (noClient) mutex(string) mutex { return nil }
func (noClient) close() error       { return nil }

// market is the keys, and what the traders count.
type market struct {
	bout
	prefix string
	stop   atomic.Bool

	listed, retries, overlaps, stuck atomic.Int64
	inside                           sync.Map // names of locks that somebody is in

	mu    sync.Mutex // guards the rest
	waits histogram  // of purchases
	total time.Duration
}

func (m *market) key(parts ...any) string { return m.prefix + ":" + fmt.Sprint(parts...) }

func (m *market) purchases() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waits.N
}

func runMarket(ctx context.Context, b bout) (_ sample, err error) {
	spent, around := b.metered(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := &market{bout: b, prefix: newName()}
	var wg sync.WaitGroup
	var traders []*trader
	defer func() {
		for _, t := range traders {
			err = errors.Join(err, t.client.close(), t.rdb.Close())
		}
	}()
	for i := range b.clients + b.count {
		t, err := m.newTrader(i)
		if err != nil {
			return sample{}, err
		}
		traders = append(traders, t)
	}
	if err := around(true); err != nil {
		return sample{}, err
	}
	cpu := cpuTime()
	began := time.Now()
	for i, t := range traders {
		trade := t.buy
		if i < b.clients {
			trade = t.sell
		}
		wg.Go(func() {
			for n := 0; !m.stop.Load(); n++ {
				if err := trade(ctx, n); err != nil {
					if context.Cause(ctx) == errStuck {
						m.stuck.Add(1)
					}
					cancel(err)
					return
				}
			}
		})
	}
	err = pause(ctx, b.window)
	for wait := time.Now(); err == nil && m.purchases() == 0 && time.Since(wait) < drainFor; {
		err = pause(ctx, time.Millisecond)
	}
	took := time.Since(began)
	m.stop.Store(true)
	timer := time.AfterFunc(drainFor, func() { cancel(errStuck) })
	wg.Wait()
	timer.Stop()
	if cause := context.Cause(ctx); err == nil && cause != errStuck {
		err = cause
	}
	if err != nil {
		return sample{}, err
	}
	cpu = cpuTime() - cpu
	if err := around(false); err != nil {
		return sample{}, err
	}
	violations, err := m.audit(context.WithoutCancel(ctx), traders)
	if err != nil {
		return sample{}, err
	}
	purchases := float64(m.purchases())
	f := figures{
		"cycles_per_s": purchases / took.Seconds(),
		"per_60s":      60 * purchases / took.Seconds(),
		"listed_per_s": float64(m.listed.Load()) / took.Seconds(),
		"stuck":        float64(m.stuck.Load()),
		"violations":   float64(violations),
	}
	if purchases > 0 {
		f["retries_per_cycle"] = float64(m.retries.Load()) / purchases
		f["wait_mean_us"] = micros(m.total) / purchases
		if cpu > 0 && !b.embedded {
			f["cpu_us_per_cycle"] = micros(cpu) / purchases
		}
		if b.tells() { // what traders send, scripts call as well, so how long the requests took nobody can say
			f["server_cpu_us_per_cycle"] = spent.cpu * 1e6 / purchases
		}
	}
	f.waits(&m.waits)
	return sample{f, &m.waits}, nil
}

// trader is one seller or buyer.
type trader struct {
	*market
	id     int
	rdb    *redis.Client
	client client
	coarse mutex
}

func (m *market) newTrader(id int) (*trader, error) {
	rdb, err := dialRedis(m.Redis[0])
	if err != nil {
		return nil, err
	}
	c, err := m.dial(m.setup)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	t := &trader{m, id, rdb, c, c.mutex(m.key("lock"))}
	if err := rdb.HSet(context.Background(), t.key("funds", id), "funds", 1<<40).Err(); err != nil {
		return nil, errors.Join(err, c.close(), rdb.Close())
	}
	return t, nil
}

// sell lists one new item.
func (t *trader) sell(ctx context.Context, n int) error {
	item := fmt.Sprintf("%d.%d", t.id, n)
	inventory := t.key("inventory", t.id)
	if err := t.rdb.SAdd(ctx, inventory, item).Err(); err != nil {
		return err
	}
	for {
		sold, err := t.guarded(ctx, item, []string{inventory}, func(c reader) (change, error) {
			has, err := c.SIsMember(ctx, inventory, item).Result()
			if err == nil && !has {
				err = errors.New("an item has gone from its seller's inventory")
			}
			if err != nil {
				return nil, err
			}
			return func(p redis.Pipeliner) {
				p.ZAdd(ctx, t.key("market"), redis.Z{Score: price, Member: item})
				p.SRem(ctx, inventory, item)
			}, nil
		})
		if err != nil {
			return err
		}
		if sold {
			t.listed.Add(1)
			return nil
		}
	}
}

const price = 1

// buy buys one item, whichever it can get.
func (t *trader) buy(ctx context.Context, _ int) error {
	began := time.Now()
	for !t.stop.Load() {
		items, err := t.rdb.ZRandMember(ctx, t.key("market"), 1).Result()
		if err != nil {
			return err
		}
		if len(items) == 0 { // no wait for another: there is nothing to buy
			if err := pause(ctx, 100*time.Microsecond); err != nil {
				return err
			}
			began = time.Now()
			continue
		}
		item := items[0]
		purse := t.key("funds", t.id)
		bought, err := t.guarded(ctx, item, []string{t.key("market"), purse}, func(c reader) (change, error) {
			var offer *redis.FloatCmd
			var funds *redis.StringCmd
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
				offer, funds = p.ZScore(ctx, t.key("market"), item), p.HGet(ctx, purse, "funds")
				return nil
			})
			if err != nil && !errors.Is(err, redis.Nil) {
				return nil, err
			}
			if offer.Err() != nil { // sold to another
				return nil, nil
			}
			if money, err := funds.Int(); err != nil || money < price {
				return nil, errors.Join(err, errors.New("a buyer has run out of money"))
			}
			var seller int
			if _, err := fmt.Sscanf(item, "%d.", &seller); err != nil {
				return nil, err
			}
			return func(p redis.Pipeliner) {
				p.HIncrBy(ctx, t.key("funds", seller), "funds", price)
				p.HIncrBy(ctx, purse, "funds", -price)
				p.SAdd(ctx, t.key("inventory", t.id), item)
				p.ZRem(ctx, t.key("market"), item)
			}, nil
		})
		if err != nil {
			return err
		}
		if !bought {
			t.retries.Add(1)
			continue
		}
		t.mu.Lock()
		t.waits.add(time.Since(began))
		t.total += time.Since(began)
		t.mu.Unlock()
		return nil
	}
	return nil
}

// reader is what a trader looks at the market with: a client, or a transaction.
type reader interface {
	SIsMember(ctx context.Context, key string, member any) *redis.BoolCmd
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// change is what is done in one MULTI/EXEC; nil if it is not to be done.
type change func(redis.Pipeliner)

// guarded looks, then does, with no other between. It reports whether it did.
func (t *trader) guarded(ctx context.Context, item string, keys []string, look func(reader) (change, error)) (done bool, err error) {
	if t.coarse == nil {
		err := t.rdb.Watch(ctx, func(tx *redis.Tx) error {
			todo, err := look(tx)
			if err == nil && todo != nil {
				_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { todo(p); return nil })
				done = err == nil
			}
			return err
		}, keys...)
		if errors.Is(err, redis.TxFailedErr) {
			return false, nil
		}
		return done, err
	}
	name, m := "", t.coarse
	if t.fine {
		name = item
		m = t.client.mutex(t.key("lock", item))
	}
	if _, err := m.lock(ctx); err != nil {
		return false, err
	}
	if _, occupied := t.inside.LoadOrStore(name, t); occupied {
		t.overlaps.Add(1)
	}
	todo, err := look(t.rdb)
	if err == nil && todo != nil {
		_, err = t.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error { todo(p); return nil })
		done = err == nil
	}
	t.inside.Delete(name)
	return done, errors.Join(err, m.unlock(ctx))
}

// audit counts what was sold twice, is lost, or was in two hands, and overlaps of critical sections.
func (m *market) audit(ctx context.Context, traders []*trader) (int64, error) {
	rdb := traders[0].rdb
	var buyers []string
	keys := []string{m.key("market"), m.key("sold")}
	for i, t := range traders {
		keys = append(keys, t.key("funds", t.id), t.key("inventory", t.id))
		if i >= m.clients {
			buyers = append(buyers, t.key("inventory", t.id))
		}
	}
	sold, err := rdb.SUnionStore(ctx, m.key("sold"), buyers...).Result()
	if err != nil {
		return 0, err
	}
	offered, err := rdb.ZCard(ctx, m.key("market")).Result()
	if err != nil {
		return 0, err
	}
	twice := int64(m.purchases()) - sold
	missing := max(m.listed.Load()-sold-offered, sold+offered-m.listed.Load())
	return m.overlaps.Load() + twice + missing, rdb.Unlink(ctx, keys...).Err()
}
