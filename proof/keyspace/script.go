package keyspace

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// A Script is a compiled script. Only one goroutine at a time may use it.
type Script struct {
	Name    string
	state   *lua.LState
	body    *lua.LFunction
	running *execution
	args    []string // words of the running command; each command uses the same slice
}

// Effect is the result of a script.
type Effect struct {
	Space     *Space // all keys after the script
	Reply     string // the reply as a string; "" if there is none
	Err       error  // the reply, if the reply is an error; the writes before the error stay
	Published []Message
}

// Compile compiles a script.
func Compile(name, text string) (*Script, error) {
	chunk, err := parse.Parse(strings.NewReader(text), name)
	if err != nil {
		return nil, err
	}
	body, err := lua.Compile(chunk, name)
	if err != nil {
		return nil, err
	}
	body.IsVarArg &^= lua.VarArgNeedsArg // runs need not make the table arg, because no script reads it
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	s := &Script{Name: name, state: l, body: l.NewFunctionFromProto(body)}
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenTable, lua.OpenString, lua.OpenMath} {
		open(l)
	}
	l.SetTop(0)
	l.SetGlobal("tonumber", l.NewFunction(toNumber))
	l.SetGlobal("pcall", l.NewFunction(protected(l.GetGlobal("pcall").(*lua.LFunction))))
	texts := l.GetGlobal("string").(*lua.LTable) // the library of strings, and also their metatable
	l.SetFuncs(texts, map[string]lua.LGFunction{"format": format,
		"match": remembered(texts.RawGetString("match").(*lua.LFunction)),
		"find":  remembered(texts.RawGetString("find").(*lua.LFunction))})
	for event, f := range arithmetic {
		texts.RawSetString(event, l.NewFunction(operator(f)))
	}
	l.SetFuncs(l.GetGlobal("table").(*lua.LTable), map[string]lua.LGFunction{"concat": concat})
	l.SetGlobal("cjson", l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{"encode": encode}))
	l.SetGlobal("redis", l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
		"call":  func(l *lua.LState) int { return s.call(l, true) },
		"pcall": func(l *lua.LState) int { return s.call(l, false) },
		"error_reply": func(l *lua.LState) int {
			l.Push(failed(l, l.CheckString(1)))
			return 1
		},
		"acl_check_cmd": func(l *lua.LState) int { // the user has all permissions
			if !known(l.CheckString(1)) {
				l.Error(failed(l, "ERR Invalid command passed to redis.acl_check_cmd()"), 0)
			}
			l.Push(lua.LTrue)
			return 1
		},
	}))
	return s, nil
}

// Run executes the script on a copy of the space.
func (s *Script) Run(space *Space, env Env, keys, argv []string) Effect {
	l := s.state
	s.running = &execution{space: space.Clone(), env: env}
	l.SetGlobal("KEYS", list(l, keys))
	l.SetGlobal("ARGV", list(l, argv))
	l.Push(s.body)
	e := Effect{}
	if err := l.PCall(0, 1, nil); err != nil {
		e.Err = err
		var failure *lua.ApiError
		if errors.As(err, &failure) {
			e.Err = errors.New(raised(failure.Object))
		}
	} else {
		e.Reply, e.Err = replied(l.Get(-1))
	}
	l.SetTop(0)
	e.Space, e.Published = s.running.space, s.running.published
	return e
}

// replied converts the result of a script to the reply that a client gets.
func replied(v lua.LValue) (string, error) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), nil
	case lua.LNumber:
		return strconv.FormatInt(int64(v), 10), nil
	case lua.LBool:
		if v {
			return "1", nil
		}
		return "", nil
	case *lua.LTable:
		return "", errors.New(raised(v))
	}
	return "", nil
}

// raised returns the text of an error.
func raised(v lua.LValue) string {
	if t, ok := v.(*lua.LTable); ok {
		if text, ok := t.RawGetString("err").(lua.LString); ok {
			return string(text)
		}
		return "ERR the key space has no replies that are tables"
	}
	return v.String()
}

func list(l *lua.LState, words []string) *lua.LTable {
	t := l.CreateTable(len(words), 0)
	for i, w := range words {
		t.RawSetInt(i+1, lua.LString(w))
	}
	return t
}

// call implements redis.call, or redis.pcall if raise is false.
func (s *Script) call(l *lua.LState, raise bool) int {
	reply := s.execute(l)
	if err, ok := reply.(error); ok && raise {
		l.Error(failed(l, err.Error()), 0)
	}
	l.Push(value(l, reply))
	return 1
}

func (s *Script) execute(l *lua.LState) any {
	if l.GetTop() == 0 {
		return errNoCommand
	}
	args := s.args[:0]
	for i := 1; i <= l.GetTop(); i++ {
		switch v := l.Get(i).(type) {
		case lua.LString:
			args = append(args, string(v))
		case lua.LNumber:
			args = append(args, decimal(float64(v)))
		default:
			return errArgType
		}
	}
	s.args = args
	return s.running.call(args[0], args[1:])
}

// failed converts the text of an error to a Lua table.
func failed(l *lua.LState, text string) *lua.LTable {
	t := l.NewTable()
	t.RawSetString("err", lua.LString(text))
	return t
}

// value converts a reply to a Lua value.
func value(l *lua.LState, reply any) lua.LValue {
	switch r := reply.(type) {
	case nil:
		return lua.LFalse
	case int64:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case error:
		return failed(l, r.Error())
	case []any:
		t := l.CreateTable(len(r), 0)
		for i, item := range r {
			t.RawSetInt(i+1, value(l, item))
		}
		return t
	}
	panic(fmt.Sprintf("keyspace: a reply of type %T", reply))
}
