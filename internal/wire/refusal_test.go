package wire

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// The text of a script's error arrives unchanged.
func TestAScriptsRefusalIsToldInWords(t *testing.T) {
	err := refusal(reply("ERR user_script:1: LOCKLINE lockline:r:{a=20b}:t,t,zzz=0A=25,why . script: 12, " +
		"on @user_script:1."))
	var got *ValueError
	if !errors.As(err, &got) || *got != (ValueError{"lockline:r:{a b}:t", "t", "zzz\n%", "why"}) {
		t.Errorf("%v", err)
	}
	for _, other := range []error{nil, io.EOF, reply("ERR LOCKLINE x"), reply("WRONGTYPE")} {
		if got := refusal(other); got != other {
			t.Errorf("%v became %v", other, got)
		}
	}
}

func TestAValueErrorIsTheServersLastWord(t *testing.T) {
	var err error = &ValueError{"k", "f", "v", "no number"}
	if v := Judge(err); v != (Verdict{Refused: true}) {
		t.Errorf("%+v", v)
	}
	if !errors.As(err, new(redis.Error)) {
		t.Error("it is no answer of the server")
	}
}

func TestAValueErrorSaysWhereTheValueIs(t *testing.T) {
	const of = `the key "k" has "v"`
	for field, want := range map[string]string{
		"f": of + ` in its field "f", no number`, "": of + ", no number",
	} {
		if text := (&ValueError{"k", field, "v", "no number"}).Error(); !strings.HasPrefix(text, want) {
			t.Errorf("%s", text)
		}
	}
}

func TestAHashOfAnotherProgramIsNotSaidToHaveAnOddValue(t *testing.T) {
	err := &ValueError{"k", "s:1", "1", "foreign lock lives"}
	const want = `the key "k" is not a lock of this version of Lockline: it has the field "s:1" and ` +
		`no field "lives"; an older version of Lockline or another program writes it: ` +
		`stop that program and delete the key (redis-cli DEL), or use another prefix`
	if text := err.Error(); text != want {
		t.Error(text)
	}
}
