//go:build chaos && linux

package chaosmirror_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/compare"
	"tidemark/internal/core/types"
	"tidemark/internal/history"
)

// book is the test's own list of what was written, seen and cut.
type book struct {
	mu       sync.Mutex // guards the following
	judge    *history.Mirrored
	clock    int64
	outcomes map[string]map[string]int // of writes, by cluster
	errs     map[string]int            // what writers gave up with, by cluster
	ends     map[place]types.Offset    // of the last observations
}

// place is one cluster's partition.
type place struct {
	cluster string
	tp      types.TopicPartition
}

func newBook(clusters []*cluster) *book {
	b := &book{outcomes: map[string]map[string]int{}, errs: map[string]int{}, ends: map[place]types.Offset{}}
	copies := map[string]int{}
	for _, c := range clusters {
		copies[c.name] = min(2, len(c.nodes))
	}
	b.judge = history.NewMirrored(copies)
	return b
}

// idOf is what identifies a value: all but its padding.
func idOf(value []byte) string {
	s := string(value)
	if i := strings.LastIndexByte(s, '-'); i >= 0 {
		return s[:i]
	}
	return s
}

func (b *book) writing(cluster, timeline string, tp types.TopicPartition, value string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(cluster, "sent")
	return b.judge.Writing(history.Write{Cluster: cluster, Timeline: timeline, Partition: tp, Value: idOf([]byte(value))})
}

func (b *book) count(cluster, outcome string) {
	if b.outcomes[cluster] == nil {
		b.outcomes[cluster] = map[string]int{}
	}
	b.outcomes[cluster][outcome]++
}

func (b *book) acked(cluster string, write int, offset int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clock++
	b.count(cluster, "acknowledged")
	b.judge.Acked(write, types.Offset(offset), b.clock, types.Millis(time.Now().UnixMilli()))
}

func (b *book) failed(cluster string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errs[cluster+": "+err.Error()]++
}

func (b *book) tick() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clock++
	return b.clock
}

// ackedOn counts acknowledged writes of a cluster.
func (b *book) ackedOn(cluster string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.outcomes[cluster]["acknowledged"]
}

// view reads one partition of a cluster from an offset on, with the lineage that
// it has before and after the reading. An error says that it isn't to be had now.
func (b *book) view(ctx context.Context, c *cluster, tp types.TopicPartition, from types.Offset) (history.View, error) {
	v := history.View{Cluster: c.name, Partition: tp, Began: b.tick()}
	var err error
	if v.Lineage, err = c.lineageOf(ctx, tp); err != nil {
		return v, err
	}
	var scratch batch.Scratch
	v.From, v.End, err = compare.Read(ctx, c.side, tp, from, func(raw []byte) error {
		one, err := history.NewBatch(raw, &scratch, idOf)
		v.Batches = append(v.Batches, one)
		return err
	})
	if err != nil {
		return v, err
	}
	after, err := c.lineageOf(ctx, tp)
	if err != nil {
		return v, err
	}
	v.At = types.Millis(time.Now().UnixMilli())
	if !slices.Equal(after, v.Lineage) {
		return v, fmt.Errorf("%s: the timelines of %s changed while it was read", c.name, tp)
	}
	if n := len(v.Batches); n > 0 && v.Batches[0].Base < v.From {
		v.From = v.Batches[0].Base // the batch that holds the offset is read whole
	}
	return v, nil
}

// settled is view once everything that the cluster acknowledged before is below
// the mark: after an election the mark comes up again only as followers fetch.
func (b *book) settled(ctx context.Context, c *cluster, tp types.TopicPartition, from types.Offset) (history.View, error) {
	v, err := b.view(ctx, c, tp, from)
	if err != nil {
		return v, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if end := b.judge.OwedEnd(c.name, tp, v.Lineage, v.Began); v.End < end {
		return v, fmt.Errorf("%s: %s is shown up to %d; %d was acknowledged or shown before", c.name, tp, v.End, end-1)
	}
	return v, nil
}

// observe has the judge look at a view, and gives what is wrong.
func (b *book) observe(v history.View) []history.Finding {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ends[place{v.Cluster, v.Partition}] = v.End
	return b.judge.Observe(v)
}

// effective is the judge's.
func (b *book) effective(tp types.TopicPartition, l history.Lineage) history.Lineage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.judge.Effective(tp, l)
}

// seenEnd is where a partition of a cluster ended when it was observed last.
func (b *book) seenEnd(cluster string, tp types.TopicPartition) types.Offset {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ends[place{cluster, tp}]
}

func (b *book) mustCut(c history.Cut) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.judge.MustCut(c)
}

// clients says what writers met.
func (b *book) clients() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var s strings.Builder
	for _, c := range slices.Sorted(maps.Keys(b.outcomes)) {
		fmt.Fprintf(&s, "\n  %7d records sent to %s, %d acknowledged", b.outcomes[c]["sent"], c, b.outcomes[c]["acknowledged"])
	}
	for _, e := range slices.Sorted(maps.Keys(b.errs)) {
		fmt.Fprintf(&s, "\n  %7d × given up by a writer of %s", b.errs[e], e)
	}
	return s.String()
}
