module github.com/lockline/lockline/tools

go 1.26.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/yuin/goldmark v1.8.7
	go.uber.org/goleak v1.3.0
	golang.org/x/mod v0.42.0
	golang.org/x/tools v0.52.0
)

require (
	github.com/yuin/gopher-lua v1.1.1 // indirect
	golang.org/x/sync v0.24.0 // indirect
)
