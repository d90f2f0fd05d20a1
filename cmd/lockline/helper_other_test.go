//go:build !unix

package main

func helper([]string) int { return 99 }
