package rwlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
)

// newSession returns a session of a server in memory. Use your own server.
func newSession() (session *rlock.Session, end func(), err error) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		return nil, nil, err
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	session, err = rlock.NewSession(rdb)
	return session, func() {
		_ = session.Close()
		_ = rdb.Close()
		server.Close()
	}, err
}

func ExampleNew() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	catalog := rwlock.New(session, "catalog")
	fmt.Println(catalog.DoRead(context.Background(), func(context.Context) error {
		fmt.Println("beside other readers")
		return nil
	}))
	fmt.Println(catalog.Do(context.Background(), func(context.Context) error {
		fmt.Println("alone")
		return nil
	}))
	// Output:
	// beside other readers
	// <nil>
	// alone
	// <nil>
}

func ExampleRWMutex_Lock() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	catalog := rwlock.New(session, "catalog")
	ctx, hold, err := catalog.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, nested, err := catalog.Lock(ctx) // re-enters, because ctx carries the hold
	fmt.Println(err, nested.Unlock(context.Background()))
	fmt.Println("writing:", ctx.Err() == nil)
	fmt.Println(hold.Unlock(context.Background()))
	fmt.Println("writing:", ctx.Err() == nil)
	// Output:
	// <nil> <nil>
	// writing: true
	// <nil>
	// writing: false
}

func ExampleRWMutex_RLock() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	catalog := rwlock.New(session, "catalog")
	ctx, reader, err := catalog.RLock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, another, err := catalog.RLock(context.Background()) // does not wait for the first one
	fmt.Println(err, another.Unlock(context.Background()))
	_, _, err = catalog.Lock(ctx)
	fmt.Println("no upgrade:", errors.Is(err, rwlock.ErrUpgrade))
	fmt.Println(reader.Unlock(context.Background()))
	// Output:
	// <nil> <nil>
	// no upgrade: true
	// <nil>
}

// A writer continues as a reader, and no other writer gets the lock in between.
func ExampleRWMutex_RLock_downgrade() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	catalog := rwlock.New(session, "catalog")
	ctx, writer, err := catalog.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, reader, err := catalog.RLock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(writer.Unlock(context.Background()))
	fmt.Println("reading:", ctx.Err() == nil)
	_, other, err := catalog.TryRLock(context.Background())
	fmt.Println("others can read:", err == nil, other.Unlock(context.Background()))
	fmt.Println(reader.Unlock(context.Background()))
	// Output:
	// <nil>
	// reading: true
	// others can read: true <nil>
	// <nil>
}

func ExampleRWMutex_TryLock() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	catalog := rwlock.New(session, "catalog")
	_, reader, err := catalog.RLock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _, err = catalog.TryLock(context.Background())
	fmt.Println("a reader is inside:", errors.Is(err, rlock.ErrLocked))
	fmt.Println(reader.Unlock(context.Background()))
	// Output:
	// a reader is inside: true
	// <nil>
}

func ExampleRWMutex_TryRLock() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	catalog := rwlock.New(session, "catalog")
	_, writer, err := catalog.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _, err = catalog.TryRLock(context.Background())
	var locked *rlock.LockedError
	fmt.Println("a writer is inside:", errors.As(err, &locked))
	fmt.Println(writer.Unlock(context.Background()))
	// Output:
	// a writer is inside: true
	// <nil>
}

func ExampleRWMutex_Do() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	catalog := rwlock.New(session, "catalog")
	err = catalog.Do(context.Background(), func(ctx context.Context) error {
		st, err := catalog.Inspect(ctx)
		fmt.Println("read:", st.Shared, "holders:", len(st.Holders))
		return err
	})
	fmt.Println(err)
	// Output:
	// read: false holders: 1
	// <nil>
}

func ExampleRWMutex_DoRead() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	catalog := rwlock.New(session, "catalog")
	err = catalog.DoRead(context.Background(), func(ctx context.Context) error {
		st, err := catalog.Inspect(ctx)
		fmt.Println("read:", st.Shared, "holders:", len(st.Holders))
		return err
	})
	fmt.Println(err)
	// Output:
	// read: true holders: 1
	// <nil>
}

func ExampleRWMutex_RLocker() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	prices, stock := rwlock.New(session, "prices"), rwlock.New(session, "stock")
	err = multilock.New(prices.RLocker(), stock).Do(context.Background(), func(context.Context) error {
		fmt.Println("reads prices, and writes stock")
		return nil
	})
	fmt.Println(err)
	// Output:
	// reads prices, and writes stock
	// <nil>
}

func ExampleRWMutex_Inspect() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	catalog := rwlock.New(session, "catalog")
	_, one, err := catalog.RLock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, two, err := catalog.RLock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	st, err := catalog.Inspect(context.Background())
	fmt.Println("written:", st.Held && !st.Shared, "queue:", len(st.Queue), err)
	fmt.Println("both read for one session:", st.Session == session.ID())
	fmt.Println(one.Unlock(context.Background()), two.Unlock(context.Background()))
	// Output:
	// written: false queue: 0 <nil>
	// both read for one session: true
	// <nil> <nil>
}

func ExampleRWMutex_ForceUnlock() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	catalog := rwlock.New(session, "catalog")
	_, writer, err := catalog.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(catalog.ForceUnlock(context.Background()))
	fmt.Println("lost:", errors.Is(writer.Unlock(context.Background()), rlock.ErrLost))
	// Output:
	// true <nil>
	// lost: true
}

func ExampleRWMutex_ForceUnlockReaders() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	catalog := rwlock.New(session, "catalog")
	_, reader, err := catalog.RLock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(catalog.ForceUnlockReaders(context.Background())) // takes the lock from all readers
	fmt.Println("lost:", errors.Is(reader.Unlock(context.Background()), rlock.ErrLost))
	// Output:
	// 1 <nil>
	// lost: true
}

func ExampleRWMutex_ForceUnlockToken() {
	session, end, err := newSession()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	catalog := rwlock.New(session, "catalog")
	_, reader, err := catalog.RLock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	st, err := catalog.Inspect(context.Background()) // an operator finds the holder
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(catalog.ForceUnlockToken(context.Background(), st.Token))
	fmt.Println("lost:", errors.Is(reader.Unlock(context.Background()), rlock.ErrLost))
	// Output:
	// true <nil>
	// lost: true
}
