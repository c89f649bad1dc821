package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// text is a value in one form, whatever its Go type.
func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	var plain any
	_ = json.Unmarshal(raw, &plain)
	raw, _ = json.Marshal(plain)
	return string(raw)
}

// tagOf is what the stories call a batch's content.
func tagOf(h batch.Header, raw []byte) string {
	txn := ""
	if h.IsTransactional() {
		txn = "/" + producerName(h.ProducerID)
	}
	if h.IsControl() {
		marker, err := batch.ParseMarker(raw)
		if err != nil {
			return "control"
		}
		return strings.ToUpper(marker.Kind.String()) + txn
	}
	it := batch.Records(raw, nil)
	for it.Next() {
		tag, offset, ok := strings.Cut(string(it.Record.Value), ":")
		if !ok || offset != fmt.Sprint(h.BaseOffset) {
			return fmt.Sprintf("?%s", it.Record.Value)
		}
		return tag + txn
	}
	return "?"
}

// run is records in a row with one epoch and one tag.
type run struct {
	from, to types.Offset
	epoch    types.LeaderEpoch
	tag      string
}

func runsOf(list []storedBatch) []run {
	var out []run
	for _, b := range list {
		out = extend(out, run{b.h.BaseOffset, b.h.LastOffset(), b.h.PartitionLeaderEpoch, tagOf(b.h, b.raw)})
	}
	return out
}

func extend(out []run, r run) []run {
	if n := len(out); n > 0 && out[n-1].to+1 == r.from && out[n-1].epoch == r.epoch && out[n-1].tag == r.tag {
		out[n-1].to = r.to
		return out
	}
	return append(out, r)
}

func (r run) list() []any { return []any{r.from, r.to, r.epoch, r.tag} }

func listed(runs []run) []any {
	out := []any{}
	for _, r := range runs {
		out = append(out, r.list())
	}
	return out
}

func (w *world) nodeNamed(name string) *node {
	for _, c := range w.order {
		if n := c.node(name); n != nil {
			return n
		}
	}
	panic("no replica " + name)
}

// checkState compares what a step, or the end, should show.
func (w *world) checkState(want state) {
	for name, log := range want.Logs {
		if got, want := text(listed(runsOf(w.nodeNamed(name).batches()))), text(log); got != want {
			w.errorf("step %d: %s holds %s, want %s", w.step, name, got, want)
		}
	}
	for name, want := range want.Clusters {
		c := w.clusters[name]
		rec := c.record()
		leader := "none"
		if n := c.byID(rec.Leader); n != nil {
			leader = n.name
		}
		wantLeader := "none"
		if want.Leader != nil {
			wantLeader = *want.Leader
		}
		got := fmt.Sprintf("leader %s, epoch %d, %s, ISR %v, ELR %v", leader, rec.LeaderEpoch, stateOf(rec), c.members(rec.ISR), c.members(rec.ELR))
		wanted := fmt.Sprintf("leader %s, epoch %d, %s, ISR %v, ELR %v", wantLeader, want.Epoch, want.State, want.ISR, want.ELR)
		if got != wanted {
			w.errorf("step %d: %s: %s, want %s", w.step, name, got, wanted)
		}
	}
}

func (c *cluster) members(list []meta.ISRMember) []string {
	var names []string
	for _, m := range list {
		names = append(names, c.byID(m.ID).name)
	}
	slices.Sort(names)
	return names
}

// stateOf is a record's state as the stories write it.
func stateOf(rec *meta.PartitionRecord) string {
	switch {
	case rec.Fence != nil:
		return "FENCED"
	case rec.Mirror == nil, rec.Writable && rec.Mirror.Reason != "" && rec.Mirror.Reason != "abandoned":
		return "WRITABLE" // a start that was refused leaves its reason
	case rec.Mirror.State != meta.MirrorFailed:
		return rec.Mirror.State
	}
	reason, detail := core.ReasonOf(rec.Mirror.Reason)
	if reason == core.SourceGap {
		offsets, _, _ := strings.Cut(detail, ":")
		return fmt.Sprintf("FAILED(%s %s)", reason, offsets)
	}
	return fmt.Sprintf("FAILED(%s)", reason)
}

// checkEnd compares everything that a story tells of the end.
func (w *world) checkEnd() {
	want := w.story.Expect
	w.checkState(want.Final.state)
	for _, c := range w.order {
		for _, n := range c.nodes {
			v := n.view()
			w.checkOffset(n.name, "log start", v.start, want.Final.LogStart)
			w.checkOffset(n.name, "log end", v.end, want.Final.LogEnd)
			w.checkOffset(n.name, "high watermark", v.hw, want.Final.HighWatermark)
			if h, ok := want.History[n.name]; ok {
				got := []any{}
				for _, e := range v.history {
					got = append(got, []any{e.Epoch, e.Start})
				}
				if text(got) != text(h) {
					w.errorf("history of %s: %s, want %s", n.name, text(got), text(h))
				}
			}
		}
		w.checkTimelines(c)
		w.checkVaults(c)
		w.checkGroups(c)
		if got := c.describePromotions(); got != text(orEmpty(want.Promotions[c.name])) {
			w.errorf("promotions of %s: %s, want %s", c.name, got, text(want.Promotions[c.name]))
		}
	}
	w.checkEqual()
	w.checkTold()
}

func orEmpty(l []map[string]any) []map[string]any {
	if l == nil {
		return []map[string]any{}
	}
	return l
}

func (c *cluster) describePromotions() string {
	if c.record() == nil {
		return "[]"
	}
	return text(c.describe())
}

func (w *world) checkOffset(name, what string, got types.Offset, want map[string]types.Offset) {
	if o, ok := want[name]; ok && o != got {
		w.errorf("%s of %s is %d, want %d", what, name, got, o)
	} else if !ok && what == "log start" && got != 0 {
		w.errorf("%s of %s is %d, want 0", what, name, got)
	}
}

func (w *world) named(l timeline.List) []any {
	out := []any{}
	for _, e := range l {
		name, ok := w.names[e.ID]
		if !ok {
			name = e.ID
		}
		out = append(out, []any{name, e.FirstEpoch, e.FirstOffset})
	}
	return out
}

func (w *world) checkTimelines(c *cluster) {
	rec := c.record()
	if rec == nil {
		return
	}
	if got, want := text(w.named(rec.Timelines)), text(w.story.Expect.Timelines[c.name]); got != want {
		w.errorf("timelines of %s: %s, want %s", c.name, got, want)
	}
	for _, n := range c.nodes {
		raw := n.view().applied
		want, differs := w.story.Expect.Applied[n.name]
		cp, err := timeline.ParseCheckpoint(raw)
		switch {
		case differs && want == nil:
			if raw != nil && err == nil {
				w.errorf("%s has applied %s, want nothing", n.name, text(w.named(cp.List)))
			}
		case differs:
			if err != nil || text(w.named(cp.List)) != text(want) {
				w.errorf("%s has applied %s (%v), want %s", n.name, text(w.named(cp.List)), err, text(want))
			}
		case err != nil || !cp.List.Equal(rec.Timelines):
			w.errorf("%s has applied %s (%v), the record says %s", n.name, text(w.named(cp.List)), err, text(w.named(rec.Timelines)))
		}
	}
}

// checkVaults compares a replica's vault as a set: a cut repeated after a crash may lie there twice.
func (w *world) checkVaults(c *cluster) {
	for _, n := range c.nodes {
		var got, want []string
		entries, err := n.keeper.vault.List()
		n.must(err)
		for _, e := range entries {
			type piece struct {
				run
				committed bool
			}
			var pieces []piece
			n.must(n.keeper.vault.Batches(e.ID, func(h *batch.Header, raw []byte) error {
				r := run{h.BaseOffset, h.LastOffset(), h.PartitionLeaderEpoch, tagOf(*h, raw)}
				if r.to < e.From {
					return nil
				}
				committed := h.BaseOffset < e.HighWatermark
				if k := len(pieces); k > 0 && pieces[k-1].committed == committed {
					if merged := extend([]run{pieces[k-1].run}, r); len(merged) == 1 {
						pieces[k-1].run = merged[0]
						return nil
					}
				}
				pieces = append(pieces, piece{r, committed})
				return nil
			}))
			for _, p := range pieces {
				got = append(got, text(append(p.list(), string(e.Cause), p.committed)))
			}
		}
		for _, v := range w.story.Expect.Vault[n.name] {
			want = append(want, text(v))
		}
		slices.Sort(got)
		slices.Sort(want)
		got, want = slices.Compact(got), slices.Compact(want)
		if !slices.Equal(got, want) {
			w.errorf("vault of %s: %v, want %v", n.name, got, want)
		}
	}
}

func (w *world) checkGroups(c *cluster) {
	want := w.story.Expect.Groups[c.name]
	if len(want) == 0 && len(c.groups) == 0 {
		return
	}
	if text(c.groups) != text(want) {
		w.errorf("groups of %s: %s, want %s", c.name, text(c.groups), text(want))
	}
}

// checkEqual compares replicas byte for byte from the highest log start on.
func (w *world) checkEqual() {
	for _, set := range w.story.Equal {
		start := types.Offset(0)
		for _, name := range set {
			start = max(start, w.nodeNamed(name).view().start)
		}
		first := w.bytesFrom(set[0], start)
		for _, name := range set[1:] {
			if !bytes.Equal(first, w.bytesFrom(name, start)) {
				w.errorf("%s and %s differ from offset %d on", set[0], name, start)
			}
		}
	}
}

func (w *world) bytesFrom(name string, start types.Offset) []byte {
	var out []byte
	for _, b := range w.nodeNamed(name).batches() {
		if b.h.NextOffset() > start {
			out = append(out, b.raw...)
		}
	}
	return out
}

// told of cuts: what has come into the vaults in this step.
func (w *world) tellCuts() {
	for _, c := range w.order {
		for _, n := range c.nodes {
			made := n.keeper.made
			n.keeper.made = nil
			for _, id := range made {
				e, err := n.keeper.vault.Show(id)
				n.must(err)
				c.tell("CUT", "replica", n.name, "cause", string(e.Cause), "offsets", []any{e.From, e.To - 1},
					"epochs", []any{e.Epochs[0].Epoch, e.Epochs[len(e.Epochs)-1].Epoch}, "records", e.Records, "committed", e.BelowHighWatermark)
			}
		}
	}
}

// untold are fields that the stories have and the product words its own way.
var untold = map[string][]string{
	"FAILED": {"ours", "source", "offset", "seen", "source_epoch"},
}

// checkTold compares what operators were told, step by step in any order.
func (w *world) checkTold() {
	line := func(m map[string]any) string {
		keep := map[string]any{}
		for k, v := range m {
			if !slices.Contains(untold[fmt.Sprint(m["code"])], k) {
				keep[k] = v
			}
		}
		return text(keep)
	}
	var got, want []string
	for _, m := range w.told {
		got = append(got, line(m))
	}
	for _, m := range w.story.Expect.Told {
		want = append(want, line(m))
	}
	slices.Sort(got)
	slices.Sort(want)
	for _, l := range got {
		if i := slices.Index(want, l); i >= 0 {
			want = slices.Delete(want, i, i+1)
			continue
		}
		w.errorf("told, and should not be: %s", l)
	}
	for _, l := range want {
		w.errorf("not told: %s", l)
	}
}
