package main

import (
	"fmt"
	"regexp"
	"strings"
)

// A rule finds a habit that makes readers stumble. docs/writing.md explains the rules.
type rule struct {
	name     string
	patterns []pattern
}

// A pattern is one form in which a rule is broken.
type pattern struct {
	instead string         // advice, printed behind each finding
	bad     *regexp.Regexp // each match in a sentence is a finding
	except  *regexp.Regexp // ordinary use of the same words; nil: none
	where   place
}

// A place is the part of a text in which a pattern is looked for.
type place int

const (
	anywhere   place = iota // each sentence
	atTrailing              // a comment behind code, from its beginning
	atStart                 // a paragraph of a comment that is no item of a list, from its beginning
	atFunction              // the doc comment of a function, behind its name
	atName                  // any doc comment, behind the declared name
)

func words(alternatives string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(?:` + alternatives + `)\b`)
}

// people are the subjects that may `ask` and `tell`. Code and processes send requests and notify.
const people = `(?:users?|operators?|people|readers?|maintainers?|somebody|someone|anybody|you|we) (?:\w+ )?`

var rules = []rule{
	{"what", []pattern{{
		instead: "name the thing by a noun",
		bad:     words(`what|whatever|whoever|whomever`),
		except:  words(`what to|what if|what's|what (?:is|are) this`),
	}}},
	{"those that", []pattern{{
		instead: "use the noun: waiters, the last reply",
		bad: words(`(?:those|ones?|others|that) (?:that|which|who|whose)` +
			`|(?:as|than|is|are|was|were|in|by|to|with|for|from|only|like|and|or) (?:that|those)` +
			` (?:of|in|from|behind|before|after)` +
			`|those (?:of|in|from|with|for|without|behind|before|after|above|below)` +
			`|the ones? (?:in|of|from|with|for|without|to|behind|before|after|above|below)|the ones?$`),
	}}},
	{"pronoun", []pattern{{
		instead: "begin with the noun: a comment behind code has no sentence before it",
		bad: regexp.MustCompile(`(?i)^(?:it|its|they|them|their|that|those|these|this|ones?|others|none|` +
			`nobody|neither|he)\b`),
		except: regexp.MustCompile(`(?i)^one (?:per|for each|for every|of)\b`),
		where:  atTrailing,
	}}},
	{"function is", []pattern{{
		instead: `use a verb: "returns", "reports whether", "waits until"`,
		bad:     regexp.MustCompile(`^ (?:is|are|was|were)\b`),
		except:  regexp.MustCompile(`^ (?:is|are) (?:like|called|used|safe|equivalent to|shorthand for)\b`),
		where:   atFunction,
	}}},
	{"is why", []pattern{{
		instead: "name the thing: the time at which, the reason, the number of",
		bad: words(`(?:is|are|was) (?:why|how|until|where|when|by how|for how|from when|since when|` +
			`(?:after|under|in|until|at|from|by) which)`),
		except: words(`(?:this|that|which|here) is (?:why|how|where|when)`),
	}}},
	{"colon", []pattern{{
		instead: "write a sentence with a verb instead of a name and a colon",
		bad:     regexp.MustCompile(`^: `),
		where:   atName,
	}, {
		instead: `write a sentence: "because", "so", "if" instead of a word and a colon`,
		bad:     regexp.MustCompile(`^[A-Za-z][\w.]*: `),
		except: regexp.MustCompile(`^(?:Reply|Replies|Returns|Parameters|Output|Deprecated|Proves|` +
			`Note|NOTE|Warning|Example|For example|nil|zero|empty|true|false|negative|none): `),
		where: atStart,
	}}},
	{"else", []pattern{{
		instead: `begin with the condition: "Unless …", "Otherwise, …", "If …"`,
		bad:     regexp.MustCompile(`(?:^|[;:,(.] ?|\band |\bbut )[Ee]lse\b`),
		except:  regexp.MustCompile(`(?i)\b(?:if|unless|when|where)\b[^.;:]*,? else\b`),
	}}},
	{"word", []pattern{
		word("wait in the queue, be queued; is", `stands?|stood|standing`,
			`(?:stands?|stood|standing) (?:for|still)`),
		word("send a request", `asks?|asked|asking`, people+`(?:asks?|asked)|asked for help`),
		word("notify; report, return", `tells?|told|telling`,
			people+`(?:tells?|told)|(?:tells?|told|telling) (?:\w+ ){0,5}?(?:apart|from)`),
		word("in flight", `under way`, ``),
		word("release", `(?:gives?|gave|given|giving) (?:\w+ )?back|giving back`, ``),
		{instead: "ended; expired", bad: regexp.MustCompile(`(?i)\b(?:is|are|was|were|be|been) over` +
			`(?:[.,;:)]|$| (?:and|or|when|before|by|as|for|again|while|then)\b)`)},
		word("stays held; continues", `goes on|go on|going on|went on|gone on`,
			`(?-i:Go) on`),
		word("fixed lease", `(?:its|their|his|an?) own choice`, ``),
		word("waiter timeout", `liveness`, `liveness (?:probes?|propert(?:y|ies)|checks?)`),
		word("has a subscriber, has no subscriber",
			`hears?|heard|hearing|unheard|deaf|ears?|listens?|listened|listening`,
			`(?:listens?|listened|listening) (?:on|at)`),
		word("holder info", `(?:says?|said) (?:of|about) (?:itself|themselves)`, ``),
		word("stale copy", `late cop(?:y|ies)`, ``),
		word("receive, find out", `learns?|learned|learnt|learning`, people+`(?:learns?|learned)`),
		word("check, depend on, refuse", `minds?|minded|minding`, `(?:in|keep in|bear in) mind`),
	}},
}

func word(instead, bad, except string) pattern {
	p := pattern{instead: instead, bad: words(bad)}
	if except != "" {
		p.except = words(except)
	}
	return p
}

// A finding is one match of a rule.
type finding struct {
	file     string
	line     int
	rule     string
	match    string
	sentence string
	instead  string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %q in %q: %s", f.file, f.line, f.rule, f.match, f.sentence, f.instead)
}

// check applies all rules to a text.
func check(t text) (found []finding) {
	plain := mask(t.words)
	if t.comment {
		plain = docLink.ReplaceAllStringFunc(plain, blank)
	}
	for _, r := range rules {
		for _, p := range r.patterns {
			for _, s := range t.parts(plain, p.where) {
				found = append(found, t.match(r.name, p, plain, s)...)
			}
		}
	}
	return found
}

// A span is a part of a text's words.
type span struct{ from, to int }

// parts returns the spans of t in which a pattern for this place is looked for. plain is the masked text.
func (t text) parts(plain string, where place) []span {
	whole := span{0, len(plain)}
	switch where {
	case atTrailing:
		if t.trailing {
			return []span{whole}
		}
	case atStart:
		if named := t.name != "" && strings.HasPrefix(t.words, t.name+": "); t.comment && !t.item && !named {
			return []span{whole}
		}
	case atFunction, atName:
		if t.name != "" && strings.HasPrefix(t.words, t.name) && (t.function || where == atName) {
			return []span{{len(t.name), len(plain)}}
		}
	default:
		return sentences(plain)
	}
	return nil
}

// match returns a finding for each match of p in a span of t.
func (t text) match(rule string, p pattern, plain string, s span) (found []finding) {
	part := plain[s.from:s.to]
	if p.except != nil {
		part = p.except.ReplaceAllStringFunc(part, blank)
	}
	if rule == "what" && strings.HasSuffix(strings.TrimRight(part, ` )"'*_`), "?") {
		return nil // the word is fine in a question
	}
	for _, at := range p.bad.FindAllStringIndex(part, -1) {
		from := s.from + at[0]
		if from == 0 && t.words[:at[1]] == t.name && p.where == anywhere {
			continue // the comment begins with the name that it documents, which is no finding
		}
		found = append(found, finding{
			file: t.file, line: t.lineAt(from), rule: rule,
			match: strings.TrimSpace(t.words[from : s.from+at[1]]), sentence: t.sentenceAt(plain, from),
			instead: p.instead,
		})
	}
	return found
}

// code matches code in backquotes, quotations, addresses, link targets, HTML, and identifiers that cannot be
// words: camelCase, a.b, a_b and f().
var code = regexp.MustCompile("``[^`]*``|`[^`]*`" +
	`|"[^"]{1,100}"|'[^' ]*'|https?://\S+|\]\([^)]*\)|</?[a-z][^>]*>` +
	`|\b\w+\(\)?|\b\w*[a-z0-9]_\w+|\b\w+\.\w+(?:\.\w+)*|\b[A-Za-z]\w*[a-z][A-Z]\w*`)

// docLink matches a link of a Go comment to a declaration.
var docLink = regexp.MustCompile(`\[\*?[A-Za-z]\w*\]`)

// mask replaces code by letters. The result has the same length and still reads as words.
func mask(s string) string { return code.ReplaceAllStringFunc(s, blank) }

// blank keeps the first and the last character if they are no letters or digits, because words end there.
func blank(s string) string {
	b := []byte(s)
	for i, c := range b {
		if edge := i == 0 || i == len(b)-1; !edge || c == '_' || c >= '0' && c <= '9' ||
			c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= 0x80 {
			b[i] = 'x'
		}
	}
	return string(b)
}

var sentenceEnd = regexp.MustCompile(`[.!?][)"'*_\]]*\s+`)

// sentences returns the spans of the sentences of a text.
func sentences(plain string) (spans []span) {
	from := 0
	for _, end := range sentenceEnd.FindAllStringIndex(plain, -1) {
		for _, short := range []string{"e.g.", "i.e.", "etc.", "vs."} {
			if strings.HasSuffix(plain[:end[0]+1], short) {
				end = nil
				break
			}
		}
		if end != nil {
			spans = append(spans, span{from, end[1]})
			from = end[1]
		}
	}
	return append(spans, span{from, len(plain)})
}

func (t text) sentenceAt(plain string, at int) string {
	for _, s := range sentences(plain) {
		if at < s.to || s.to == len(plain) {
			return strings.TrimSpace(t.words[s.from:s.to])
		}
	}
	return t.words
}
