package mirror

import (
	"context"
	"fmt"
	"slices"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
)

// What the verbs that change a mirror's record make of it. A dry run asks the same.

func (m *Mirrors) toStart(rec *meta.MirrorRecord) error {
	switch rec.Want {
	case meta.WantCreated:
		rec.Want, rec.StartID = meta.WantRunning, m.o.IDs.Fresh()
	case meta.WantPaused:
		return fmt.Errorf("mirror %s is paused: %w; resume it", rec.Name, ErrState)
	case meta.WantStopped:
		return fmt.Errorf("mirror %s has been failed over: %w; its topics are writable here. To copy the other way, make a mirror on the other cluster", rec.Name, ErrState)
	}
	return nil
}

func toPause(rec *meta.MirrorRecord) error {
	switch rec.Want {
	case meta.WantRunning:
		rec.Want = meta.WantPaused
	case meta.WantPaused:
	default:
		return fmt.Errorf("mirror %s is %s: %w; only a running mirror can be paused", rec.Name, rec.Want, ErrState)
	}
	return nil
}

func toResume(rec *meta.MirrorRecord) error {
	switch rec.Want {
	case meta.WantPaused:
		rec.Want = meta.WantRunning
	case meta.WantRunning:
	default:
		return fmt.Errorf("mirror %s is %s: %w; only a paused or failed mirror can be resumed", rec.Name, rec.Want, ErrState)
	}
	return nil
}

// Would says in words what a verb would do now, or refuses as it would: a dry run. The
// verbs are start, pause, resume, delete, abandon, accept-gap and reopen; topics bound
// the last three. It changes nothing, and asks the source nothing.
func (m *Mirrors) Would(ctx context.Context, name, verb string, topics []string) ([]string, error) {
	image := m.o.Node.Image()
	if verb == "reopen" {
		return wouldReopen(image, topics)
	}
	e, ok := image.Mirror(name)
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrUnknownMirror, name)
	}
	for _, t := range topics {
		if !isMirrored(image, name, t) {
			return nil, fmt.Errorf("mirror %s does not mirror a topic %s: %w", name, t, ErrSpec)
		}
	}
	switch verb {
	case "start":
		return wouldTurn(image, e.Record, m.toStart, "be started: its source is reached and its topics are made")
	case "pause":
		return wouldTurn(image, e.Record, toPause, "stop copying; its topics stay read-only")
	case "resume":
		return wouldTurn(image, e.Record, toResume, "go on copying")
	case "delete":
		if _, err := control.DeleteMirror(image, name, m.o.Node.Me()); err != nil {
			return nil, deleteFault(name, err)
		}
		return []string{fmt.Sprintf("mirror %s would be forgotten; its topics stay", name)}, nil
	case "abandon":
		return wouldOnTopics(image, name, topics, "no start is under way", wouldAbandon)
	case "accept-gap":
		m.awaitGaps(ctx, part{Mirror: name, Topics: topics})
		return wouldOnTopics(m.o.Node.Image(), name, topics, "no partition stands at a gap", func(rec *meta.PartitionRecord) (string, bool) {
			_, err := core.AcceptGap(rec)
			return "would go on behind the gap, once; what is held here would go to the vault: " + rec.Mirror.Reason, err == nil
		})
	}
	return nil, fmt.Errorf("%w: no verb %q", ErrSpec, verb)
}

// wouldTurn plays a change of a mirror's record.
func wouldTurn(image *meta.Image, rec *meta.MirrorRecord, change func(*meta.MirrorRecord) error, what string) ([]string, error) {
	next := *rec
	if err := change(&next); err != nil {
		return nil, err
	}
	partitions, failed := 0, 0
	for p := range image.Partitions() {
		if p.Record != nil && p.Record.IsMirror() && p.Record.Mirror.Name == rec.Name {
			partitions++
			if p.Record.Mirror.State == meta.MirrorFailed {
				failed++
			}
		}
	}
	if next.Want != rec.Want {
		return []string{fmt.Sprintf("mirror %s, with %d partitions here, would %s", rec.Name, partitions, what)}, nil
	}
	words := fmt.Sprintf("mirror %s is %s already", rec.Name, rec.Want)
	if failed > 0 {
		words += fmt.Sprintf("; its %d failed partitions would be tried again at once", failed)
	}
	return []string{words}, nil
}

// wouldOnTopics says of each partition of a mirror what would become of it.
func wouldOnTopics(image *meta.Image, name string, topics []string, none string, what func(*meta.PartitionRecord) (string, bool)) ([]string, error) {
	var words []string
	p := part{Mirror: name, Topics: topics}
	for t := range image.TopicsByName() {
		for e := range image.PartitionsOf(t.ID) {
			if e.Record == nil || !p.isOf(t, e) {
				continue
			}
			if line, ok := what(e.Record); ok {
				words = append(words, fmt.Sprintf("%s %s", types.TopicPartition{Topic: t.Record.Name, Partition: e.ID.Number}, line))
			}
		}
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("mirror %s: %s: %w", name, none, ErrState)
	}
	return words, nil
}

func wouldAbandon(rec *meta.PartitionRecord) (string, bool) {
	if rec.Mirror.State == meta.MirrorStarting {
		return "would be writable again; nothing was cut", true
	}
	if core.Abandonable(rec) != nil {
		return "", false
	}
	return fmt.Sprintf("would be writable again, up to offset %d; what its first cut took would be read back from the vault", rec.Mirror.EndBefore), true
}

func wouldReopen(image *meta.Image, topics []string) ([]string, error) {
	var words []string
	for t := range image.TopicsByName() {
		if len(topics) > 0 && !slices.Contains(topics, t.Record.Name) {
			continue
		}
		for e := range image.PartitionsOf(t.ID) {
			if e.Record != nil && e.Record.Fence != nil {
				words = append(words, fmt.Sprintf("%s would take clients' writes again; start %s of cluster %s closed it",
					types.TopicPartition{Topic: t.Record.Name, Partition: e.ID.Number}, e.Record.Fence.StartID, e.Record.Fence.ClusterID))
			}
		}
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("no partition is closed for a switchover: %w", ErrState)
	}
	return words, nil
}
