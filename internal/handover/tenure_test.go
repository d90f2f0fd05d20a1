package handover

import "testing"

func TestATenureEndsOnce(t *testing.T) {
	for _, why := range []State{Released, Lost, Closed} {
		var tenure Tenure
		if tenure.Start(7); tenure.State() != Held {
			t.Errorf("it begins %v", tenure.State())
		}
		if !tenure.End(why) || tenure.End(Lost) || tenure.End(Released) || tenure.State() != why {
			t.Errorf("%v became %v", why, tenure.State())
		}
	}
}

func TestEachTermHasTheNextTokenOfTheBlock(t *testing.T) {
	const block = 3
	var tenure Tenure
	tenure.Start(7)
	for token := int64(7); token < 7+block; token++ {
		if tenure.Token != token || tenure.PassedOn() != (token > 7) || tenure.Entries != 1 || tenure.Used() {
			t.Errorf("term of token %d: %+v", token, tenure)
		}
		if last := token == 7+block-1; tenure.UsedUp(block) != last {
			t.Errorf("token %d is the last of the block: %v", token, !last)
		}
		tenure.Use()
		tenure.Leave()
		tenure.PassOn()
	}
}
