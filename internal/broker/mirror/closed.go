package mirror

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Closed are the partitions of this cluster that one start of another cluster's mirror
// has closed to clients' writes, for a switchover.
type Closed struct {
	// ClusterID and StartID are the mirror's.
	ClusterID string `json:"clusterId"`
	StartID   string `json:"startId"`
	// Since is when the first of them was closed.
	Since types.Millis `json:"since"`
	// Partitions are their names, TOPIC-PARTITION.
	Partitions []string `json:"partitions"`
	// Message says so, and with which command they are written again.
	Message string `json:"message"`

	topics []string
}

const (
	// topicsShown bounds the topics that a command in a sentence names.
	topicsShown = 10
	// closedBriefly is for how long a switchover may be expected to hold a fence by itself.
	closedBriefly = types.Millis(60_000)
)

// ClosedForSwitchover lists what of this cluster is closed for switchovers, longest first. A
// fence that is not taken back, and after which nothing was promoted, keeps clients out until somebody sees it.
func ClosedForSwitchover(image *meta.Image, now types.Millis) []Closed {
	list := []Closed{}
	for t := range image.TopicsByName() {
		for p := range image.PartitionsOf(t.ID) {
			if p.Record == nil || p.Record.Fence == nil {
				continue
			}
			f := p.Record.Fence
			i := slices.IndexFunc(list, func(c Closed) bool { return c.ClusterID == f.ClusterID && c.StartID == f.StartID })
			if i < 0 {
				i, list = len(list), append(list, Closed{ClusterID: f.ClusterID, StartID: f.StartID, Since: f.At, Partitions: []string{}})
			}
			c := &list[i]
			c.Since = min(c.Since, f.At)
			c.Partitions = append(c.Partitions, types.TopicPartition{Topic: t.Record.Name, Partition: p.ID.Number}.String())
			if n := len(c.topics); n == 0 || c.topics[n-1] != t.Record.Name {
				c.topics = append(c.topics, t.Record.Name)
			}
		}
	}
	slices.SortFunc(list, func(a, b Closed) int { return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.StartID, b.StartID)) })
	for i := range list {
		list[i].Message = list[i].words(now)
	}
	return list
}

func (c *Closed) words(now types.Millis) string {
	age := max(now-c.Since, 0)
	head := fmt.Sprintf("%d partitions are closed to clients' writes since %s (for %s), for a switchover to cluster %s: %s", len(c.Partitions), utc(c.Since), spanText(int64(age)), c.ClusterID, someOf(c.Partitions))
	if age < closedBriefly {
		return head
	}
	return fmt.Sprintf("%s. Where that cluster has taken over, a mirror of it here takes these copies' place: `tidemark mirror failback NAME%s`. Where it has not, `%s` lets clients write here again", head, topicFlags(c.topics), reopenCommand(c.topics))
}

// reopenCommand is what an operator types at a source to open topics again.
func reopenCommand(topics []string) string { return "tidemark mirror reopen" + topicFlags(topics) }

// topicFlags bound a command to topics; where they are many it says so.
func topicFlags(topics []string) string {
	if len(topics) > topicsShown {
		return " --topic T …"
	}
	var flags strings.Builder
	for _, t := range topics {
		flags.WriteString(" --topic " + t)
	}
	return flags.String()
}

// closedWords is the reason of a mirror's partition that a switchover to another
// cluster has closed since its promotion here.
func closedWords(topic string, f *meta.Fence) string {
	return fmt.Sprintf("CLOSED_FOR_SWITCHOVER: clients' writes are kept out since %s, for a switchover to cluster %s; `%s` lets them write here again, where that came to nothing", utc(f.At), f.ClusterID, reopenCommand([]string{topic}))
}

// promotedSince lists what of a mirror's start was failed over here after a time: what
// a switchover that began then has closed of it at the source stays so.
func (m *Mirrors) promotedSince(name, start string, at types.Millis) (partitions, topics []string) {
	image := m.o.Node.Image()
	for t := range image.TopicsByName() {
		for p := range image.PartitionsOf(t.ID) {
			if p.Record == nil || !p.Record.Writable || p.Record.Mirror == nil || p.Record.Mirror.Name != name {
				continue
			}
			if n := len(p.Record.Promotions); n == 0 || p.Record.Promotions[n-1].StartID != start || p.Record.Promotions[n-1].At < at {
				continue
			}
			partitions = append(partitions, types.TopicPartition{Topic: t.Record.Name, Partition: p.ID.Number}.String())
			if n := len(topics); n == 0 || topics[n-1] != t.Record.Name {
				topics = append(topics, t.Record.Name)
			}
		}
	}
	return partitions, topics
}

// stayClosedWords says what of a switchover that went back stays closed at the source;
// empty if nothing does.
func (m *Mirrors) stayClosedWords(name, start string, at types.Millis) string {
	partitions, topics := m.promotedSince(name, start, at)
	if len(partitions) == 0 {
		return ""
	}
	return fmt.Sprintf("; %d partitions that were failed over here meanwhile stay closed there as far as they were (%s): at the source a failback takes their place, or `%s` opens them beside the copies here", len(partitions), someOf(partitions), reopenCommand(topics))
}

// tellFences tells which partitions led here were closed to clients' writes, or opened
// again, and by whom.
func (m *Mirrors) tellFences(list []fenced, by string) {
	tell := func(kind, words string, changed func(fenced) bool) {
		var names []string
		for _, f := range list {
			if changed(f) {
				names = append(names, f.TopicPartition.String())
			}
		}
		if len(names) > 0 {
			m.events.add(m.log, Event{At: m.o.Node.Now(), Kind: kind, Partition: -1, From: types.NoOffset, To: types.NoOffset, Message: fmt.Sprintf("%d partitions %s (%s): %s", len(names), words, by, someOf(names))})
		}
	}
	tell(ClosedToWrites, "were closed to clients' writes for a switchover", func(f fenced) bool { return f.closed })
	tell(OpenedToWrites, "take clients' writes again", func(f fenced) bool { return f.Opened })
}
