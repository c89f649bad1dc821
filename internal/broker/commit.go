package broker

import (
	"context"
	"errors"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
)

// commitPatience bounds all attempts of one transaction.
const commitPatience = 20 * time.Second

// ErrRefused is matched when a commit found another state than its plan was made for.
var ErrRefused = metastore.ErrRefused

// Commit carries out a plan as one transaction and waits until this node's
// image shows it. After a refusal or an unknown outcome it waits until the image
// shows what there is now: whoever plans anew sees it (R8).
func (b *Broker) Commit(ctx context.Context, plan meta.Plan) (meta.Revision, error) {
	ctx, cancel := clock.WithTimeout(ctx, commitPatience)
	defer cancel()
	from := time.Now()
	rev, err := metastore.Commit(ctx, b.store, plan)
	b.metrics.Meta.TxnSeconds.Observe(time.Since(from).Seconds())
	switch {
	case err == nil:
		return rev, b.view.await(ctx, rev)
	case errors.Is(err, metastore.ErrRefused):
		b.metrics.Meta.Refused.Inc()
	case errors.Is(err, metastore.ErrUnknownOutcome):
		b.metrics.Meta.Unknown.Inc()
	default:
		return 0, err
	}
	_, now, readErr := b.store.Get(ctx, b.Image().Keys().Cluster())
	if readErr != nil {
		return 0, errors.Join(err, readErr)
	}
	return 0, errors.Join(err, b.view.await(ctx, now))
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
