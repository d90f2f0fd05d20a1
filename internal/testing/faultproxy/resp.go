package faultproxy

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A value is a decoded value of RESP2 or RESP3.
type value struct {
	kind  byte    // type byte of the value; '_' for a null of any type
	str   string  // text of a value without elements
	elems []value // elements of an array, set or push; for a map, each key is followed by its value
}

func (v value) String() string {
	switch v.kind {
	case '_':
		return "(nil)"
	case '*', '~', '>', '%':
		return fmt.Sprint(v.elems)
	}
	return v.str
}

// name returns the first element of an array or a push in lower case, for example "message". For other
// values, it returns "".
func (v value) name() string {
	if (v.kind != '*' && v.kind != '>') || len(v.elems) == 0 {
		return ""
	}
	return strings.ToLower(v.elems[0].str)
}

func (v value) args() []string {
	args := make([]string, len(v.elems))
	for i, e := range v.elems {
		args[i] = e.str
	}
	return args
}

// A protocolError is a line that is not RESP. Its type distinguishes it from the error of a connection that
// has ended.
type protocolError string

func (e protocolError) Error() string { return fmt.Sprintf("not RESP: %q", string(e)) }

// A decoder splits a stream into values. It also returns the bytes of each value, because the proxy must
// forward exactly these bytes.
type decoder struct {
	r   *bufio.Reader
	raw []byte
}

func newDecoder(r io.Reader) *decoder { return &decoder{r: bufio.NewReaderSize(r, 16<<10)} }

func (d *decoder) next() (v value, raw []byte, err error) {
	d.raw = nil
	v, err = d.value()
	return v, d.raw, err
}

func (d *decoder) value() (value, error) {
	line, err := d.line()
	if err != nil {
		return value{}, err
	}
	v := value{kind: line[0], str: string(line[1:])}
	switch v.kind {
	case '+', '-', ':', ',', '#', '(':
		return v, nil
	case '_':
		return value{kind: '_'}, nil
	case '$', '!', '=', '*', '~', '>', '%', '|':
	default:
		return value{}, protocolError(line)
	}

	n, err := strconv.Atoi(v.str)
	if err != nil { // including "$?", a length that RESP3 allows, but no server sends
		return value{}, protocolError(line)
	}
	if n < 0 {
		return value{kind: '_'}, nil
	}
	switch v.kind {
	case '$', '!', '=':
		v.str, err = d.bulk(n)
		if v.kind == '=' && len(v.str) >= 4 {
			v.str = v.str[4:] // the first four bytes are the format, such as "txt:"
		}
		return v, err
	case '%', '|':
		n *= 2
	}
	v.str = ""
	for range n {
		e, err := d.value()
		if err != nil {
			return value{}, err
		}
		v.elems = append(v.elems, e)
	}
	if v.kind == '|' {
		return d.value() // v has only attributes of the value that follows
	}
	return v, nil
}

func (d *decoder) line() ([]byte, error) {
	line, err := d.r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	d.raw = append(d.raw, line...)
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, protocolError(line)
	}
	return line[:len(line)-2], nil
}

func (d *decoder) bulk(n int) (string, error) {
	start := len(d.raw)
	d.raw = append(d.raw, make([]byte, n+2)...)
	if _, err := io.ReadFull(d.r, d.raw[start:]); err != nil {
		return "", err
	}
	return string(d.raw[start : start+n]), nil
}

// encode returns the bytes of a request that consists of args.
func encode(args []string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}
