module github.com/lockline/lockline/contrib/lockvet

go 1.26.0

replace github.com/lockline/lockline => ../..

require (
	github.com/golangci/plugin-module-register v0.1.2
	github.com/lockline/lockline v0.0.0-00010101000000-000000000000
	go.uber.org/goleak v1.3.0
	golang.org/x/tools v0.52.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/redis/go-redis/v9 v9.22.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
