package engine

import (
	"io"
	"testing"

	"github.com/lockline/lockline/internal/wire"
)

type reply string

func (r reply) Error() string { return string(r) }

func (r reply) RedisError() {}

// What a script says of a value comes through the servers as it was.
func TestAScriptsRefusalIsToldInWords(t *testing.T) {
	err := refusal(reply("ERR user_script:1: LOCKLINE lockline:r:{a=20b}:t,t,zzz=0A=25,why . script: 12, on @user_script:1."))
	if want := (&valueError{"lockline:r:{a b}:t", "t", "zzz\n%", "why"}); err.Error() != want.Error() || wire.Judge(err) != (wire.Verdict{}) {
		t.Errorf("%v: %+v", err, wire.Judge(err))
	}
	for _, other := range []error{nil, io.EOF, reply("ERR LOCKLINE x"), reply("WRONGTYPE")} {
		if got := refusal(other); got != other {
			t.Errorf("%v became %v", other, got)
		}
	}
}
