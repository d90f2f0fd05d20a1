package engine

import "testing"

func TestNobodyJoinsAGroupThatWasDeserted(t *testing.T) {
	l := &lock{line: &line{}}
	gone := &group{l: l, flying: true}
	gone.desert() // its request is not sent again
	turn := newTurn(&acquisition{})
	l.line.gathering.push(turn)
	if gone.fill(); turn.group != nil || l.line.gathering.first != turn {
		t.Error("somebody did")
	}
}
