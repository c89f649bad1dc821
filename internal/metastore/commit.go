package metastore

import (
	"context"
	"errors"
	"fmt"

	"tidemark/internal/core/meta"
)

// ErrRefused is matched when a compare of a plan no longer holds: somebody else wrote. Nothing was written.
var ErrRefused = errors.New("the metadata changed meanwhile")

// Commit carries out a plan as one transaction and gives the revision at which
// all of it holds.
func Commit(ctx context.Context, store Store, plan meta.Plan) (Revision, error) {
	res, err := store.Txn(ctx, Txn{If: plan.If, Then: plan.Then})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", plan.Why, err)
	}
	if !res.Succeeded {
		return res.Revision, fmt.Errorf("%s: %w", plan.Why, ErrRefused)
	}
	return res.Revision, nil
}
