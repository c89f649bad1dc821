package broker

import (
	"strings"
	"testing"
	"time"

	"tidemark/internal/broker/api"
	"tidemark/internal/core/meta"
	"tidemark/internal/wire"
)

// TestAForkWhoseFolderIsLost is an error of the drill, that says what to do: an empty
// log in its place would pass for a rehearsal of a failover that loses everything.
func TestAForkWhoseFolderIsLost(t *testing.T) {
	f := func(when string, lose func(w *world, b *Broker, show func()) *Broker) {
		t.Run(when, func(t *testing.T) {
			w, b, r := startWithFork(t)
			b = lose(w, b, func() { makeForkTopic(t, b, r) })
			eventually(t, "the fork is offline", func() bool {
				p, ok := b.PartitionByName(r.Name.Topic, 0)
				return ok && p.down.Load()
			})
			eventually(t, "the list of drills names it", func() bool {
				list, err := b.Mirrors().Drills(testContext(t))
				return err == nil && len(list) == 1 && list[0].State == meta.DrillReady && list[0].Partitions == 1 && list[0].Offline == 1 &&
					len(list[0].Faults) == 1 && strings.Contains(list[0].Faults[0], "drill.d.a-0: LOG_OFFLINE") && strings.Contains(list[0].Faults[0], "mirror drill delete d")
			})
			_, err := appendTo(t, mustPartition(t, b, r.Name.Topic, 0), 1, "x")
			wantCode(t, "a write to the fork", err, wire.ErrKafkaStorageError)
			said := (mirrorNode{b}).Prove(testContext(t), r.As, []byte("k"), []byte("v"), time.Minute)
			if said == nil || api.CodeOf(err) == 0 || !strings.Contains(said.Error(), "the folder of this fork is gone") || !strings.Contains(said.Error(), "mirror drill delete d") {
				t.Errorf("the drill is told %v", said)
			}
			if folders := forksOnDisk(t, w.fs); len(folders) > 0 {
				t.Errorf("an empty log was made: %v", folders)
			}
			if o := mustAppend(t, mustPartition(t, b, "a", 0), "x"); o != r.To {
				t.Errorf("the mirror's log goes on at %d", o)
			}
			endDrill(t, b)
			closeNode(t, b)
		})
	}
	remove := func(w *world, folder string) {
		if err := w.fs.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
	}
	f("before it is shown", func(w *world, b *Broker, show func()) *Broker {
		remove(w, "/data/"+forksOnDisk(t, w.fs)[0])
		show()
		return b
	})
	f("while the node is stopped", func(w *world, b *Broker, show func()) *Broker {
		show()
		closeNode(t, b)
		remove(w, "/data/drill.d.a-0")
		return w.open()
	})
}
