package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
	"tidemark/internal/wire"
)

// The reverse direction of a switchover has the old side connect to this one. Where
// this one's listener wants TLS or a log-in, what that takes is the old side's own to
// know: no password is sent there. It is looked at before anything is closed.

// reverseLook bounds that look at the old side.
const reverseLook = 15 * time.Second

// reversal is what the old side is asked: a mirror of this cluster, of the same topics.
func (s *sides) reversal() *asked {
	rec := s.r.record.Load()
	q := &asked{ClusterID: s.m.o.Node.ClusterID(), StartID: s.start, Attempt: s.attempt, Reverse: &Spec{
		Name: s.name + "-back", Bootstrap: s.m.o.Node.Addresses(), Topics: rec.Topics, Exclude: rec.Exclude, Groups: rec.Groups, Settings: rec.Settings,
	}}
	for _, p := range s.list {
		q.add(p)
	}
	return q
}

// mayReverse refuses a switchover with a reverse direction that the old side says it
// can't take. An old side of an older version can't say; then it shows afterwards.
func (s *sides) mayReverse(ctx context.Context) error {
	if !s.m.o.Secured || !s.tidemark {
		return nil
	}
	client, err := s.r.source()
	if err != nil {
		return err
	}
	body, err := json.Marshal(s.reversal())
	if err != nil {
		return err
	}
	_, err = client.Verb(ctx, s.list[0].leader, askReverseLook, body, reverseLook)
	var refused *source.Error
	if errors.As(err, &refused) && refused.Code == source.Code(wire.ErrPolicyViolation) {
		return fmt.Errorf("mirror %s: the old side could not become a mirror of this cluster, so nothing was changed: %w: %w", s.name, ErrState, err)
	}
	return nil
}

// reverse has the old side become a mirror of this cluster.
func (s *sides) reverse(ctx context.Context) string {
	if !s.tidemark {
		return "The source is no Tidemark: it can't become a mirror of this cluster."
	}
	client, err := s.r.source()
	if err != nil {
		return err.Error()
	}
	body, err := json.Marshal(s.reversal())
	if err == nil {
		err = s.askAny(ctx, client, askReverse, body)
	}
	if err != nil {
		return fmt.Sprintf("The old side is not a mirror yet: %v. There: `mirror create %s-back --no-start`, or `mirror alter` if it is there, with what this cluster's listener wants by --source-config; then `mirror failback %s-back`.", err, s.name, s.name)
	}
	return fmt.Sprintf("The old side mirrors this cluster now (mirror %s-back there).", s.name)
}

// askAny asks one broker of the old side, another one where that can't be reached: each has
// all of them do their part, and asked twice it is one order.
func (s *sides) askAny(ctx context.Context, client Source, what string, body []byte) (err error) {
	var asked []types.BrokerID
	for _, p := range s.list {
		if slices.Contains(asked, p.leader) {
			continue
		}
		asked = append(asked, p.leader)
		if _, err = client.Verb(ctx, p.leader, what, body, peerPatience); err == nil || !source.IsRetriable(err) {
			return err
		}
	}
	return err
}

// lookReverse tries, at the old side, whether the new one can be reached as a mirror would.
func (m *Mirrors) lookReverse(ctx context.Context, q *asked) error {
	if q.Reverse == nil {
		return wire.Errorf(wire.ErrInvalidRequest, "no mirror is described")
	}
	wayOut := fmt.Sprintf("at the old side, before the switchover: tidemark mirror create %s --no-start --source %s --source-config FILE",
		q.Reverse.Name, strings.Join(q.Reverse.Bootstrap, ","))
	rec, err := q.Reverse.record(m.o.Config.Mirror)
	if e, exists := m.o.Node.Image().Mirror(q.Reverse.Name); exists {
		rec, err = *e.Record, nil
		wayOut = fmt.Sprintf("at the old side: tidemark mirror alter %s --source-config FILE", q.Reverse.Name)
	}
	if err == nil {
		err = m.tryReach(ctx, &rec, q.ClusterID)
	}
	if err != nil {
		return wire.Errorf(wire.ErrPolicyViolation, "mirror %s there can't reach it: %v; %s", q.Reverse.Name, err, wayOut)
	}
	return nil
}

// tryReach connects as a mirror would and looks whose cluster it is.
func (m *Mirrors) tryReach(ctx context.Context, rec *meta.MirrorRecord, clusterID string) error {
	ctx, cancel := clock.WithTimeout(ctx, reverseLook)
	defer cancel()
	client, done, err := m.clientOf(rec)
	if err != nil {
		return err
	}
	defer done()
	md, err := client.Metadata(ctx, nil)
	if err == nil && md.ClusterID != clusterID {
		err = fmt.Errorf("%s is cluster %s, not %s", strings.Join(rec.Bootstrap, ","), md.ClusterID, clusterID)
	}
	return err
}

// takeReverse makes this cluster's fenced partitions a mirror of the cluster that
// fenced them. Only who holds the fence may ask.
func (m *Mirrors) takeReverse(ctx context.Context, q *asked) error {
	if q.Reverse == nil {
		return wire.Errorf(wire.ErrInvalidRequest, "no mirror is described")
	}
	image := m.o.Node.Image()
	var topics []string
	for _, t := range q.Topics {
		for _, n := range t.Partitions {
			rec, _ := image.Partition(t.ID, n)
			isDone := rec != nil && isRunningMirror(image, rec, q.Reverse.Name) && rec.Mirror.SourceClusterID == q.ClusterID // asked once more
			if !isDone && !q.holdsFence(rec) {
				return wire.Errorf(wire.ErrPolicyViolation, "%s-%d is not closed for start %s of cluster %s", t.Name, n, q.StartID, q.ClusterID)
			}
		}
		topics = append(topics, t.Name)
	}
	switch err := m.Create(ctx, *q.Reverse); {
	case errors.Is(err, ErrExists):
		// It may be of another cluster, of which this one has a copy, too.
		if e, ok := m.o.Node.Image().Mirror(q.Reverse.Name); ok {
			if err := m.tryReach(ctx, e.Record, q.ClusterID); err != nil {
				return wire.Errorf(wire.ErrPolicyViolation, "mirror %s is there already, and does not lead to cluster %s: %v", q.Reverse.Name, q.ClusterID, err)
			}
		}
	case err != nil:
		return wire.Errorf(wire.ErrInvalidRequest, "%v", err)
	}
	// Everything that was written here is there: a start that would cut needs a
	// plan, and is refused (R24).
	_, err := m.Failback(ctx, q.Reverse.Name, FailbackRequest{PreviewRequest: PreviewRequest{Topics: topics}})
	if err != nil {
		return wire.Errorf(wire.ErrPolicyViolation, "%v", err)
	}
	return nil
}
