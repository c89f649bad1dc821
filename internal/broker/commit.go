package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
)

// commitAttempt bounds one attempt of a transaction; commitPatience all of them.
const (
	commitAttempt  = 5 * time.Second
	commitPatience = 20 * time.Second
)

// ErrRefused is matched when a commit found another state than its plan was made for.
var ErrRefused = metastore.ErrRefused

// Commit carries out a plan as one transaction and waits until this node's
// image shows it, or, when it was refused, what stands in its way (R8). A plan is
// made so that it can be tried again after an unknown outcome (meta.Plan).
func (b *Broker) Commit(ctx context.Context, plan meta.Plan) (meta.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, commitPatience)
	defer cancel()
	from := time.Now()
	defer func() { b.metrics.Meta.TxnMs.Observe(float64(time.Since(from).Microseconds()) / 1000) }()
	for unknown := false; ; {
		attempt, end := context.WithTimeout(ctx, commitAttempt)
		rev, err := metastore.Commit(attempt, b.store, plan)
		end()
		switch {
		case err == nil:
			return rev, b.view.await(ctx, rev)
		case errors.Is(err, metastore.ErrRefused):
			b.metrics.Meta.Refused.Inc()
			if unknown {
				return b.lookUp(ctx, plan, err)
			}
			return 0, errors.Join(err, b.view.await(ctx, rev))
		case !errors.Is(err, metastore.ErrUnknownOutcome) && !errors.Is(err, metastore.ErrUnavailable):
			return 0, err
		}
		unknown = unknown || errors.Is(err, metastore.ErrUnknownOutcome)
		b.metrics.Meta.Unknown.Inc()
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// lookUp decides a refusal that follows an unknown outcome: if the first key
// that the plan puts holds what it put, the earlier attempt had succeeded.
func (b *Broker) lookUp(ctx context.Context, plan meta.Plan, refused error) (meta.Revision, error) {
	for _, op := range plan.Then {
		kv, rev, err := b.store.Get(ctx, op.Key)
		if err != nil {
			return 0, err
		}
		if err := b.view.await(ctx, rev); err != nil {
			return 0, err
		}
		switch {
		case op.Kind == meta.OpPut && string(kv.Value) == string(op.Value):
			return kv.ModRevision, nil
		case op.Kind == meta.OpDelete && kv.ModRevision == 0:
			return rev, nil
		}
		return 0, refused
	}
	return 0, refused
}

// me is this node as the writer of plans.
func (b *Broker) me() control.Me {
	e, ok := b.BrokerEpoch()
	if !ok {
		e = types.NoBrokerEpoch
	}
	return control.Me{ID: b.cfg.NodeID, Epoch: e}
}

// limits bound the transactions of this node's store.
func (b *Broker) limits() control.Limits { return control.Limits{Ops: b.store.MaxTxnOps()} }

// commitTries is how often a plan is made anew after a refusal.
const commitTries = 10

// plan makes a plan from the newest image and commits it; after a refusal it is
// made anew from what the image then shows.
func (b *Broker) plan(ctx context.Context, make func(*meta.Image) ([]meta.Plan, error)) error {
	for try := 0; ; try++ {
		plans, err := make(b.Image())
		if err != nil {
			return err
		}
		err = b.commitAll(ctx, plans)
		if err == nil || !errors.Is(err, ErrRefused) || try == commitTries {
			return err
		}
	}
}

// commitAll carries out plans in order.
func (b *Broker) commitAll(ctx context.Context, plans []meta.Plan) error {
	for _, p := range plans {
		if _, err := b.Commit(ctx, p); err != nil {
			return err
		}
	}
	return nil
}
