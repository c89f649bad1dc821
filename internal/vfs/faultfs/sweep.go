package faultfs

// Sweep runs a test with the first matching operation failing, then with the
// second, and so on until a run in which no operation is left to fail. It gives
// the number of runs that saw a failure. run gets the rule to inject into a
// file system of its own, at the moment from which operations shall count, and
// tells whether that rule fired.
func Sweep(rule Rule, run func(rule Rule) (fired bool)) int {
	rule.Times = 1
	for n := 0; ; n++ {
		rule.Skip = n
		if !run(rule) {
			return n
		}
	}
}
