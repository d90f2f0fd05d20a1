package faultproxy

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestEveryTypeOfRESP3IsDecodedAndKeptByteForByte(t *testing.T) {
	for wire, want := range map[string]string{
		"+OK\r\n":                             "OK",
		"-ERR no\r\n":                         "ERR no",
		":-7\r\n":                             "-7",
		"$5\r\na\r\nbc\r\n":                   "a\r\nbc",
		"$0\r\n\r\n":                          "",
		"$-1\r\n":                             "(nil)",
		"*-1\r\n":                             "(nil)",
		"_\r\n":                               "(nil)",
		"#t\r\n":                              "t",
		",3.5\r\n":                            "3.5",
		"(123456789012345678901\r\n":          "123456789012345678901",
		"!5\r\nERR x\r\n":                     "ERR x",
		"=7\r\ntxt:abc\r\n":                   "abc",
		"*0\r\n":                              "[]",
		"*2\r\n:1\r\n*1\r\n_\r\n":             "[1 [(nil)]]",
		"~1\r\n+a\r\n":                        "[a]",
		"%1\r\n+k\r\n%1\r\n+a\r\n:2\r\n":      "[k [a 2]]",
		">3\r\n+message\r\n+c\r\n$1\r\nm\r\n": "[message c m]",
		"|1\r\n+ttl\r\n:3\r\n*1\r\n|1\r\n+x\r\n#f\r\n:5\r\n": "[5]",
	} {
		d := newDecoder(iotest.OneByteReader(strings.NewReader(wire + "+next\r\n")))
		v, raw, err := d.next()
		if err != nil || v.String() != want || string(raw) != wire {
			t.Errorf("%q: got %q, bytes %q, error %v; want %q", wire, v, raw, err, want)
		}
		if v, _, err := d.next(); err != nil || v.str != "next" {
			t.Errorf("%q: the next value is %q, error %v", wire, v, err)
		}
	}
}

func TestWhatIsNotRESPIsToldApartFromAnEnd(t *testing.T) {
	for _, wire := range []string{"PING\r\n", "$x\r\n", "\r\n", "+a\n"} {
		if _, _, err := newDecoder(strings.NewReader(wire)).next(); !errors.As(err, new(protocolError)) {
			t.Errorf("%q: error %v", wire, err)
		}
	}
	for _, wire := range []string{"", "$5\r\nab", "*2\r\n:1\r\n"} {
		_, _, err := newDecoder(strings.NewReader(wire)).next()
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: error %v", wire, err)
		}
	}
}

func TestAnEncodedRequestDecodesToItself(t *testing.T) {
	v, _, err := newDecoder(strings.NewReader(string(encode([]string{"SET", "k", "a\r\nb"})))).next()
	if err != nil || v.String() != "[SET k a\r\nb]" {
		t.Errorf("got %q, error %v", v, err)
	}
}
