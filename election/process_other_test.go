//go:build !unix

package election_test

func leaderProcess(string) {}
