package protocol

import (
	"fmt"
	"net/url"
	"strings"
)

// ValueError is the error of a script that found a value in a key that Lockline did not write (bad in
// shared.lua).
type ValueError struct{ Key, Field, Value, Why string }

// RedisError marks it as the server's answer, which will be the same until the key is mended.
func (e *ValueError) RedisError() {}

func (e *ValueError) Error() string {
	field := ""
	if e.Field != "" {
		field = fmt.Sprintf(" in its field %q", e.Field)
	}
	return fmt.Sprintf("the key %q has %q%s, %s, which Lockline did not write; delete that key, "+
		"of a lock once it is free or was freed by force: tokens go on from the server's clock",
		e.Key, e.Value, field, e.Why)
}

// Refusal decodes an error that a script of Lockline's raised, and returns any other as it is.
func Refusal(err error) error {
	if err == nil {
		return nil
	}
	_, text, ok := strings.Cut(err.Error(), "LOCKLINE ")
	text, _, _ = strings.Cut(text, " ")
	words := strings.Split(text, ",")
	if !ok || len(words) != 4 {
		return err
	}
	for i := range words {
		words[i], _ = url.PathUnescape(strings.ReplaceAll(words[i], "=", "%"))
	}
	return &ValueError{words[0], words[1], words[2], words[3]}
}
