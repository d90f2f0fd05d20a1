package main

import (
	"io"
	"os"
	"strings"
	"sync"

	"github.com/clipperhouse/displaywidth"
)

// An output is the stdout of a command. It remembers the first error, so that a command that could not write
// fails even if it has ignored the error.
type output struct {
	to io.Writer

	mu  sync.Mutex // guards err
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// failed returns the first error of a Write, or nil.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// fileOf returns the file to which w writes. It returns nil if w does not write to a file.
func fileOf(w any) *os.File {
	if o, ok := w.(*output); ok {
		w = o.to
	}
	file, _ := w.(*os.File)
	return file
}

// widest is the largest width that a cell can give to its column. If a cell is wider, it moves only the rest
// of its own row.
const widest = 60

// writeTable writes rows with columns of equal widths, two spaces apart.
func writeTable(to io.Writer, rows [][]string) error {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if width := displaywidth.String(cell); width <= widest {
				widths[i] = max(widths[i], width)
			}
		}
	}
	var text strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + "  ")
			line.WriteString(strings.Repeat(" ", max(0, widths[i]-displaywidth.String(cell))))
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(to, text.String())
	return err
}
