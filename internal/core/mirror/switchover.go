package mirror

import (
	"fmt"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// A switchover that fails, or whose node dies, takes its fences at the source back
// (docs/adr/0032). Two clusters can't decide together, so one place decides: the mirror's
// record holds the newest attempt, and either the order to promote is committed there, or
// the attempt is given up there, and never both. Only then the source is asked to open, and
// it compares: a take-back opens no fence of a later attempt, and no fence of an attempt that
// was taken back comes afterwards.
//
//	working ──order──> ordered             one transaction with want=stopped
//	   │
//	   └─give up──> returning ──> over     the fences are taken back in between

// Holder is a broker in one of its registrations.
type Holder struct {
	Broker types.BrokerID
	Epoch  types.BrokerEpoch
}

func holderOf(s *meta.Switchover) Holder { return Holder{s.Broker, s.BrokerEpoch} }

// BeginSwitchover makes the mirror's record of a switchover that a broker begins. One
// that is under way is over with it: it can't be ordered any more, and the new one's fences
// take the place of its. restore is the one that the metadata came from, now the wall clock's.
func BeginSwitchover(rec *meta.MirrorRecord, by Holder, restore string, now types.Millis) (meta.MirrorRecord, error) {
	if rec.Want != meta.WantRunning {
		return meta.MirrorRecord{}, &Refusal{NotMirror, fmt.Sprintf("the mirror is to be %s", rec.Want)}
	}
	a := meta.Attempt{Restore: restore, Number: 1}
	if s := rec.Switch; s != nil && s.Attempt.Restore == restore {
		a.Number = s.Attempt.Number + 1
	}
	out := *rec
	out.Switch = &meta.Switchover{Attempt: a, StartID: rec.StartID, State: meta.SwitchWorking, Broker: by.Broker, BrokerEpoch: by.Epoch, At: now}
	return out, nil
}

// OrderSwitchover makes the record of the transaction that decides for the promotion:
// the attempt is the newest, nobody gave it up, and its broker is still in the registration
// in which it began. A mirror that an operator failed over meanwhile needs no order.
func OrderSwitchover(rec *meta.MirrorRecord, a meta.Attempt, by Holder) (meta.MirrorRecord, error) {
	s := rec.Switch
	switch {
	case s == nil || s.Attempt != a || s.StartID != rec.StartID:
		return meta.MirrorRecord{}, &Refusal{StaleRequest, "another switchover of the mirror has begun, or it was started anew, since this one began"}
	case s.State == meta.SwitchReturning || s.State == meta.SwitchOver:
		return meta.MirrorRecord{}, &Refusal{StaleRequest, fmt.Sprintf("broker %d has given this switchover up", s.Broker)}
	case rec.Want == meta.WantStopped:
		return *rec, nil
	case holderOf(s) != by:
		return meta.MirrorRecord{}, &Refusal{StaleRequest, fmt.Sprintf("broker %d has lost the registration in which the switchover began", s.Broker)}
	}
	out := *rec
	out.Want, out.Cut = meta.WantStopped, nil
	out.Switch = withState(s, meta.SwitchOrdered, by)
	// Invariant I-263: a switchover is ordered to promote only while its attempt is the newest and under way, by the broker that began it, in the same registration.
	assert.That(*rec.Switch == meta.Switchover{Attempt: a, StartID: rec.StartID, State: meta.SwitchWorking, Broker: by.Broker, BrokerEpoch: by.Epoch, At: s.At},
		"I-263: attempt %d of mirror %s is ordered by broker %d, epoch %d, while %+v", a.Number, rec.Name, by.Broker, by.Epoch, *s)
	return out, nil
}

// GiveUpSwitchover makes the record of the transaction that decides against the
// promotion: from then on broker by may take the fences back. alive reports whether a
// broker, in a registration, works at a switchover or its way back; nobody is asked for by
// itself. It is refused where nothing is to be taken back, or another one does that: also of a mirror
// that was failed over or started anew, and of metadata that came from a backup, which may
// lack the order.
func GiveUpSwitchover(rec *meta.MirrorRecord, by Holder, restore string, alive func(Holder) bool) (meta.MirrorRecord, error) {
	s := rec.Switch
	switch {
	case s == nil || s.State == meta.SwitchOver:
		return meta.MirrorRecord{}, &Refusal{NothingToAbandon, "no switchover of the mirror is under way"}
	case s.State == meta.SwitchOrdered || rec.Want == meta.WantStopped || s.StartID != rec.StartID:
		return meta.MirrorRecord{}, &Refusal{TooLate, "the mirror was failed over since: what is closed at its source stays closed"}
	case s.Attempt.Restore != restore:
		return meta.MirrorRecord{}, &Refusal{TooLate, "the metadata came from a backup since, which may lack a promotion: what is closed at the source is an operator's to open (tidemark mirror reopen there)"}
	case holderOf(s) != by && alive(holderOf(s)):
		return meta.MirrorRecord{}, &Refusal{TooLate, fmt.Sprintf("broker %d is at work at it", s.Broker)}
	}
	out := *rec
	out.Switch = withState(s, meta.SwitchReturning, by)
	return out, nil
}

// IsReturnDue reports whether broker by is to give a switchover up, or to go on with its way
// back, because nobody else does. atWork: by works at it already.
func IsReturnDue(rec *meta.MirrorRecord, by Holder, restore string, alive func(Holder) bool, atWork bool) bool {
	if rec.Switch != nil && holderOf(rec.Switch) == by && atWork {
		return false
	}
	_, err := GiveUpSwitchover(rec, by, restore, alive)
	return err == nil
}

// MayTakeBack reports whether a record, as it was committed, lets broker by take the
// fences of an attempt back.
func MayTakeBack(rec *meta.MirrorRecord, a meta.Attempt, by Holder) bool {
	s := rec.Switch
	return s != nil && s.Attempt == a && s.State == meta.SwitchReturning && holderOf(s) == by
}

// EndReturn makes the record of a switchover whose fences are taken back.
func EndReturn(rec *meta.MirrorRecord, a meta.Attempt, by Holder) (meta.MirrorRecord, error) {
	if !MayTakeBack(rec, a, by) {
		return meta.MirrorRecord{}, &Refusal{StaleRequest, "another broker, or a later switchover, has to do with it by now"}
	}
	out := *rec
	out.Switch = withState(rec.Switch, meta.SwitchOver, by)
	return out, nil
}

func withState(s *meta.Switchover, state string, by Holder) *meta.Switchover {
	out := *s
	out.State, out.Broker, out.BrokerEpoch = state, by.Broker, by.Epoch
	return &out
}

// CloseForSwitchover fences the writers of a partition that another cluster is
// about to take over (DESIGN §6.4): read-only in a new leader epoch, the list unchanged. Closed
// already by the same attempt of the same mirror, it stays as it is; a later attempt's
// fence takes the place of an earlier one's, in a leader epoch of its own. A fence
// that comes late, of an attempt that is over, is refused.
func CloseForSwitchover(rec *meta.PartitionRecord, f meta.Fence) (meta.PartitionRecord, error) {
	old := rec.Fence
	switch {
	case old != nil && !old.IsOfStart(f):
		return meta.PartitionRecord{}, &Refusal{AlreadyFenced, fmt.Sprintf("it is closed for a switchover to cluster %s already", old.ClusterID)}
	case old != nil && old.Attempt == f.Attempt:
		return *rec, nil
	case old != nil && !f.Attempt.After(old.Attempt):
		return meta.PartitionRecord{}, &Refusal{StaleRequest, "it is closed for another switchover of the same mirror, which began later, or whose metadata came from a backup: tidemark mirror reopen here opens it"}
	case old == nil && !rec.Writable:
		return meta.PartitionRecord{}, &Refusal{SourceIsMirror, "it is a mirror itself: switch over from where it is written"}
	case old == nil && isTakenBack(rec, f):
		return meta.PartitionRecord{}, &Refusal{StaleRequest, "this switchover was given up, and its fence taken back"}
	}
	out := rec.Clone()
	out.Writable, out.Fence = false, &f
	out.LeaderEpoch++
	checkChange(rec, &out)
	return out, nil
}

// isTakenBack reports whether a mirror's side has taken the fence back already: then it
// comes late.
func isTakenBack(rec *meta.PartitionRecord, f meta.Fence) bool {
	r := rec.Returned
	return r != nil && r.IsOfStart(f) && r.Attempt.Restore == f.Attempt.Restore && !f.Attempt.After(r.Attempt)
}

// TakeBack takes back the fence of an attempt that was given up, or of one before it:
// writable again, in a new leader epoch. It remembers that, so that a fence which is still on
// its way finds the attempt over, also where none has come yet. What is no attempt's, of
// a later one or of another start stays closed. f names mirror and attempt, and when that is.
func TakeBack(rec *meta.PartitionRecord, f meta.Fence) (meta.PartitionRecord, error) {
	old := rec.Fence
	switch {
	case f.Attempt.IsZero() || old != nil && old.Attempt.IsZero():
		return meta.PartitionRecord{}, &Refusal{FenceUnnamed, "the cluster's level, or the program that closed it, knows no attempts: tidemark mirror reopen here opens it"}
	case old == nil && (!rec.Writable || isTakenBack(rec, f)):
		return *rec, nil // a mirror by now, or asked again
	case old != nil && !old.IsOfStart(f):
		return meta.PartitionRecord{}, &Refusal{StaleRequest, fmt.Sprintf("it is closed for start %s of cluster %s", old.StartID, old.ClusterID)}
	case old != nil && old.Attempt != f.Attempt && !f.Attempt.After(old.Attempt):
		return meta.PartitionRecord{}, &Refusal{StaleRequest, "it is closed for a later switchover of the same mirror"}
	}
	out := rec.Clone()
	out.Fence, out.Returned = nil, &f
	if old != nil {
		out.Writable = true
		out.LeaderEpoch++
		// Invariant I-264: a take-back opens no fence of a later attempt, of another start, or of none.
		assert.That(old.IsOfStart(f) && !old.Attempt.IsZero() && !old.Attempt.After(f.Attempt), "I-264: attempt %+v takes back the fence %+v", f.Attempt, *old)
	}
	checkChange(rec, &out)
	return out, nil
}

// Reopen takes a fence back that names no attempt, by the word of the start that set it,
// or any fence by an operator's here (startID empty), who needs no other's. A partition
// that is not fenced stays as it is.
func Reopen(rec *meta.PartitionRecord, startID string) (meta.PartitionRecord, error) {
	switch {
	case rec.Fence == nil:
		return *rec, nil
	case startID != "" && startID != rec.Fence.StartID:
		return meta.PartitionRecord{}, &Refusal{StaleRequest, fmt.Sprintf("it is closed for start %s, not %s", rec.Fence.StartID, startID)}
	case startID != "" && !rec.Fence.Attempt.IsZero():
		return meta.PartitionRecord{}, &Refusal{StaleRequest, "it is closed for a later switchover of the same mirror"}
	}
	out := rec.Clone()
	out.Writable, out.Fence = true, nil
	out.LeaderEpoch++
	checkChange(rec, &out)
	return out, nil
}
