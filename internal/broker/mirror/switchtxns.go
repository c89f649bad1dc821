package mirror

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/wire"
)

// Transactions at a switchover (docs/adr/0028). The source's fence keeps data out and
// lets the markers in that end what is open in a log; a log in which nothing is open has its
// final end. What its producers have not ended is aborted by its coordinators, once
// all partitions are closed. So no copy is promoted in which a transaction is open, and
// each is committed in all of them or in none.

// openTxn is a transaction that has no marker in a log yet.
type openTxn struct {
	Producer types.ProducerID `json:"producer"`
	First    types.Offset     `json:"first"`
}

// openMax bounds the open transactions that one partition tells of.
const openMax = 16

func openOf(l *log.Log) []openTxn {
	var list []openTxn
	for _, t := range l.OpenTransactions() {
		if list = append(list, openTxn{t.ProducerID, t.FirstOffset}); len(list) == openMax {
			break
		}
	}
	return list
}

func openWords(tp types.TopicPartition, list []openTxn) string {
	return fmt.Sprintf("%s has a transaction of producer %d open, from offset %d on", tp, list[0].Producer, list[0].First)
}

// settled is what a source's coordinators say of the transactions that touch the
// partitions that are closed for a switchover.
type settled struct {
	// Aborted are transactional ids whose open transaction is aborted by this question.
	Aborted []string `json:"aborted,omitempty"`
	// Left are those that aren't complete yet, with their states.
	Left []string `json:"left,omitempty"`
	// Silent are partitions of the state topic for which no coordinator spoke.
	Silent []types.TopicPartition `json:"silent,omitempty"`
}

// waits says what has to be waited for, "" if nothing.
func (s *settled) waits() string {
	switch {
	case len(s.Silent) > 0:
		return fmt.Sprintf("no coordinator speaks for the transactions of %s", s.Silent[0])
	case len(s.Left) > 0:
		return fmt.Sprintf("%d transactions aren't complete at the source: %s", len(s.Left), someOf(s.Left))
	}
	return ""
}

// someOf names at most five.
func someOf(ids []string) string {
	if len(ids) > 5 {
		return strings.Join(ids[:5], ", ") + " and others"
	}
	return strings.Join(ids, ", ")
}

// endTransactions has the source's coordinators abort what is open and touches the closed
// partitions, and waits until everything that they have decided is carried out: also
// in the groups' offsets, which are copied afterwards.
func (s *sides) endTransactions(ctx context.Context) error {
	client, err := s.r.source()
	if err != nil {
		return err
	}
	q := &asked{ClusterID: s.m.o.Node.ClusterID(), StartID: s.start, Attempt: s.attempt}
	for _, p := range s.list {
		q.add(p)
	}
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	for {
		var a settled
		raw, err := client.Verb(ctx, s.list[0].leader, askSettle, body, askPatience)
		if err == nil {
			err = json.Unmarshal(raw, &a)
		}
		waits := a.waits()
		if err != nil {
			waits = fmt.Sprintf("the source's coordinators can't be asked: %v", err)
		}
		s.aborted = append(s.aborted, a.Aborted...)
		if waits == "" {
			return nil
		}
		if !pause(ctx, switchLook) {
			return fmt.Errorf("transactions aren't ended within %s: %s", s.timeout, waits)
		}
		if err != nil {
			_ = s.find(ctx) // its leader may be another one by now; the next attempt tells
		}
	}
}

// openAsKnown says, for a dry run, what is open in the copies.
func (s *sides) openAsKnown() []string {
	_, open := s.ends()
	producers := map[types.ProducerID]bool{}
	for _, p := range s.list {
		for _, t := range open[p.tp] {
			producers[t.Producer] = true
		}
	}
	switch {
	case len(producers) == 0:
		return nil
	case s.tidemark:
		return []string{fmt.Sprintf("%d producers have a transaction open there, as far as it is mirrored: what they don't end before it is closed is aborted, whole.", len(producers))}
	}
	return []string{fmt.Sprintf("%d producers have a transaction open there, as far as it is mirrored: it is waited for until they, or its time-out, end it.", len(producers))}
}

// abortedWords says which transactions were taken from their producers.
func (s *sides) abortedWords() []string {
	slices.Sort(s.aborted)
	if s.aborted = slices.Compact(s.aborted); len(s.aborted) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d transactions that were open when the source was closed were aborted there, whole: %s.", len(s.aborted), someOf(s.aborted))}
}

// settleSource has the coordinators of this cluster, the source, end what touches
// the partitions. Only who holds their fence may ask.
func (m *Mirrors) settleSource(ctx context.Context, q *asked) ([]byte, error) {
	image := m.o.Node.Image()
	var tps []types.TopicPartition
	for _, t := range q.Topics {
		topic, ok := image.Topic(t.ID)
		for _, n := range t.Partitions {
			rec, _ := image.Partition(t.ID, n)
			if !ok || !q.holdsFence(rec) {
				return nil, wire.Errorf(wire.ErrPolicyViolation, "%s-%d is not closed for start %s of cluster %s", t.Name, n, q.StartID, q.ClusterID)
			}
			tps = append(tps, types.TopicPartition{Topic: topic.Record.Name, Partition: n})
		}
	}
	state, ok := image.TopicByName(transactions.StateTopic)
	if !ok {
		return json.Marshal(settled{})
	}
	// A broker that doesn't answer may coordinate nothing: what nobody spoke for is told.
	list, _ := m.everywhere(ctx, partSettle, part{Settle: tps}, askPatience)
	var all settled
	for n := range state.Record.Partitions {
		tp := types.TopicPartition{Topic: transactions.StateTopic, Partition: n}
		i := slices.IndexFunc(list, func(o outcome) bool { return o.TopicPartition == tp && o.Settled != nil })
		if i < 0 {
			all.Silent = append(all.Silent, tp)
			continue
		}
		all.Aborted = append(all.Aborted, list[i].Settled.Aborted...)
		all.Left = append(all.Left, list[i].Settled.Left...)
	}
	return json.Marshal(all)
}

// settleHere does so for the partitions of the state topic that this node coordinates.
func (m *Mirrors) settleHere(ctx context.Context, p part) []outcome {
	var list []outcome
	for _, w := range m.o.Node.EndWithin(ctx, p.Settle) {
		o := outcome{TopicPartition: types.TopicPartition{Topic: transactions.StateTopic, Partition: w.Partition}, Settled: &settled{}}
		for _, l := range w.Aborted {
			o.Settled.Aborted = append(o.Settled.Aborted, l.ID)
		}
		for _, l := range w.Left {
			o.Settled.Left = append(o.Settled.Left, l.ID+" ("+stateWords(l.State)+")")
		}
		list = append(list, o)
	}
	return list
}

func stateWords(s transaction.State) string {
	if s == transaction.Ongoing {
		return "open, about to be aborted"
	}
	return s.String()
}
