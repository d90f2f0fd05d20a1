package main

import (
	"context"
	"testing"
	"time"

	"github.com/lockline/lockline/locktest"
	"github.com/lockline/lockline/rlock"
)

func TestNoMoneyMovesWhileOneServiceIsDown(t *testing.T) {
	bank, shop := locktest.NewServer(t), locktest.NewServer(t)
	from := &account{rlock.New(bank.NewSession(), "account:0"), opening}
	to := &account{rlock.New(shop.NewSession(), "account:0"), opening}
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()

	shop.Refuse()
	if err := transfer(soon, from, to, 10); err == nil || from.balance != opening || to.balance != opening {
		t.Errorf("%v, with balances %d and %d", err, from.balance, to.balance)
	}
	shop.Resume()
	if err := transfer(t.Context(), from, to, 10); err != nil || from.balance != 90 || to.balance != 110 {
		t.Errorf("%v, with balances %d and %d", err, from.balance, to.balance)
	}
}
