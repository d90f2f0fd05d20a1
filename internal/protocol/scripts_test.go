package protocol_test

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/script"
)

func TestTheScriptsReserveAsManyTokensAsTheEngine(t *testing.T) {
	n := 0
	for _, name := range script.Names() {
		for _, m := range regexp.MustCompile(`\bBLOCK = (.*)`).FindAllStringSubmatch(script.Text(name), -1) {
			n++
			if m[1] != strconv.Itoa(protocol.Block) {
				t.Errorf("BLOCK is %s in %s, and Block %d", m[1], name, protocol.Block)
			}
		}
	}
	if n == 0 {
		t.Error("no script has BLOCK")
	}
}
