package meta

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestFormatDocument reads the examples of docs/format/meta-keys.md with the
// decoders: the document can't say what the code doesn't read.
func TestFormatDocument(t *testing.T) {
	text, err := os.ReadFile("../../../docs/format/meta-keys.md")
	if err != nil {
		t.Fatal(err)
	}
	var kvs []KV
	for _, m := range regexp.MustCompile("(?s)```json (\\S+)\n(.*?)\n```").FindAllSubmatch(text, -1) {
		kvs = append(kvs, KV{Key: KeysOf("c1").Root() + string(m[1]), Value: m[2], CreateRevision: 2, ModRevision: 2})
	}
	image, _ := Load("c1", kvs, 2)
	if faults := slices.Collect(image.Faults()); len(faults) != 0 {
		t.Fatal(faults)
	}
	_, ok := image.TopicByName("orders")
	if described := len(Describe(image, "").Entries); described != 15 || described != len(kvs) || !ok {
		t.Fatalf("%d examples, %d in the image; one for each kind of key, two for partitions", len(kvs), described)
	}
	for _, want := range []PartitionRecord{examplePartition(), exampleMirrorPartition()} {
		if !slices.ContainsFunc(kvs, func(kv KV) bool {
			rec, err := DecodePartition(kv.Key, kv.Value)
			return err == nil && string(rec.Encode()) == string(want.Encode())
		}) {
			t.Errorf("the document lacks %s", want.Encode())
		}
	}
}
