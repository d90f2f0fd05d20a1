package keyspace

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// This file replaces functions in which gopher-lua differs from the Lua of Redis, mainly conversions between
// strings and numbers. One difference is left: when the operator .. converts a number, the text can differ
// from the text in Redis. Integers below 1e14 do not differ. Redis rounds larger integers.

// strtod parses a whole string as C's strtod does, for example "1e3", "010" (ten), "0x10" or "inf". exact is
// false if the number is out of range.
func strtod(s string) (f float64, exact, ok bool) {
	if strings.Contains(s, "_") {
		return 0, false, false
	}
	if digits := strings.ToLower(strings.TrimLeft(s, "+-")); strings.HasPrefix(digits, "0x") &&
		!strings.Contains(digits, "p") {
		s += "p0"
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil, err == nil || errors.Is(err, strconv.ErrRange)
}

// numeral converts a string to a number as Lua does.
func numeral(s string) (float64, bool) {
	f, _, ok := strtod(strings.Trim(s, " \t\n\v\f\r"))
	return f, ok
}

// number converts a value to a number as Lua does.
func number(v lua.LValue) (float64, bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return float64(v), true
	case lua.LString:
		return numeral(string(v))
	}
	return 0, false
}

func toNumber(l *lua.LState) int {
	if l.GetTop() > 1 {
		l.RaiseError("the key space has no tonumber with a base")
	}
	if f, ok := number(l.CheckAny(1)); ok {
		l.Push(lua.LNumber(f))
	} else {
		l.Push(lua.LNil)
	}
	return 1
}

// protected implements pcall. If a command has failed, pcall returns the text of the error, as in Redis.
func protected(pcall *lua.LFunction) lua.LGFunction {
	return func(l *lua.LState) int {
		n := pcall.GFunction(l)
		if t, ok := l.Get(-1).(*lua.LTable); ok && l.Get(-n) == lua.LFalse {
			if text, ok := t.RawGetString("err").(lua.LString); ok {
				l.Pop(1)
				l.Push(text)
			}
		}
		return n
	}
}

// remembered caches the results of string.match or string.find, because gopher-lua compiles the pattern each
// time. If there is no match, the cached function returns nil, but the function of gopher-lua returns no
// value at all.
func remembered(f *lua.LFunction) lua.LGFunction {
	const most = 10_000
	type call struct{ text, pattern lua.LString }
	known := map[call][]lua.LValue{}
	return func(l *lua.LState) int {
		text, isText := l.Get(1).(lua.LString)
		pattern, isPattern := l.Get(2).(lua.LString)
		keep := isText && isPattern && l.GetTop() == 2
		results, ok := known[call{text, pattern}]
		if !keep || !ok {
			results = nil
			for n := f.GFunction(l); n > 0; n-- {
				results = append(results, l.Get(-n))
			}
			if results == nil {
				results = []lua.LValue{lua.LNil}
			}
		}
		if keep && !ok {
			if len(known) == most {
				clear(known)
			}
			known[call{text, pattern}] = results
		}
		for _, v := range results {
			l.Push(v)
		}
		return len(results)
	}
}

// arithmetic has the operators for operands that include a string.
var arithmetic = map[string]func(a, b float64) float64{
	"__add": func(a, b float64) float64 { return a + b },
	"__sub": func(a, b float64) float64 { return a - b },
	"__mul": func(a, b float64) float64 { return a * b },
	"__div": func(a, b float64) float64 { return a / b },
}

func operator(f func(a, b float64) float64) lua.LGFunction {
	return func(l *lua.LState) int {
		a, ok := number(l.Get(1))
		b, ok2 := number(l.Get(2))
		if !ok || !ok2 {
			l.RaiseError("attempt to perform arithmetic on a %s value and a %s value",
				l.Get(1).Type(), l.Get(2).Type())
		}
		l.Push(lua.LNumber(f(a, b)))
		return 1
	}
}

// format implements string.format.
func format(l *lua.LState) int {
	text, next, b := l.CheckString(1), 1, []byte(nil)
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b = append(b, text[i])
			continue
		}
		begin := i
		for i++; i < len(text) && strings.IndexByte("-+ #0123456789.", text[i]) >= 0; i++ {
		}
		if i == len(text) {
			l.RaiseError("invalid option '%%' to 'format'")
		}
		if spec := text[begin : i+1]; spec == "%%" {
			b = append(b, '%')
		} else {
			next++
			b = converted(l, b, spec, next)
		}
	}
	l.Push(lua.LString(b))
	return 1
}

// converted appends an argument of string.format to b.
func converted(l *lua.LState, b []byte, spec string, arg int) []byte {
	verb := spec[len(spec)-1]
	if verb == 's' {
		return fmt.Appendf(b, spec, l.CheckString(arg))
	}
	f, ok := number(l.Get(arg))
	if !ok {
		l.RaiseError("bad argument #%d to 'format' (number expected, got %s)", arg, l.Get(arg).Type())
	}
	switch verb {
	case 'd':
		return fmt.Appendf(b, spec, int64(f))
	case 'x', 'X':
		return fmt.Appendf(b, spec, uint64(int64(f)))
	case 'e', 'f', 'g':
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return append(b, decimal(f)...)
		}
		return fmt.Appendf(b, spec, f)
	}
	l.RaiseError("the key space has no string.format of %s", spec)
	return nil
}

// concat implements table.concat.
func concat(l *lua.LState) int {
	t, between := l.CheckTable(1), l.OptString(2, "")
	if l.GetTop() > 2 {
		l.RaiseError("the key space has no table.concat of a part")
	}
	var b []byte
	for i := 1; i <= t.Len(); i++ {
		if i > 1 {
			b = append(b, between...)
		}
		switch v := t.RawGetInt(i).(type) {
		case lua.LString:
			b = append(b, v...)
		case lua.LNumber:
			b = append(b, written(float64(v), 14)...)
		default:
			l.RaiseError("invalid value (%s) at index %d in table for 'concat'", v.Type(), i)
		}
	}
	l.Push(lua.LString(b))
	return 1
}

// encode implements cjson.encode. It sorts the members of objects by name.
func encode(l *lua.LState) int {
	l.Push(lua.LString(encoded(l, nil, l.CheckAny(1))))
	return 1
}

func encoded(l *lua.LState, b []byte, v lua.LValue) []byte {
	switch v := v.(type) {
	case lua.LString:
		return quoted(b, string(v))
	case lua.LNumber:
		return append(b, written(float64(v), 14)...)
	case lua.LBool:
		return strconv.AppendBool(b, bool(v))
	case *lua.LTable:
		if n := v.Len(); n > 0 {
			for i := 1; i <= n; i++ {
				b = encoded(l, append(b, "[,"[min(i-1, 1)]), v.RawGetInt(i))
			}
			return append(b, ']')
		}
		var names []string
		v.ForEach(func(name, _ lua.LValue) { names = append(names, lua.LVAsString(name)) })
		slices.Sort(names)
		b = append(b, '{')
		for i, name := range names {
			if i > 0 {
				b = append(b, ',')
			}
			b = encoded(l, append(quoted(b, name), ':'), v.RawGetString(name))
		}
		return append(b, '}')
	}
	l.RaiseError("Cannot serialise %s: type not supported", v.Type())
	return nil
}

func quoted(b []byte, s string) []byte {
	b = append(b, '"')
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\' || c == '/':
			b = append(b, '\\', c)
		case c < ' ' || c == 127:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
