package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
)

const manDescription = `Prints the manual of lockline for man(1), made from the texts of --help. The
archives of releases contain it as share/lockline.1.`

func manCommand() *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "print the manual page", UsageText: "lockline man", Description: manDescription,
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return misused(cmd, "man takes no argument, got %q", cmd.Args().First())
			}
			_, err := fmt.Fprint(cmd.Root().Writer, manual(cmd.Root()))
			return err
		},
	}
}

// manual returns the manual page of the program, in the language of man(7).
func manual(root *cli.Command) string {
	var page strings.Builder
	line := func(words ...string) { page.WriteString(strings.Join(words, " ") + "\n") }
	line(`.TH LOCKLINE 1 "" "Lockline" "User Commands"`)
	line(".nh") // no hyphenation, so that URLs and options stay whole
	line(".SH NAME")
	line(escapeMan("lockline"), `\-`, escapeMan(root.Usage))
	line(".SH SYNOPSIS")
	line(".nf")
	line(escapeMan(root.UsageText))
	line(".fi")
	line(".SH COMMANDS")
	variables := map[string]string{}
	for _, c := range root.VisibleCommands() {
		line(".SS", `"`+strings.ReplaceAll(escapeMan(synopsis(c)), `"`, `\(dq`)+`"`)
		line(escapeMan(sentence(c.Usage)))
		line(".PP")
		page.WriteString(paragraphs(c.Description))
		for _, f := range c.VisibleFlags() {
			if slices.Contains(f.Names(), "help") {
				continue
			}
			names, text, _ := strings.Cut(cli.FlagStringer(f), "\t")
			line(".TP")
			line(`\fB` + escapeMan(names) + `\fR`)
			line(escapeMan(text))
			if d, ok := f.(cli.DocGenerationFlag); ok {
				for _, v := range d.GetEnvVars() {
					variables[v] = f.Names()[0]
				}
			}
		}
	}
	line(".SH ENVIRONMENT")
	for _, v := range slices.Sorted(maps.Keys(variables)) {
		line(".TP")
		line(`\fB` + escapeMan(v) + `\fR`)
		line(escapeMan("The value of --" + variables[v] + ", if the command line has no such option."))
	}
	line(".SH SEE ALSO")
	line(escapeMan("https://github.com/lockline/lockline/blob/main/docs/operations.md"))
	return page.String()
}

// synopsis returns the line that shows the use of a command.
func synopsis(c *cli.Command) string {
	if c.UsageText != "" {
		return c.UsageText
	}
	return strings.TrimSpace("lockline " + c.Name + " [options] " + c.ArgsUsage)
}

// sentence returns a text that begins with a capital letter and ends with a full stop.
func sentence(text string) string {
	return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
}

// paragraphs returns a description in the language of man(7). Lines that are indented keep their breaks.
func paragraphs(text string) string {
	var page strings.Builder
	verbatim := false
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		line = strings.TrimRight(line, "\n")
		indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "#") || verbatim && line == ""
		switch {
		case indented && !verbatim:
			page.WriteString(".PP\n.nf\n")
		case !indented && verbatim:
			page.WriteString(".fi\n")
		}
		verbatim = indented
		switch {
		case line == "" && !verbatim:
			page.WriteString(".PP\n")
		default:
			page.WriteString(escapeMan(line) + "\n")
		}
	}
	if verbatim {
		page.WriteString(".fi\n")
	}
	return page.String()
}

// escapeMan returns a text that man(7) prints as the given text.
func escapeMan(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
