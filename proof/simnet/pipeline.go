package simnet

import (
	"bytes"
	"strconv"
)

// split splits a pipeline into its requests. Bytes that are no request stay together.
func split(p []byte) (requests [][]byte) {
	for len(p) > 0 {
		n := requestLen(p)
		requests, p = append(requests, p[:n:n]), p[n:]
	}
	return requests
}

// requestLen returns the length of the request at the beginning of p, or len(p) if there is no request.
func requestLen(p []byte) int {
	number := func(at int) (n, rest int) { // reads 3 from "*3\r\n" and 5 from "$5\r\n"
		if end := bytes.IndexByte(p[min(at, len(p)):], '\n'); end > 1 {
			if n, err := strconv.Atoi(string(p[at+1 : at+end-1])); err == nil {
				return n, at + end + 1
			}
		}
		return 0, len(p)
	}
	n, at := number(0)
	for range n {
		size, rest := number(at)
		at = min(rest+size+2, len(p))
	}
	return at
}
