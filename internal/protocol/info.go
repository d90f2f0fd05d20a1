package protocol

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The holder info of an attempt has the form 'PID@HOST LABEL', or 'PID@HOST LABEL<tab>NOTE' if its call has a
// note. LABEL may be empty. A version that does not know of notes takes a note for the end of the label.

// MaxText is the longest label or note, in bytes. Each is in every entry of the queue, and in every request
// for a lock.
const MaxText = 512

// CheckText returns an error if the text, which the option got, is no label or note: longer than MaxText, not
// UTF-8, or with control characters, one of which ends the label.
func CheckText(option, text string) error {
	why := ""
	switch {
	case len(text) > MaxText:
		why = fmt.Sprintf("a text of %d bytes, and at most %d are allowed", len(text), MaxText)
	case !utf8.ValidString(text):
		why = "the text is not valid UTF-8"
	case strings.ContainsFunc(text, unicode.IsControl):
		why = "the text contains a control character, such as a line break or a tab"
	default:
		return nil
	}
	return fmt.Errorf("lockline: %s: %s: %.40q", option, why, text)
}

// WithNote returns the holder info of a session with the note of one call.
func WithNote(info, note string) string { return info + "\t" + note }

// ReadInfo returns the session id in an owner field, and what the holder info tells.
func ReadInfo(owner, info string) (session string, pid int, host, label, note string) {
	session, _, _ = strings.Cut(owner, ":")
	info, note, _ = strings.Cut(info, "\t")
	id, label, _ := strings.Cut(info, " ")
	p, host, _ := strings.Cut(id, "@")
	pid, _ = strconv.Atoi(p)
	return session, pid, host, label, note
}
