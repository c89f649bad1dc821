package broker

import (
	"context"
	"fmt"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
)

// checkFeatures refuses to work in a cluster whose feature levels this program doesn't support.
func (b *Broker) checkFeatures(image *meta.Image) error {
	levels, _ := image.FinalizedFeatures()
	if why := b.opts.Features.Refuses(levels); why != "" {
		return fmt.Errorf("%w: %s", control.ErrFeatureLevel, why)
	}
	return nil
}

// Features are the levels that this program supports.
func (b *Broker) Features() meta.Features { return b.opts.Features }

// UpdateFeatures finalizes feature levels, all or none; with dryRun it only says
// whether it could. It returns once this node's image shows them.
func (b *Broker) UpdateFeatures(ctx context.Context, changes []control.FeatureChange, dryRun bool) error {
	return b.plan(ctx, func(i *meta.Image) ([]meta.Plan, error) {
		plan, ok, err := control.UpdateFeatures(i, changes, b.opts.Features, b.me())
		if err != nil || !ok || dryRun {
			return nil, err
		}
		return []meta.Plan{plan}, nil
	})
}
