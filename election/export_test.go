package election

import "github.com/lockline/lockline/internal/wire"

// Digests are those of the scripts, by name.
func Digests() map[string]string {
	return map[string]string{"proclaim": proclaimScript.Digest(), "leader": leaderScript.Digest(), "retract": retractScript.Digest()}
}

// Digest is that of a text.
func Digest(text string) string { return wire.NewScript(text).Digest() }
