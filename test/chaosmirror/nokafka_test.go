//go:build chaos && !kafka && linux

package chaosmirror_test

import "tidemark/test/chaos/links"

// startKafka is for builds with the tag kafka.
func (w *world) startKafka(links.Network) {
	w.t.Fatal("this test was built without the tag kafka: run `make chaos-mirror KAFKA=1`")
}
