package replica

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"

	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// TestScripts replays the source documents; the output is every fetch, answer
// and verdict.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var c *cluster
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "cluster" {
				n := 3
				d.MaybeScanArgs(t, "n", &n)
				c = newCluster(n, clusterRules{})
				return ""
			}
			c.script.Reset()
			c.command(t, d)
			return c.script.String()
		})
	})
}

func (c *cluster) named(t *testing.T, d *datadriven.TestData) []*node {
	t.Helper()
	var out []*node
	for _, a := range d.CmdArgs {
		var id int
		if _, err := fmt.Sscanf(a.Key, "r%d", &id); err == nil && len(a.Vals) == 0 {
			out = append(out, c.nodes[id-1])
		}
	}
	return out
}

func (c *cluster) command(t *testing.T, d *datadriven.TestData) {
	number := func(name string, or int) int {
		d.MaybeScanArgs(t, name, &or)
		return or
	}
	switch d.Cmd {
	case "elect":
		c.elect(c.named(t, d)[0], types.LeaderEpoch(number("epoch", int(c.epoch)+1)))
	case "produce":
		tag := "a"
		d.MaybeScanArgs(t, "tag", &tag)
		c.produce(number("n", 1), tag)
	case "fetch":
		for _, n := range c.named(t, d) {
			c.round(n)
		}
	case "replicate":
		c.batch = 100
		for _, n := range c.named(t, d) {
			if !c.replicate(n) {
				d.Fatalf(t, "r%d does not come to rest", n.id)
			}
		}
	case "crash":
		for _, n := range c.named(t, d) {
			c.crash(n, number("lose", 0))
		}
	case "start":
		for _, n := range c.named(t, d) {
			c.start(n)
		}
	case "hw":
		for _, n := range c.named(t, d) {
			n.HighWatermark = types.Offset(number("at", 0))
		}
	case "trim":
		c.leader.RaiseStart(types.Offset(number("start", 0)), true)
	case "send":
		c.ask(c.named(t, d)[0])
	case "deliver":
		a := c.flight[0]
		c.flight = c.flight[1:]
		v := c.deliver(a)
		fmt.Fprintf(&c.script, "r%d: %s %s\n", a.to.id, v.Kind, v.Why)
	case "first-cut":
		c.firstCut(t, d)
	case "state":
		c.printState()
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
}

// firstCut does R19's cut on one replica: the input is its applied list and the record's.
func (c *cluster) firstCut(t *testing.T, d *datadriven.TestData) {
	var lists []timeline.List
	for _, a := range d.CmdArgs[1:] {
		var l timeline.List
		for _, v := range a.Vals {
			var e timeline.Entry
			if _, err := fmt.Sscanf(v, "%1s@%d/%d", &e.ID, &e.FirstEpoch, &e.FirstOffset); err != nil {
				d.Fatalf(t, "%s: %v", v, err)
			}
			l = append(l, e)
		}
		lists = append(lists, l)
	}
	n := c.named(t, d)[0]
	owed := timeline.FirstCut(timeline.Replica{Applied: timeline.Checkpoint{List: lists[0]}, HasApplied: true, History: &n.History, LogStart: n.Start, LogEnd: n.End}, lists[1], 1<<30)
	fmt.Fprintf(&c.script, "r%d owes %s at %d (%s)\n", n.id, owed.Kind, owed.At, owed.Comparison.Relation)
	if owed.Kind == timeline.CutAt {
		n.Cut(owed.At)
	}
}

func (c *cluster) printState() {
	for _, n := range c.nodes {
		mark := ""
		switch {
		case n == c.leader:
			mark = fmt.Sprintf(" leads epoch %d", c.epoch)
		case !n.up:
			mark = " down"
		}
		fmt.Fprintf(&c.script, "r%d: %s, history %s, hw %d%s\n", n.id, &n.Log, &n.History, n.HighWatermark, mark)
	}
}
