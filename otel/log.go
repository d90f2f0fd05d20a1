package otellock

import (
	"context"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const messageKey = attribute.Key("lockline.log.message")

// logPrefix is the beginning of each log message of Lockline.
const logPrefix = "lockline: "

// alertedMessages are the messages on which alerts of alerts.yaml depend. NewLogHandler sets their counters
// to 0. Otherwise Prometheus would not count the first message as an increase.
var alertedMessages = []string{"a RedLock is held by a bare majority", "Redis does not answer",
	"Redis refuses all requests", "subscription gets a new connection", "subscription refused"}

// A LogHandler passes log records on to another handler. It counts the warnings and errors of Lockline in the
// metric lockline.log.warnings, by the first part of their message. The metric shows incidents that an
// Observer does not see, for example a RedLock that is held by a bare majority. Give the handler to each
// session:
//
//	handler, err := otellock.NewLogHandler(slog.Default().Handler())
//	session, err := rlock.NewSession(client, rlock.WithLogger(slog.New(handler)))
//
// A nil or zero LogHandler ignores all records.
type LogHandler struct {
	next     slog.Handler
	warnings metric.Int64Counter
}

var _ slog.Handler = (*LogHandler)(nil)

// NewLogHandler returns a handler that passes records on to next. If next is nil, the new handler passes them
// on to the handler of [slog.Default]. Of the options, only [WithMeterProvider] has an effect. NewLogHandler
// returns an error if the meter returns an error.
func NewLogHandler(next slog.Handler, options ...Option) (*LogHandler, error) {
	var c config
	for _, option := range options {
		if option != nil {
			option(&c)
		}
	}
	if c.meters == nil {
		c.meters = otel.GetMeterProvider()
	}
	if next == nil {
		next = slog.Default().Handler()
	}
	warnings, err := c.meters.Meter(scope).Int64Counter("lockline.log.warnings",
		metric.WithUnit("{message}"), metric.WithDescription("Warnings and errors that Lockline has logged"))
	h := &LogHandler{next, warnings}
	if err != nil {
		return h, err
	}
	for _, message := range alertedMessages {
		h.count(context.Background(), message, 0)
	}
	return h, nil
}

func (h *LogHandler) count(ctx context.Context, message string, n int64) {
	h.warnings.Add(ctx, n, metric.WithAttributes(messageKey.String(message)))
}

// Enabled reports whether the next handler accepts records of this level, or whether Handle may count them.
func (h *LogHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h != nil && h.next != nil && (level >= slog.LevelWarn || h.next.Enabled(ctx, level))
}

// Handle counts the record if it is a warning or an error of Lockline. If the next handler accepts the level
// of the record, Handle passes the record on.
func (h *LogHandler) Handle(ctx context.Context, r slog.Record) error {
	if h == nil || h.next == nil {
		return nil
	}
	if message, ok := strings.CutPrefix(r.Message, logPrefix); ok && r.Level >= slog.LevelWarn {
		if end := strings.IndexAny(message, ",;:"); end >= 0 { // the rest of the message is advice
			message = message[:end]
		}
		h.count(ctx, message, 1)
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs returns a handler that counts in the same metric, and adds the attributes to the records
// that it passes on.
func (h *LogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if h == nil || h.next == nil {
		return h
	}
	return &LogHandler{h.next.WithAttrs(attrs), h.warnings}
}

// WithGroup returns a handler that counts in the same metric, and opens the group in the records that it
// passes on.
func (h *LogHandler) WithGroup(name string) slog.Handler {
	if h == nil || h.next == nil {
		return h
	}
	return &LogHandler{h.next.WithGroup(name), h.warnings}
}
