//go:build race

package batch_test

// underRace says that pools lose items by chance, so that allocations can not be counted.
const underRace = true
