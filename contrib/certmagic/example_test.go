package certmagiclock_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/alicebob/miniredis/v2"
	"github.com/caddyserver/certmagic"
	"github.com/redis/go-redis/v9"

	certmagiclock "github.com/lockline/lockline/contrib/certmagic"
	"github.com/lockline/lockline/rlock"
)

func ExampleNew() {
	server := miniredis.NewMiniRedis() // use your own server
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	session, err := rlock.NewSession(rdb)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	folder, err := os.MkdirTemp("", "certificates") // use a folder that all instances share
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	storage := certmagiclock.New(session, &certmagic.FileStorage{Path: folder})
	certmagic.Default.Storage = storage // now certmagic.HTTPS uses locks in Redis

	ctx := context.Background()
	if err := storage.Lock(ctx, "issue_cert_example.com"); err != nil { // as certmagic does
		log.Fatal(err)
	}
	fmt.Println(storage.TryLock(ctx, "issue_cert_example.com"))
	fmt.Println(storage.Unlock(ctx, "issue_cert_example.com"))
	// Output:
	// false <nil>
	// <nil>
}
