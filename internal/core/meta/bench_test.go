package meta

import (
	"fmt"
	"runtime"
	"testing"
)

// benchSnapshot is the metadata of so many mirrored partitions, 24 to a topic.
func benchSnapshot(partitions int) ([]KV, Revision) {
	s := newStored()
	for n := 0; n*24 < partitions; n++ {
		ops := putTopic(n, fmt.Sprintf("orders-%d", n), 24)
		for p := range int32(24) {
			rec := exampleMirrorPartition()
			rec.Mirror.SourceClusterID = "MkU3OEVBNTcwNTJENDM2Qg"
			ops = append(ops, Put(keys.Partition(id(n), p), rec.Encode()))
		}
		s.do(ops...)
	}
	return s.snapshot(), s.revision
}

var sizes = []int{1_000, 10_000, 100_000}

// BenchmarkLoad measures the image of a snapshot, and its bytes per partition.
func BenchmarkLoad(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			kvs, revision := benchSnapshot(n)
			stored := 0
			for _, kv := range kvs {
				stored += len(kv.Key) + len(kv.Value)
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var image *Image
			for b.Loop() {
				image, _ = Load("c1", kvs, revision)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "heapB/partition")
			b.ReportMetric(float64(stored)/float64(n), "storedB/partition")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/partition")
			runtime.KeepAlive(image)
			runtime.KeepAlive(kvs)
		})
	}
}

// BenchmarkApply measures one changed partition record among many.
func BenchmarkApply(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			kvs, revision := benchSnapshot(n)
			image, _ := Load("c1", kvs, revision)
			value := exampleMirrorPartition().Encode()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				revision++
				key := keys.Partition(id(i%(n/24)), int32(i%24))
				image, _ = image.Apply(Events{Revision: revision, Events: []Event{{KV: KV{Key: key, Value: value, CreateRevision: 2, ModRevision: revision}}}})
			}
		})
	}
}

// BenchmarkApplyBatch measures one transaction that changes 2,048 partitions of 10,000, as after a restart.
func BenchmarkApplyBatch(b *testing.B) {
	kvs, revision := benchSnapshot(10_000)
	image, _ := Load("c1", kvs, revision)
	value := exampleMirrorPartition().Encode()
	for b.Loop() {
		revision++
		events := Events{Revision: revision}
		for i := range 2048 {
			key := keys.Partition(id(i/24), int32(i%24))
			events.Events = append(events.Events, Event{KV: KV{Key: key, Value: value, CreateRevision: 2, ModRevision: revision}})
		}
		image, _ = image.Apply(events)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2048, "ns/partition")
}

// BenchmarkLookup measures what a produce or fetch of one partition asks the image.
func BenchmarkLookup(b *testing.B) {
	for _, n := range sizes {
		kvs, revision := benchSnapshot(n)
		image, _ := Load("c1", kvs, revision)
		names := make([]string, n/24)
		for i := range names {
			names[i] = fmt.Sprintf("orders-%d", i)
		}
		b.Run(fmt.Sprintf("name/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, ok := image.TopicByName(names[i%len(names)]); !ok {
					b.Fatal("lost")
				}
			}
		})
		b.Run(fmt.Sprintf("partition/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if rec, _ := image.Partition(id(i%len(names)), int32(i%24)); rec == nil {
					b.Fatal("lost")
				}
			}
		})
	}
}

// BenchmarkValidateAndEncode measures what a leader does before it writes a record.
func BenchmarkValidateAndEncode(b *testing.B) {
	old := exampleMirrorPartition()
	b.ReportAllocs()
	for b.Loop() {
		next := old.Clone()
		next.Mirror.SourceEnd++
		if err := ValidateRecord(&old, &next); err != nil {
			b.Fatal(err)
		}
		if len(next.Encode()) == 0 {
			b.Fatal("empty")
		}
	}
}

// BenchmarkDigest measures what a log dir notes of an image with its checkpoints.
func BenchmarkDigest(b *testing.B) {
	kvs, revision := benchSnapshot(10_000)
	image, _ := Load("c1", kvs, revision)
	for b.Loop() {
		image.Digest()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/partition")
}
