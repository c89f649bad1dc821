package metastore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
)

// ErrRefused is matched when a compare of a plan didn't hold: somebody else
// wrote. Nothing of the plan was written.
var ErrRefused = errors.New("the metadata changed meanwhile")

const (
	retryPauseMin = 10 * time.Millisecond
	retryPauseMax = time.Second
)

// Commit carries out a plan as one transaction, and repeats it after an
// unknown outcome for as long as ctx lasts. It gives the revision at which the
// plan happened, exactly once.
//
// That is safe because a plan's compares no longer hold once it has happened:
// whichever of several attempts arrives first is the only one that does
// anything, even if it arrives last. A repetition that is refused is resolved
// by looking: if a key holds what the plan puts there (which names its writer or is
// fresh), an earlier attempt did it. If somebody wrote over it since, nobody
// can tell, and the error matches ErrUnknownOutcome: the image shows (R8).
func Commit(ctx context.Context, store Store, plan meta.Plan) (Revision, error) {
	txn := Txn{If: plan.If, Then: plan.Then}
	unknown := false // an earlier attempt may have happened, or may yet
	pause := retryPauseMin
	for {
		res, err := store.Txn(ctx, txn)
		switch {
		case err == nil && res.Succeeded:
			return res.Revision, nil
		case err == nil && !unknown:
			return 0, fmt.Errorf("%s: %w", plan.Why, ErrRefused)
		case err == nil:
			revision, found, lookErr := happened(ctx, store, plan)
			if lookErr == nil && found {
				return revision, nil
			}
			if lookErr == nil {
				lookErr = errors.New("refused, and what is there now is not ours")
			}
			return 0, fmt.Errorf("%s: %w: %w", plan.Why, ErrUnknownOutcome, lookErr)
		case errors.Is(err, ErrUnknownOutcome):
			unknown = true
		case !unknown || !errors.Is(err, ErrUnavailable):
			return 0, failure(plan, err, unknown)
		}
		if waitErr := clock.Sleep(ctx, pause); waitErr != nil {
			return 0, failure(plan, err, unknown)
		}
		pause = min(2*pause, retryPauseMax)
	}
}

// failure names the plan, and says that its outcome is unknown if any attempt's was.
func failure(plan meta.Plan, err error, unknown bool) error {
	if unknown && !errors.Is(err, ErrUnknownOutcome) {
		err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return fmt.Errorf("%s: %w", plan.Why, err)
}

// happened looks whether a plan's effect is there, and since which revision. A plan puts
// all its keys at one revision: one of them that is as the plan found it, or was written
// before the one that holds what the plan puts there, says that this is somebody else's
// doing. Two writers may well put the same (an ISR without a broker that has gone).
func happened(ctx context.Context, store Store, plan meta.Plan) (Revision, bool, error) {
	var revision, at Revision // at: when a key was written that holds what the plan puts there
	oldest := Revision(math.MaxInt64)
	puts := false
	for _, op := range plan.Then {
		if op.Kind != meta.OpPut {
			continue
		}
		puts = true
		kv, _, err := store.Get(ctx, op.Key)
		switch {
		case err != nil:
			return 0, false, err
		case kv.ModRevision == 0:
			continue // deleted since, or never there: it says nothing
		case slices.ContainsFunc(plan.If, func(c Compare) bool {
			return c.Kind == meta.CompareModRevision && c.Key == op.Key && c.Revision == kv.ModRevision
		}):
			return 0, false, nil
		case bytes.Equal(kv.Value, op.Value) && (at == 0 || kv.ModRevision < at):
			at = kv.ModRevision
		}
		oldest = min(oldest, kv.ModRevision)
	}
	if puts {
		return at, at != 0 && at <= oldest, nil
	}
	// A plan that only deletes has happened if nothing is left to delete.
	for _, op := range plan.Then {
		kvs, rev, err := remaining(ctx, store, op)
		if err != nil || kvs > 0 {
			return 0, false, err
		}
		revision = max(revision, rev)
	}
	return revision, true, nil
}

func remaining(ctx context.Context, store Store, op Op) (int, Revision, error) {
	if op.Kind == meta.OpDeletePrefix {
		kvs, revision, err := store.Range(ctx, op.Key)
		return len(kvs), revision, err
	}
	kv, revision, err := store.Get(ctx, op.Key)
	if err != nil || kv.ModRevision == 0 {
		return 0, revision, err
	}
	return 1, revision, nil
}

// CommitAll carries out plans in order and stops at the first that fails. It
// gives the last revision and how many were done.
func CommitAll(ctx context.Context, store Store, plans []meta.Plan) (Revision, int, error) {
	var last Revision
	for i, plan := range plans {
		revision, err := Commit(ctx, store, plan)
		if err != nil {
			return last, i, err
		}
		last = revision
	}
	return last, len(plans), nil
}
