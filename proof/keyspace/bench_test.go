package keyspace

import (
	"testing"

	"github.com/lockline/lockline/internal/script"
)

func BenchmarkRun(b *testing.B) {
	const now = start
	owner := "A:1"
	argv := []string{owner, "3000", number64(now + 1e6), "me", "15000", "3000", "c:", "1", "", "0", "n1", "1"}
	compile := func(name string) *Script {
		s, err := Compile(name, script.Text(name))
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	lock, release := compile("lock/acquire"), compile("lock/release")
	env := Env{Now: now, Listening: listening}
	held := lock.Run(New(), env, lockKeys, argv).Space
	other := append([]string{"B:1"}, argv[1:]...)
	queued := lock.Run(held, env, lockKeys, other).Space
	for _, c := range []struct {
		name   string
		script *Script
		space  *Space
		argv   []string
		reply  byte
	}{
		{"free", lock, New(), argv, 'G'},
		{"held", lock, held, other, 'Q'},
		{"handed over", release, queued, []string{owner, "", "c:", "15000", "0", "0"}, 'R'},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if e := c.script.Run(c.space, env, lockKeys, c.argv); e.Err != nil || e.Reply[0] != c.reply {
					b.Fatal(e)
				}
			}
		})
	}
}
