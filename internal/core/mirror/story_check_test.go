package mirror

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/modellog"
	"tidemark/internal/core/timeline"
)

func (p *player) replica(name string) *storyCluster { return p.clusters[strings.ToUpper(name[:1])] }

// runs prints a story's [from, to, epoch, tag] as the model log prints its records.
func runs(list [][]any) string {
	var words []string
	for _, r := range list {
		span := fmt.Sprintf("%v-%v", r[0], r[1])
		if r[0] == r[1] {
			span = fmt.Sprint(r[0])
		}
		words = append(words, fmt.Sprintf("%s@%v%v", span, r[2], r[3]))
	}
	return strings.Join(words, " ")
}

func (p *player) checkState(want storyState) {
	for name, log := range want.Logs {
		if got := modellog.Print(p.replica(name).own.Records); got != runs(log) {
			p.errorf("step %d: %s holds %q, want %q", p.step, name, got, runs(log))
		}
	}
	for name, c := range want.Clusters {
		rec := &p.clusters[name].rec
		if got := stateOf(rec); got != c.State || rec.LeaderEpoch != c.Epoch {
			p.errorf("step %d: %s is %s at epoch %d, want %s at %d", p.step, name, got, rec.LeaderEpoch, c.State, c.Epoch)
		}
	}
}

// stateOf is the state as the stories write it.
func stateOf(rec *meta.PartitionRecord) string {
	switch {
	case rec.Mirror == nil:
		return "WRITABLE"
	case rec.Mirror.State != meta.MirrorFailed:
		return rec.Mirror.State
	}
	reason, detail := ReasonOf(rec.Mirror.Reason)
	if reason == SourceGap {
		offsets, _, _ := strings.Cut(detail, ":")
		return fmt.Sprintf("FAILED(%s %s)", reason, offsets)
	}
	return fmt.Sprintf("FAILED(%s)", reason)
}

func (p *player) checkEnd(s *story) {
	for name, end := range s.Expect.Final.LogEnd {
		if got := p.replica(name).own.End; got != end {
			p.errorf("%s ends at %d, want %d", name, got, end)
		}
		if got := p.replica(name).own.Start; got != s.Expect.Final.LogStart[name] {
			p.errorf("%s starts at %d, want %d", name, got, s.Expect.Final.LogStart[name])
		}
	}
	for name, want := range s.Expect.History {
		if diff := cmp.Diff(want, historyPairs(&p.replica(name).own.History)); diff != "" {
			p.errorf("history of %s: -want +got\n%s", name, diff)
		}
	}
	for name, want := range s.Expect.Timelines {
		var got timeline.List
		for _, e := range p.clusters[name].rec.Timelines {
			e.ID = p.names[e.ID]
			got = append(got, e)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			p.errorf("timelines of %s: -want +got\n%s", name, diff)
		}
	}
	p.checkVaults(s)
	p.checkPromotions(s)
	p.checkTold(s)
}

func (p *player) checkVaults(s *story) {
	for _, c := range p.clusters {
		name := strings.ToLower(c.name) + "0"
		var got, want []string
		for _, v := range c.vault {
			for _, run := range strings.Fields(modellog.Print(v.records)) {
				got = append(got, fmt.Sprintf("%s %s", run, v.cause))
			}
		}
		for _, v := range s.Expect.Vault[name] {
			want = append(want, fmt.Sprintf("%s %v", runs([][]any{v}), v[4]))
		}
		if diff := cmp.Diff(strings.Join(want, ", "), strings.Join(got, ", ")); diff != "" {
			p.errorf("vault of %s: -want +got\n%s", name, diff)
		}
	}
}

func (p *player) checkPromotions(s *story) {
	for name, c := range p.clusters {
		want := s.Expect.Promotions[name]
		if len(want) != len(c.rec.Promotions) {
			p.errorf("%s has %d promotion records, want %d", name, len(c.rec.Promotions), len(want))
			continue
		}
		for i, made := range c.rec.Promotions {
			got := map[string]any{"source": made.SourceClusterID, "lme": made.LastMirroredEpoch, "log_end": made.LogEnd, "hw": made.HighWatermark,
				"lmo": LastMirroredOffset(made), "source_end": made.SourceEnd, "source_epoch": made.SourceEpoch, "epoch": made.PromotedEpoch}
			for k, v := range got {
				if w := want[i][k]; w != nil && fmt.Sprint(w) != fmt.Sprint(v) {
					p.errorf("promotion %d of %s: %s is %v, want %v", i, name, k, v, w)
				}
			}
		}
	}
}

// checkTold compares the codes that the core tells, with what they say of the epoch or the reason.
func (p *player) checkTold(s *story) {
	codes := []string{"ADOPTED", "REFUSED", "REALIGNED", "LOG_RESET", "FAILED", "AHEAD_OF_MIRROR", "GAP_ACCEPTED", "EPOCH_FENCING", "PROMOTED", "ALREADY_PROMOTED"}
	var want []string
	for _, w := range s.Expect.Told {
		code := fmt.Sprint(w["code"])
		if !slices.Contains(codes, code) {
			continue
		}
		switch code {
		case "ADOPTED":
			code += fmt.Sprintf(" %v %v", w["relation"], w["epoch"])
		case "REFUSED", "FAILED":
			code += fmt.Sprintf(" %v", w["reason"])
		}
		want = append(want, fmt.Sprintf("%v %v %s", w["step"], w["cluster"], code))
	}
	got := slices.DeleteFunc(slices.Clone(p.told), func(line string) bool {
		return !slices.Contains(codes, strings.Fields(line)[2])
	})
	if diff := cmp.Diff(want, got); diff != "" {
		p.errorf("told: -want +got\n%s", diff)
	}
}
