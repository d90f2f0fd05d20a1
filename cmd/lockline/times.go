package main

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockline/lockline/internal/protocol"
)

// checkTime returns an error if a flag's duration is not from least to ten years. The caller must have dealt
// with a 0 that means something else, see checkTimeOrZero.
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

// withoutUnit is the error of the flags' parser for a duration such as 30.
var withoutUnit = regexp.MustCompile(`^invalid value "(.*)" for flag -+(\S+): time: missing unit in duration`)

// usageError says what is wrong instead of printing a page of help.
func usageError(_ context.Context, cmd *cli.Command, err error, _ bool) error {
	if m := withoutUnit.FindStringSubmatch(err.Error()); m != nil {
		return misused(cmd, "%s: --%s: %s has no unit: is it %[3]ss?", cmd.Name, m[2], m[1])
	}
	if cmd == cmd.Root() {
		return misused(cmd, "%w: options stand behind the command, as in lockline ls --redis URL", err)
	}
	return misused(cmd, "%w", err)
}
