package scenario

import (
	"errors"
	"fmt"
	"slices"

	"tidemark/internal/broker/api"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
)

// feed gives the copier one event and keeps what it asks for next.
func (n *node) feed(ev core.Event, data []byte) {
	if n.step == nil {
		return
	}
	out, err := n.step.Step(ev, data)
	if err != nil {
		n.c.w.errorf("step %d: %s: %v", n.c.w.step, n.name, err)
		return
	}
	if out.Cut {
		n.c.groupCut(n, out.CutAt)
		n.step.CutFollowed()
	}
	for _, e := range out.Effects {
		switch e := e.(type) {
		case core.Tell:
			n.tellOf(e)
		case core.StopFetching:
		default:
			n.asked = e
		}
	}
}

// lead shows the node the record that makes it the leader: its first cut comes
// before anything else.
func (n *node) lead() {
	before := n.openTransactions()
	n.see()
	n.tellAborted(before)
	rec := n.c.record()
	if n.c.w.mutation == "R6" && rec.IsMirror() {
		n.assignEpoch(rec.LeaderEpoch)
	}
	if rec.IsMirror() && rec.Mirror.State != meta.MirrorStarting {
		n.stepper()
		n.feed(nil, nil)
		n.settleFailure()
	}
}

// settleFailure commits a FAILED that needs no source.
func (n *node) settleFailure() {
	for range 8 {
		if p, ok := n.asked.(mirror.Proposal); ok && p.Purpose == core.ForFailure {
			n.propose(p)
			continue
		}
		return
	}
}

func (n *node) tellOf(e core.Tell) {
	c := n.c
	switch e.Code {
	case core.Adopted:
		var relation string
		var epoch types.LeaderEpoch
		_, _ = fmt.Sscanf(e.Detail, "%s leader epoch %d", &relation, &epoch)
		c.tell("ADOPTED", "relation", trimComma(relation), "epoch", epoch)
	case core.Realigned:
		c.tell("REALIGNED", "epoch", e.Epoch)
	case core.EpochFencing:
		c.tell("EPOCH_FENCING", "raised", []any{c.record().LeaderEpoch, e.Epoch})
	case core.LogReset:
		c.tell("LOG_RESET", "replica", n.name, "start", e.From, "was", n.startBefore)
	case core.GapAccepted:
		c.tell("GAP_ACCEPTED", "offsets", []any{e.From, e.To - 1})
	case core.AheadOfMirror:
		c.tell("AHEAD_OF_MIRROR", "records", int(e.To-e.From))
	case core.Waiting:
		c.tell("WAITING", "why", e.Detail)
	case core.Failed:
		c.tellFailed(n, e)
	case core.CompactionGap:
		c.tell("COMPACTION_GAP")
	}
}

func (c *cluster) tellFailed(n *node, e core.Tell) {
	pairs := []any{"reason", string(e.Reason)}
	switch e.Reason {
	case core.SourceGap:
		pairs = append(pairs, "offsets", []any{e.From, e.To - 1})
	case core.VaultFull:
		return // the vault has told it
	case core.MetadataWentBack:
		applied := types.LeaderEpoch(0)
		for _, h := range n.view().history {
			applied = max(applied, h.Epoch)
		}
		pairs = append(pairs, "replica", n.name, "record_epoch", c.record().LeaderEpoch, "checkpoint_epoch", applied)
	}
	c.tell("FAILED", pairs...)
}

func trimComma(s string) string {
	if n := len(s); n > 0 && s[n-1] == ',' {
		return s[:n-1]
	}
	return s
}

// answerer is the cluster that answers at the source's address.
func (c *cluster) answerer() *cluster {
	if c.address != nil {
		return c.address
	}
	return c.source
}

// lookAt is one look at a source (R18).
func (c *cluster) lookAt(src *cluster) (core.Source, error) {
	rec := src.record()
	l := src.leader()
	if rec == nil || l == nil || l.in == nil {
		return core.Source{}, &core.Refusal{Reason: core.SourceUnreachable, Detail: "the source has no leader"}
	}
	if l.seen != src.modRevision() && !(rec.IsMirror() && rec.Mirror.State != meta.MirrorMirroring) {
		l.see()
	}
	p := l.in.Partition()
	earliest, err := p.ListOffset(api.OffsetQuery{Timestamp: api.TimestampEarliest, CurrentLeaderEpoch: rec.LeaderEpoch, Replica: types.NoBroker})
	if err != nil {
		return core.Source{}, err
	}
	latest, err := p.ListOffset(api.OffsetQuery{Timestamp: api.TimestampLatest, CurrentLeaderEpoch: rec.LeaderEpoch, Replica: types.NoBroker})
	if err != nil {
		return core.Source{}, err
	}
	s := core.Source{ClusterID: src.id, TopicID: src.topic, LeaderEpoch: rec.LeaderEpoch, LogStart: earliest.Offset, LogEnd: latest.Offset, LastEpoch: types.NoLeaderEpoch}
	if src.spec.Kind == "kafka" {
		return s, nil
	}
	last, err := p.LastEpoch(rec.LeaderEpoch)
	if err != nil {
		return core.Source{}, err
	}
	s.Timelines, s.LastEpoch = rec.Timelines.Clone(), last
	if mine := c.record(); c.w.mutation == "R26.id" && mine != nil && mine.IsMirror() && len(mine.Timelines) > 0 {
		s.Timelines = mine.Timelines.Clone() // who doesn't look at who answers doesn't look at its list either
	}
	if s.Timelines == nil {
		s.Timelines = []timelineEntry{}
	}
	if rec.IsMirror() && rec.Mirror.State != meta.MirrorStopped {
		s.IsMirror = true
		first := rec.Mirror.SourceClusterID
		if first == "" && src.source != nil {
			first = src.source.id
		}
		s.Path = append([]string{first}, rec.Mirror.SourcePath...)
	}
	return s, nil
}

func (c *cluster) modRevision() meta.Revision {
	e, _ := c.image.PartitionEntry(c.topic, 0)
	return e.ModRevision
}

// askOf is the comparison without records that a dry run needs.
func (c *cluster) askOf(src *cluster) core.Ask {
	return func(r replica.Request) (replica.Reply, error) {
		l := src.leader()
		if l == nil {
			return replica.Reply{}, errors.New("the source has no leader")
		}
		reply, _, err := l.read(r, nobody, 0)
		if err == nil && reply.LogStart >= r.Offset {
			reply.Vouch = replica.VouchNo
			if l.vouches(r.LastEpoch, r.Offset) {
				reply.Vouch = replica.VouchYes
			}
		}
		return reply, err
	}
}

// vouches is what run.vouch asks.
func (n *node) vouches(epoch types.LeaderEpoch, offset types.Offset) bool {
	p := n.in.Partition()
	if rec := n.c.record(); rec.LeaderEpoch == epoch && !rec.IsMirror() {
		return true
	}
	e, end, err := p.EpochEnd(types.NoLeaderEpoch, epoch)
	if err == nil && e == epoch && end > offset {
		return true
	}
	e, _, err = p.EpochEnd(types.NoLeaderEpoch, epoch+1)
	return err == nil && e == epoch
}

// answer answers what the copier waits for. false: nothing moves by itself.
func (n *node) answer(upto types.Offset, lookUps bool) bool {
	c := n.c
	src := c.answerer()
	switch e := n.asked.(type) {
	case core.LookUp:
		if !lookUps {
			return false
		}
		s, err := c.lookAt(src)
		if err != nil {
			n.feed(core.SourceFailed{Ticket: e.Ticket, Reason: core.SourceUnreachable, Detail: err.Error()}, nil)
			return true
		}
		n.feed(core.SourceShown{Ticket: e.Ticket, Source: s}, nil)
	case core.Fetch:
		return n.answerFetch(src, e, upto)
	case core.AskVouch:
		n.feed(core.Vouched{Ticket: e.Ticket, Yes: src.leader() != nil && src.leader().vouches(e.Epoch, e.Offset)}, nil)
	case core.Probe:
		n.answerProbe(src, e)
	case mirror.Proposal:
		n.propose(e)
	case core.Backoff:
		n.feed(core.BackoffOver{Ticket: e.Ticket}, nil)
	default:
		return false
	}
	return true
}

func (n *node) answerFetch(src *cluster, e core.Fetch, upto types.Offset) bool {
	fail := func(why string) bool {
		n.feed(core.SourceFailed{Ticket: e.Ticket, Reason: core.SourceUnreachable, Detail: why}, nil)
		return true
	}
	l := src.leader()
	if l == nil {
		return fail("no leader")
	}
	maxBytes := fetchBytes
	if e.Peek {
		maxBytes = 0
	}
	reply, raw, err := l.read(e.Request, nobody, maxBytes)
	if err != nil {
		return fail(err.Error())
	}
	if reply.Kind == replica.AnswerData {
		raw, _ = below(raw, upto)
		v := n.view()
		if !e.Peek && len(raw) == 0 && reply.LogStart <= v.start {
			if n.idleShown {
				return false
			}
			n.idleShown = true // an answer without records says the source's end
		} else {
			n.idleShown = false
		}
	}
	ev, data := n.step.WithRecords(e, reply, raw)
	n.startBefore = n.view().start
	before := n.history()
	n.feed(ev, data)
	n.mutateHistory(before)
	return true
}

func (n *node) answerProbe(src *cluster, e core.Probe) {
	own, h, ok, err := n.step.LastBatchBelow(e.Below)
	if err != nil || !ok {
		n.feed(core.Probed{Ticket: e.Ticket, Result: core.ProbeMissing}, nil)
		return
	}
	p := core.Probed{Ticket: e.Ticket, Base: h.BaseOffset, Last: h.LastOffset(), Result: core.ProbeMissing}
	l := src.leader()
	if l == nil {
		n.feed(core.SourceFailed{Ticket: e.Ticket, Reason: core.SourceUnreachable, Detail: "no leader"}, nil)
		return
	}
	reply, raw, err := l.read(replica.Request{Offset: h.BaseOffset, LastEpoch: types.NoLeaderEpoch, LeaderEpoch: e.LeaderEpoch}, nobody, len(own)+64<<10)
	if err == nil && reply.Kind == replica.AnswerData {
		p.Result, err = n.step.Compare(own, h, raw, n.c.topicConfig().Compact)
	}
	if err != nil {
		n.feed(core.SourceFailed{Ticket: e.Ticket, Reason: core.SourceUnreachable, Detail: err.Error()}, nil)
		return
	}
	n.feed(p, nil)
}

// propose commits the copier's transaction (writer.carryOut).
func (n *node) propose(p mirror.Proposal) {
	c := n.c
	rec := p.Record
	if p.Purpose == core.ForAdoption && c.w.mutation == "R18+R23" {
		rec.LeaderEpoch = c.record().LeaderEpoch + 1
	}
	if p.Purpose == core.ForAdoption {
		c.adoptedBy = n.id
	}
	applied := c.modRevision() == p.From
	if applied {
		applied = c.update(n, rec) == nil
	}
	n.asked = nil
	n.see()
	n.feed(core.Proposed{Ticket: p.Ticket, Applied: applied}, nil)
}

// newSession ends the copier's present session, as a source whose leader moved does.
func (n *node) newSession() {
	if f, ok := n.asked.(core.Fetch); ok {
		n.feed(core.SourceFailed{Ticket: f.Ticket, Reason: core.SourceLeaderMoved, Detail: "another session"}, nil)
	}
	n.idleShown = false
}

// copy is one session of the mirror's leader with its source.
func (c *cluster) copy(s *step) {
	rec := c.record()
	if rec == nil || !rec.IsMirror() {
		return
	}
	switch rec.Mirror.State {
	case meta.MirrorStarting, meta.MirrorLogAlignment, meta.MirrorPaused, meta.MirrorStopped:
		c.tell("NOT_COPYING", "state", rec.Mirror.State)
		return
	case meta.MirrorFailed:
		switch reason, _ := core.ReasonOf(rec.Mirror.Reason); reason {
		case core.VaultFull, core.MetadataWentBack, core.TimelineUnknown:
			return // its first cut is still to come
		}
	}
	n := c.leader()
	if n == nil {
		return
	}
	n.see()
	n.stepper()
	n.newSession()
	n.feed(nil, nil)
	upto := types.NoOffset
	if s.Upto != nil {
		upto = *s.Upto
	}
	c.pump(n, upto, true)
	c.persistFacts(n, upto)
	if rep := string(s.Replicate); rep != "false" {
		r := replicateAll()
		r.only = names(s.Replicate)
		c.replicate(r)
	} else {
		n.see()
	}
}

// persistFacts lets the time pass after which a copier writes down what it has
// seen of its source.
func (c *cluster) persistFacts(n *node, upto types.Offset) {
	if _, fetching := n.asked.(core.Fetch); !fetching {
		return
	}
	c.w.now += 61_000
	n.feed(core.Tick{}, nil)
	c.pump(n, upto, true)
}

// pump answers the copier until nothing moves by itself.
func (c *cluster) pump(n *node, upto types.Offset, lookUps bool) {
	tries := 0
	for range 400 {
		if !n.up || n.step == nil {
			return
		}
		if _, waits := n.asked.(core.Backoff); waits {
			st := n.step.Status()
			if tries++; tries > 6 || c.record().Mirror.State == meta.MirrorFailed && c.w.toldNow(c, "FAILED", "VAULT_FULL") || st.Reason == core.Reason(core.AheadOfMirror) ||
				c.record().Mirror.State == meta.MirrorFailed && tries > 1 {
				return
			}
		}
		if !n.answer(upto, lookUps) {
			return
		}
	}
	c.w.errorf("step %d: %s does not come to rest", c.w.step, n.name)
}

// toldNow reports whether one of the codes was told in this step.
func (w *world) toldNow(c *cluster, codes ...string) bool {
	return slices.ContainsFunc(w.told, func(m map[string]any) bool {
		return m["step"] == w.step && m["cluster"] == c.name && slices.Contains(codes, m["code"].(string))
	})
}

// align has leader and followers make the first cut, and ends LOG_ALIGNMENT (§6.2).
func (c *cluster) align() {
	n := c.leader()
	rec := c.record()
	if n == nil || rec == nil || !rec.IsMirror() {
		return
	}
	n.see()
	n.stepper()
	if b, ok := n.asked.(core.Backoff); ok {
		n.feed(core.BackoffOver{Ticket: b.Ticket}, nil)
	}
	n.feed(nil, nil)
	n.settleFailure()
	if !c.w.toldNow(c, "FAILED", "VAULT_FULL") {
		c.replicate(replicateAll())
	}
	n.feed(nil, nil)
	c.pump(n, types.NoOffset, false)
	if c.record().Mirror.State == meta.MirrorMirroring {
		// It waited for this step alone.
		c.w.told = slices.DeleteFunc(c.w.told, func(m map[string]any) bool {
			return m["step"] == c.w.step && m["cluster"] == c.name && m["code"] == "WAITING"
		})
		c.replicate(replicateAll())
	}
}

// settleMirror lets a mirror's leader notice what its followers have fetched.
func (n *node) settleMirror() {
	if n.step != nil && n.up {
		n.feed(nil, nil)
	}
}

// apply has one replica alone do its first cut.
func (n *node) apply(s *step) {
	rec := n.c.record()
	if s.Crash == "" {
		n.see()
		if n.id == rec.Leader && rec.IsMirror() {
			n.stepper()
			n.feed(nil, nil)
		}
		return
	}
	n.see0()
	n.flush()
	died := func() (at string) {
		defer func() {
			if r := recover(); r != nil {
				d, ok := r.(crashNow)
				if !ok {
					panic(r)
				}
				at = d.at
			}
		}()
		switch s.Crash {
		case "vault":
			n.dieInVault = true
		case "truncate", "sync":
			n.disk.dieAt = s.Crash
		}
		n.see()
		return "timeline"
	}()
	n.dieInVault, n.disk.dieAt = false, ""
	if died != s.Crash {
		n.c.w.errorf("step %d: %s died at %s, not at %s", n.c.w.step, n.name, died, s.Crash)
	}
	if n.c.w.mutation == "R1.vault" && died != "timeline" {
		for _, id := range n.keeper.made {
			n.must(n.keeper.vault.Purge(id))
		}
		n.keeper.made = nil
	}
	if died == "truncate" {
		n.powerLoss(0)
		return
	}
	n.kill(0)
	n.c.crashed(n)
	n.unregister()
}

// see0 opens the log without letting the node do anything about the record.
func (n *node) see0() {
	if n.in != nil {
		return
	}
	n.newPartition()
	n.in.Show(nil, 0, n.c.topicConfig(), false)
}

// promote is R23.
func (c *cluster) failover(s *step) {
	n := c.leader()
	if n == nil {
		return
	}
	n.see()
	rec := c.record()
	start := ""
	switch {
	case s.Retry:
		start = c.attempt
	case rec.Mirror != nil:
		start = rec.Mirror.StartID
		c.attempt = start
	}
	if s.Retry && c.w.mutation == "R23.start" && rec.IsMirror() {
		start = rec.Mirror.StartID
	}
	step := n.stepper()
	n.feed(nil, nil)
	req := core.PromoteRequest{StartID: start, TimelineID: "fresh", Step: c.w.story.Params.PromotionStep, Now: c.w.now}
	step.Halt()
	before := n.openTransactions()
	done, _, err := step.Promote(req)
	n.step, n.asked = nil, nil
	var refusal *core.Refusal
	if errors.As(err, &refusal) {
		c.tell("REFUSED", "reason", string(refusal.Reason))
		return
	}
	n.must(err)
	if done.Outcome == core.AlreadyPromoted {
		pairs := []any{"start", c.startNumber(done.Made.StartID), "epoch", done.Made.PromotedEpoch}
		if done.MirrorAgain != "" {
			pairs = append(pairs, "mirror_again_since_start", c.startNumber(done.MirrorAgain))
		}
		c.tell("ALREADY_PROMOTED", pairs...)
		return
	}
	if s.Outcome != "unknown_not_applied" {
		c.promoted(n, done, before)
	}
	if s.Outcome == "unknown_applied" || s.Outcome == "unknown_not_applied" {
		c.tell("OUTCOME_UNKNOWN")
	}
	if s.Outcome == "unknown_not_applied" {
		return
	}
	if string(s.Replicate) != "false" {
		c.replicate(replicateAll())
	}
}

func (c *cluster) promoted(n *node, done core.Promotion, before []openTxn) {
	rec := done.Record
	last := &rec.Timelines[len(rec.Timelines)-1]
	last.ID = c.freshTimeline()
	made := &rec.Promotions[len(rec.Promotions)-1]
	if c.w.mutation == "R18+R23" {
		epoch := c.record().LeaderEpoch + types.LeaderEpoch(c.w.story.Params.PromotionStep)
		rec.LeaderEpoch, made.PromotedEpoch, last.FirstEpoch = epoch, epoch, epoch
	}
	if c.w.mutation == "R23.first_offset" {
		last.FirstOffset = min(made.LogEnd, made.HighWatermark)
	}
	if err := c.update(n, rec); err != nil {
		panic(err)
	}
	n.see()
	n.tellAborted(before)
	from, to, known := core.Missing(*made)
	missing := any("unknown")
	if known {
		missing = "none seen"
		if from < to {
			missing = []any{from, to - 1}
		}
	}
	seen := any(made.SourceEnd)
	if made.NeverFetched {
		seen = nil
	}
	pairs := []any{"epoch", made.PromotedEpoch, "start", c.startNumber(made.StartID), "last_mirrored_epoch", made.LastMirroredEpoch, "log_end", made.LogEnd,
		"last_mirrored_offset", core.LastMirroredOffset(*made), "source_end_seen", seen, "may_be_missing", missing}
	if made.NeverFetched {
		pairs = append(pairs, "fetched_from_source", false)
	}
	if done.OnLeaderOnlyFrom < done.OnLeaderOnlyTo {
		pairs = append(pairs, "on_leader_only", []any{done.OnLeaderOnlyFrom, done.OnLeaderOnlyTo - 1})
	}
	c.tell("PROMOTED", pairs...)
	c.groupsPromoted(made.LogEnd)
}

func (c *cluster) startNumber(id string) int { return slices.Index(c.starts, id) + 1 }

// setState is pause and resume.
func (c *cluster) setState(change func(*meta.PartitionRecord) (meta.PartitionRecord, error)) {
	n := c.leader()
	n.see()
	rec, err := change(c.record())
	if err == nil {
		err = c.update(n, rec)
	}
	n.must(err)
	n.see()
	if n.step != nil {
		n.feed(nil, nil)
	}
}

// deleteMirror forgets the mirror.
func (c *cluster) deleteMirror() {
	plan, err := control.DeleteMirror(c.image, "m", c.anyUp().me())
	switch {
	case errors.Is(err, control.ErrMirrorInUse):
		c.tell("REFUSED", "reason", string(core.NotPromoted))
	case err != nil:
		panic(err)
	default:
		if err := c.commit(plan); err != nil {
			panic(err)
		}
	}
}
