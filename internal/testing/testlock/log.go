package testlock

import (
	"log/slog"
	"strings"
	"sync"
)

// A Log keeps log lines. The zero value is ready to use.
type Log struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

// Logger returns a logger that writes to l.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Count returns the number of times that the log contains these words.
func (l *Log) Count(words string) int {
	return strings.Count(l.String(), words)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Lines returns the lines that contain these words.
func (l *Log) Lines(words string) (lines []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, words) {
			lines = append(lines, line)
		}
	}
	return lines
}
