package mirror

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// provedTo is how far a partition was found equal, and in which start of the mirror.
type provedTo struct {
	startID string
	to      types.Offset
}

func (m *Mirrors) provedTo(id meta.PartitionID, startID string) types.Offset {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.proved[id]; ok && p.startID == startID {
		return p.to
	}
	return types.NoOffset
}

func (m *Mirrors) prove(id meta.PartitionID, p provedTo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.proved[id] = p
}

// unprove takes back what a cut has taken from under a proof.
func (m *Mirrors) unprove(id meta.PartitionID, end types.Offset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.proved[id]; ok && p.to > end {
		p.to = end
		m.proved[id] = p
	}
}

// verification compares both sides of one mirror.
type verification struct {
	m        *Mirrors
	client   Source
	result   Verify
	report   func(Verify)
	reported time.Time
	// throttle bounds what is fetched from the source; nil for no bound.
	throttle *throttle
	// background: only what is led here, one partition's failure ends no other's
	// comparison, and a difference is looked at twice.
	background bool
}

// Verify fetches both sides and compares them batch by batch: offsets, epoch, CRC,
// size, bytes; on a compacted topic record by record. It proves what both held
// when it began, or, on a mirror that was failed over, what was mirrored.
// progress is called now and then from the same goroutine. A difference is no error.
func (m *Mirrors) Verify(ctx context.Context, name string, progress func(Verify)) (Verify, error) {
	v, err := m.newVerification(name)
	if err != nil {
		return Verify{}, err
	}
	v.report = progress
	defer v.client.Close()
	began := m.o.Node.Now()
	err = v.run(ctx, name)
	if err == nil {
		m.keepReport(v, name, began)
	}
	return v.result, m.needsSource(name, "verify", err)
}

func (m *Mirrors) newVerification(name string) (*verification, error) {
	e, ok := m.o.Node.Image().Mirror(name)
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrUnknownMirror, name)
	}
	s, err := settingsOf(m.o.Config.Mirror, e.Record.Settings)
	if err != nil {
		return nil, err
	}
	cfg, err := clientConfig(e.Record, s)
	if err != nil {
		return nil, fmt.Errorf("mirror %s: %w: %w", name, ErrSpec, err)
	}
	return &verification{
		m: m, client: m.connect(cfg, e.Record.SourceClusterID),
		result: Verify{Mirror: name, Equal: true, Partitions: []VerifyPartition{}},
	}, nil
}

// run compares all partitions. In the background the failure of one is its own.
func (v *verification) run(ctx context.Context, name string) error {
	for _, p := range v.partitions(v.m.o.Node.Image(), name) {
		err := v.partition(ctx, p)
		switch {
		case err == nil:
		case ctx.Err() != nil || !v.background:
			return fmt.Errorf("verify %s: %w", p.tp, err)
		default:
			v.result.Partitions[len(v.result.Partitions)-1].Error = err.Error()
		}
	}
	v.result.Done = true
	return nil
}

// verified is one partition to compare.
type verified struct {
	id      meta.PartitionID
	tp      types.TopicPartition
	part    Partition
	startID string
	compact bool
	want    types.Offset // exclusive: how far it is to be compared; -1: as far as both sides go
	to      types.Offset // exclusive: how far it can be
	short   string       // why that is less, in words; "" if it isn't
	digest  hash.Hash    // of the own bytes found equal

	leader source.Partition
	topic  types.TopicID
}

func (v *verification) partitions(image *meta.Image, name string) []*verified {
	var list []*verified
	for p := range image.Partitions() {
		if p.Record == nil || p.Record.Mirror == nil || p.Record.Mirror.Name != name {
			continue
		}
		t, ok := image.Topic(p.ID.Topic)
		part, held := v.m.o.Node.Partition(p.ID.Topic, p.ID.Number)
		if !ok || !held {
			v.result.NotHere++
			continue
		}
		if v.background && p.Record.Leader != v.m.o.Node.NodeID() {
			continue // its leader compares it
		}
		one := &verified{
			id: p.ID, tp: part.Name(), part: part, startID: p.Record.Mirror.StartID, want: types.NoOffset,
			compact: v.m.o.Config.Topic(t.Record.Configs).Compact,
		}
		if n := len(p.Record.Promotions); p.Record.Writable && n > 0 {
			one.want = p.Record.Promotions[n-1].LogEnd
		}
		if view, open := part.View(); open {
			v.result.TotalBytes += view.Size
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b *verified) int { return comparePartitions(a.tp, b.tp) })
	return list
}

// differencePause is how long a difference in the background has to go away.
const differencePause = 5 * time.Second

// leaderTries is how often a partition's source leader is looked up anew during a verify.
const leaderTries = 10

// errLookAgain asks for another look at the source's leader.
var errLookAgain = errors.New("the source's leader has changed")

// find looks up who leads the partition at the source, and checks that it is the same topic.
func (v *verification) find(ctx context.Context, p *verified) error {
	md, err := v.client.Metadata(ctx, []string{p.tp.Topic})
	if err != nil {
		return err
	}
	if len(md.Topics) != 1 || md.Topics[0].Code != 0 || int(p.tp.Partition) >= len(md.Topics[0].Partitions) {
		return errors.New("the source does not have the partition")
	}
	t := md.Topics[0]
	if !t.ID.IsZero() && t.ID != p.id.Topic {
		return fmt.Errorf("the source's topic has another id (%s)", t.ID)
	}
	p.leader, p.topic = t.Partitions[p.tp.Partition], t.ID
	if p.leader.Leader == types.NoBroker {
		return errLookAgain
	}
	return nil
}

// bound asks the source's leader for one of its ends.
func (v *verification) bound(ctx context.Context, p *verified, at types.Millis) (types.Offset, error) {
	a, err := v.client.ListOffsets(ctx, p.leader.Leader, []source.OffsetQuery{{TopicPartition: p.tp, CurrentEpoch: p.leader.LeaderEpoch, Timestamp: at}})
	if err != nil {
		return 0, err
	}
	if code := a[p.tp].Code; code != 0 {
		return 0, fmt.Errorf("%w: %s", errLookAgain, code)
	}
	return a[p.tp].Offset, nil
}

// partition compares one partition and adds its result.
func (v *verification) partition(ctx context.Context, p *verified) error {
	v.result.Partitions = append(v.result.Partitions, VerifyPartition{Topic: p.tp.Topic, Partition: p.tp.Partition, VerifiedTo: types.NoOffset})
	out := &v.result.Partitions[len(v.result.Partitions)-1]
	from := types.NoOffset
	p.digest = sha256.New()
	again := v.background
	for try := 1; ; try++ {
		err := v.find(ctx, p)
		if err == nil {
			err = v.compare(ctx, p, out, &from)
			out.Difference = cmp.Or(out.Difference, p.short)
		}
		if err == nil && out.Difference != "" && again {
			// A cut on either side may be under way: what stays different is told.
			again, out.Difference = false, ""
			pause(ctx, differencePause)
			continue
		}
		if err == nil {
			break
		}
		retriable := errors.Is(err, errLookAgain) || source.IsRetriable(err)
		if !retriable || try == leaderTries || !pause(ctx, 200*time.Millisecond) {
			return err
		}
	}
	if !p.compact {
		out.SHA256 = hex.EncodeToString(p.digest.Sum(nil))
	}
	v.result.Equal = v.result.Equal && out.Difference == ""
	v.m.prove(p.id, provedTo{startID: p.startID, to: out.VerifiedTo})
	v.progress(true)
	return nil
}

// compare goes on with a partition where an earlier try left off.
func (v *verification) compare(ctx context.Context, p *verified, out *VerifyPartition, from *types.Offset) error {
	start, err := v.bound(ctx, p, source.Earliest)
	if err != nil {
		return err
	}
	end, err := v.bound(ctx, p, source.Latest)
	if err != nil {
		return err
	}
	view, open := p.part.View()
	if !open {
		return errors.New("the partition is not open here")
	}
	if *from == types.NoOffset {
		*from = max(start, view.LogStart)
		if p.want == types.NoOffset {
			p.want = min(end, view.LogEnd)
		}
		out.From = min(*from, p.want, end)
	}
	p.to, p.short, out.Difference = p.want, "", ""
	if p.want > end {
		p.to, p.short = end, fmt.Sprintf("the source ends at %d, below the %d that was mirrored", end, p.want)
	}
	*from = min(*from, p.to)
	out.VerifiedTo = *from
	theirs := &sourceReader{v: v, p: p, at: *from}
	ours := &logReader{l: p.part.Log(), at: *from, to: p.to}
	if p.compact {
		return v.walkRecords(ctx, p, out, from, ours, theirs)
	}
	return v.walkBatches(ctx, p, out, from, ours, theirs)
}

// walkBatches compares batch by batch until the end or the first difference.
func (v *verification) walkBatches(ctx context.Context, p *verified, out *VerifyPartition, from *types.Offset, ours, theirs batchReader) error {
	for {
		a, err := ours.next(ctx, p.to)
		if err != nil {
			return err
		}
		b, err := theirs.next(ctx, p.to)
		if err != nil {
			return err
		}
		if a == nil && b == nil {
			out.VerifiedTo, *from = p.to, p.to
			return nil
		}
		if out.Difference = describeDifference(a, b); out.Difference != "" {
			return nil
		}
		h := mustHeader(a)
		_, _ = p.digest.Write(a) // never fails
		out.Batches++
		out.Bytes += int64(len(a))
		v.result.Bytes += int64(len(a))
		*from = min(h.NextOffset(), p.to)
		out.VerifiedTo = *from
		v.progress(false)
	}
}

// progress reports now and then, or at once.
func (v *verification) progress(now bool) {
	if v.report == nil || (!now && clock.Since(v.m.ctx, v.reported) < 200*time.Millisecond) {
		return
	}
	v.reported = clock.Now(v.m.ctx)
	snapshot := v.result
	snapshot.Partitions = slices.Clone(v.result.Partitions)
	v.report(snapshot)
}
