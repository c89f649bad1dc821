//go:build !race

package batch_test

const underRace = false
