package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Config is what one acquisition can be told.
type Config struct {
	Lease   time.Duration // fixed, not renewed; 0: the session's, renewed
	Wait    time.Duration // at most; only if Bounded
	Bounded bool
	Named   bool // a loss is told with the lock's name: the context stands for several locks
}

// Check says what is wrong with it.
func (c Config) Check() error {
	if c.Lease != 0 {
		if err := checkLease("WithLease", c.Lease); err != nil {
			return err
		}
	}
	if c.Bounded && c.Wait < 0 {
		return fmt.Errorf("lockline: WaitAtMost: a negative wait: %v", c.Wait)
	}
	return nil
}

// NewConfig applies options, of rlock's type, to what an acquisition starts from.
func NewConfig[O any](c Config, options []O) Config {
	for _, o := range options {
		if o, ok := any(o).(interface{ Apply(*Config) }); ok {
			o.Apply(&c)
		}
	}
	return c
}

// Mutex is one lock's name in a session, and its kind. It holds no state of any acquisition.
type Mutex struct {
	s    *Session
	p    *Protocol
	keys *Keys
	cfg  Config
	err  error // of New, told by every use
}

func NewMutex(s *Session, p *Protocol, name string, cfg Config) Mutex {
	m := Mutex{s: s, p: p, cfg: cfg}
	switch {
	case s == nil:
		m.err = errors.New("lockline: the session is nil")
	case s.Redisson && p.queues():
		m.err = errors.New("lockline: RedissonKeys: there are no fair locks with it: Redisson's queue is another")
	case s.Redisson:
		m.keys, m.err = redissonKeys(name)
	case p.queues():
		m.keys, m.err = newKeys(s.Prefix, p.Kind, name, ":q", ":a", ":d")
		if m.err == nil {
			m.keys.channel = s.channels
		}
	default:
		m.keys, m.err = newKeys(s.Prefix, p.Kind, name)
	}
	return m
}

// BadMutex tells err by every use.
func BadMutex(err error) Mutex { return Mutex{err: err} }

var errZeroMutex = errors.New("lockline: a zero Mutex; make one with New")

func (m *Mutex) check(ctx context.Context) error {
	switch {
	case m == nil || m.s == nil && m.err == nil:
		return errZeroMutex
	case m.err != nil:
		return m.err
	case ctx == nil:
		return &nameError{name: m.keys.Name, err: errNilContext}
	}
	return nil
}

func (m *Mutex) Name() string {
	if m == nil || m.keys == nil {
		return ""
	}
	return m.keys.Name
}

// Default is the configuration that an acquisition starts from.
func (m *Mutex) Default() (c Config) {
	if m != nil {
		c = m.cfg
	}
	return c
}
