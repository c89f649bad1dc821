package statelog

import "testing"

// Java's String.hashCode, which all of Kafka's tools use to find a group.
func TestPartitionFor(t *testing.T) {
	f := func(id string, partitions, want int32) {
		t.Helper()
		if got := PartitionFor(id, partitions); got != want {
			t.Errorf("key %q is in partition %d of %d, want %d", id, got, partitions, want)
		}
	}
	f("", 50, 0)
	f("a", 50, 97%50)
	f("hello", 50, 99162322%50)
	f("console-consumer-1", 1, 0)
	f("polygenelubricants", 50, 0)        // hash -2^31, which has no absolute value
	f("Hello, World!", 50, 1498789909%50) // hash 1498789909
	f("zzzzzz", 50, 685785664%50)         // hash -685785664 or its absolute value
	f("😀", 50, (0xd83d*31+0xde00)%50)     // two UTF-16 units
}
