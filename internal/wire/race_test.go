//go:build race

package wire

// underRace says that pools lose items by chance, so that allocations can not be counted.
const underRace = true
