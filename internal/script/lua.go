package script

import (
	"iter"
	"strings"
)

// split returns the header of a file and its statements at top level, each with the comment before it and the
// blank lines behind it.
func split(text string) (header string, statements []string) {
	header, text, _ = strings.Cut(text, "\n\n")
	begin, at, comment := 0, 0, false // comment: the line before is one
	for line := range strings.Lines(text) {
		if at > begin && !comment && begins(line) {
			statements = append(statements, text[begin:at])
			begin = at
		}
		comment = strings.HasPrefix(line, "--")
		at += len(line)
	}
	return header, append(statements, text[begin:])
}

// begins: the line does not belong to the statement before it.
func begins(line string) bool {
	if strings.IndexByte(" \n)}]", line[0]) >= 0 {
		return false
	}
	switch line[:length(line)] {
	case "end", "else", "elseif", "until":
		return false
	}
	return true
}

// words are the names and keywords in code, but for names of fields and what is in comments and strings.
func words(code string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := 0; i < len(code); {
			n := 1
			switch c := code[i]; {
			case wordy[c]:
				if n = length(code[i:]); c > '9' && !yield(code[i:i+n]) {
					return
				}
			case c == '-' && code[i+1] == '-':
				n = strings.IndexByte(code[i:], '\n')
			case c == '.' && code[i+1] == '.':
				n = 2
			case c == '.' || c == ':':
				n = 1 + length(code[i+1:])
			case c == '\'' || c == '"':
				for code[i+n] != c {
					if code[i+n] == '\\' {
						n++
					}
					n++
				}
				n++
			}
			i += n
		}
	}
}

// length of the word or number that code begins with.
func length(code string) int {
	for i := range len(code) {
		if !wordy[code[i]] {
			return i
		}
	}
	return len(code)
}

// wordy are the characters of words and numbers.
var wordy = func() (is [256]bool) {
	for c := range is {
		is[c] = c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	return is
}()
