package protocol

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The holder info of an attempt has the form 'PID@HOST/PROTOCOL:LIBRARY LABEL', or 'PID@HOST/PROTOCOL:LIBRARY
// LABEL<tab>NOTE' if its call has a note. PROTOCOL is Version, and LIBRARY the version of this library. If
// the version of the library is not known, ':LIBRARY' is missing. LABEL may be empty. Older versions of the
// library, which do not know notes, read a note as the end of the label.

// MaxText is the longest label or note, in bytes. Labels and notes are limited because they are in every
// entry of the queue, and in every request for a lock.
const MaxText = 512

// CheckText returns an error if text is not valid as a label or a note. A valid text has at most MaxText
// bytes, is UTF-8, and has no control characters. For example, a tab would end the label. The text of the
// error contains option, the name of the option.
func CheckText(option, text string) error {
	why := ""
	switch {
	case len(text) > MaxText:
		why = fmt.Sprintf("the text has %d bytes, but at most %d are allowed", len(text), MaxText)
	case !utf8.ValidString(text):
		why = "the text is not valid UTF-8"
	case strings.ContainsFunc(text, unicode.IsControl):
		why = "the text contains a control character, such as a line break or a tab"
	default:
		return nil
	}
	return fmt.Errorf("lockline: %s: %s: %.40q", option, why, text)
}

// HolderInfo returns the holder info of a session, for calls without a note.
func HolderInfo(pid int, host, label string) string {
	versions := "/" + strconv.Itoa(Version)
	if v := library(); v != "" {
		versions += ":" + v
	}
	return strconv.Itoa(pid) + "@" + host + versions + " " + label
}

// WithNote returns the holder info of a session with the note of one call.
func WithNote(info, note string) string { return info + "\t" + note }

// Info is the content of an owner field and a holder info. Fields that are not known are zero.
type Info struct {
	Session  string
	PID      int
	Host     string
	Protocol int    // version of the protocol
	Library  string // version of the library
	Label    string
	Note     string
}

// ReadInfo reads an owner field and a holder info. In the holder info of a session with an old version of the
// library, the versions are missing. The holder info of another library may be any text.
func ReadInfo(owner, info string) (i Info) {
	i.Session, _, _ = strings.Cut(owner, ":")
	info, i.Note, _ = strings.Cut(info, "\t")
	who, label, _ := strings.Cut(info, " ")
	id, host, _ := strings.Cut(who, "@")
	i.PID, _ = strconv.Atoi(id)
	i.Host, i.Label = host, label
	if slash := strings.LastIndexByte(host, '/'); slash >= 0 {
		number, library, _ := strings.Cut(host[slash+1:], ":")
		if n, err := strconv.Atoi(number); err == nil && n > 0 {
			i.Host, i.Protocol, i.Library = host[:slash], n, library
		}
	}
	return i
}
