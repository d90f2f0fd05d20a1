// Command bench measures the locks of this module beside what users would pick
// instead. It starts a Redis of its own, or takes --redis URL. In every round every
// contender runs once in every scenario, one after the other, so that whatever else
// the machine does hits all alike; figures are medians over the rounds.
//
//	go run ./bench [--scenarios a,b] [--contenders a,b] [--rounds 5] [--duration 2s]
//	               [--redis URL | --embedded] [--json FILE] [--html FILE] [--plots DIR] [--markdown FILE]
//	               [--compare FILE]
//
// Requests are counted, and the order of grants is looked at, in rounds of their own,
// behind proxies. Proxies, etcd, and the users of some scenarios are processes of their
// own: this program again, in another role. The exit status is 1 if
// mutual exclusion was violated, or the order is another than in the run that --compare names.
package main
