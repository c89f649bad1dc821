//go:build chaos && linux

package harm

import "tidemark/test/chaos/links"

// Join sets the ways from the first places to the second ones.
func (n *Nemesis) Join(from, to []int, w links.Way) {
	for _, x := range from {
		for _, y := range to {
			if x != y {
				n.Net.Set(x, y, w)
			}
		}
	}
}

// Around sets both ways between one place and others.
func (n *Nemesis) Around(one int, others []int, w links.Way) {
	n.Join([]int{one}, others, w)
	n.Join(others, []int{one}, w)
}
