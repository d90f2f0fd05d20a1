package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/internal/protocol"
)

// checkTime returns an error if a flag's duration is shorter than least or longer than ten years. If 0 has a
// special meaning, use checkTimeOrZero.
func checkTime(cmd *cli.Command, flag string, least time.Duration) error {
	switch d := cmd.Duration(flag); {
	case d < least:
		return fmt.Errorf("%s: --%s: %v is shorter than %v", cmd.Name, flag, d, least)
	case d > protocol.MaxLease:
		return fmt.Errorf("%s: --%s: %v is longer than ten years (%v)", cmd.Name, flag, d, protocol.MaxLease)
	}
	return nil
}

// checkTimeOrZero returns an error unless the flag's duration is 0, or from 1 ms to ten years.
func checkTimeOrZero(cmd *cli.Command, flag string) error {
	if cmd.Duration(flag) == 0 {
		return nil
	}
	return checkTime(cmd, flag, protocol.MinTime)
}

// invalidValue matches the error of the flags' parser for a value that the parser cannot read.
var invalidValue = regexp.MustCompile(`^invalid value "(.*)" for flag -+(\S+): (.*)$`)

// usageError returns an error of one line, instead of a page of help. If the parser quotes an error of
// the standard library, usageError replaces it with a text for people.
func usageError(_ context.Context, cmd *cli.Command, err error, _ bool) error {
	if m := invalidValue.FindStringSubmatch(err.Error()); m != nil {
		value, flag, reason := m[1], m[2], m[3]
		dashes := "--"
		if len(flag) == 1 {
			dashes = "-"
		}
		if strings.HasPrefix(reason, "time: missing unit") {
			return misused(cmd, "%s: %s%s: %s has no unit: is it %[4]ss?", cmd.Name, dashes, flag, value)
		}
		return misused(cmd, "%s: %s%s: %q is not %s", cmd.Name, dashes, flag, value, wanted(reason))
	}
	if cmd == cmd.Root() {
		return misused(cmd, "%w: put options after the command, as in lockline ls --redis URL", err)
	}
	return misused(cmd, "%w", err)
}

// wanted names the sort of value that a flag needs. reason is the error of the flags' parser.
func wanted(reason string) string {
	switch {
	case strings.HasPrefix(reason, "time: "):
		return "a duration such as 500ms, 30s or 1h30m: its units are h, m, s, ms and smaller ones"
	case strings.HasSuffix(reason, "value out of range"):
		return "a number that lockline can hold"
	case strings.HasPrefix(reason, "strconv.ParseInt: "):
		return "a whole number"
	}
	return "true or false"
}
