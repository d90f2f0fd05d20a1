// Command bench measures the locks of this module beside what users would pick
// instead. It starts a Redis of its own, or takes --redis URL. In every round every
// contender runs once in every scenario, one after the other, so that whatever else
// the machine does hits all alike; figures are medians over the rounds.
//
//	go run ./bench [--scenario a,b] [--contender a,b] [--rounds 5] [--for 2s] [--redis URL] [--json FILE]
package main
