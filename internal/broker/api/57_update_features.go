package api

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/control"
	"tidemark/internal/wire"
)

// Kafka's FeatureUpdate.UpgradeType.
const (
	featureUpgrade         int8 = 1
	featureSafeDowngrade   int8 = 2
	featureUnsafeDowngrade int8 = 3
)

// UpdateFeatures (key 57): finalizes feature levels (KIP-584, KIP-778).
//
// Behaviour
//   - All or none. Every registered broker must support the level, and no broker
//     registers later that doesn't.
//   - tidemark.version is the level of the metadata's form, where Kafka has
//     metadata.version, whose levels stand for Kafka's own record forms.
//   - Level 0 turns a feature off, where that can be.
//   - Refusals are INVALID_UPDATE_VERSION with a sentence: for the first feature
//     that can't be, in every result before version 2.
//
// Versions
//   - 1: upgrade type, validate only. 2: no results, one error for all.
func (c *Call) updateFeatures(in *kmsg.UpdateFeaturesRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrUpdateFeaturesResponse()
	changes := make([]control.FeatureChange, len(in.FeatureUpdates))
	for i, u := range in.FeatureUpdates {
		changes[i] = control.FeatureChange{Name: u.Feature, Level: u.MaxVersionLevel}
		switch {
		case in.Version == 0:
			changes[i].Down = u.AllowDowngrade && u.MaxVersionLevel < c.Image.FeatureLevel(u.Feature)
		case u.UpgradeType == featureSafeDowngrade, u.UpgradeType == featureUnsafeDowngrade:
			changes[i].Down, changes[i].Unsafe = true, u.UpgradeType == featureUnsafeDowngrade
		case u.UpgradeType != featureUpgrade:
			err := wire.Errorf(wire.ErrInvalidUpdateVersion, "Feature %s: upgrade type %d is unknown.", u.Feature, u.UpgradeType)
			out.ErrorCode, out.ErrorMessage = int16(CodeOf(err)), MessageOf(err)
			return out, nil
		}
	}
	ctx, cancel := c.within(in.TimeoutMillis)
	defer cancel()
	err := c.tryFeatures(ctx, changes, in.ValidateOnly)
	if err == nil || in.Version >= 2 {
		out.ErrorCode, out.ErrorMessage = int16(CodeOf(err)), MessageOf(err)
	}
	for _, u := range in.FeatureUpdates {
		result := kmsg.NewUpdateFeaturesResponseResult()
		result.Feature, result.ErrorCode, result.ErrorMessage = u.Feature, int16(CodeOf(err)), MessageOf(err)
		out.Results = append(out.Results, result)
	}
	return out, nil
}

func (c *Call) tryFeatures(ctx context.Context, changes []control.FeatureChange, validateOnly bool) error {
	err := c.Operator.UpdateFeatures(ctx, changes, validateOnly)
	if err != nil {
		c.failed(wire.KeyUpdateFeatures, err)
	}
	return err
}

// features fills what ApiVersions tells of feature levels. A range that begins at
// 0 is left out before version 4, whose clients can't read it (KAFKA-17011).
func (c *Call) features(version int16, out *kmsg.ApiVersionsResponse) {
	out.FinalizedFeaturesEpoch = -1
	if c.Operator == nil {
		return
	}
	levels, revision := c.Image.FinalizedFeatures()
	for name, r := range c.Operator.Features() {
		if r.Min == 0 && version < 4 {
			continue
		}
		f := kmsg.NewApiVersionsResponseSupportedFeature()
		f.Name, f.MinVersion, f.MaxVersion = name, r.Min, r.Max
		out.SupportedFeatures = append(out.SupportedFeatures, f)
	}
	for name, level := range levels {
		f := kmsg.NewApiVersionsResponseFinalizedFeature()
		f.Name, f.MinVersionLevel, f.MaxVersionLevel = name, level, level
		out.FinalizedFeatures = append(out.FinalizedFeatures, f)
	}
	slices.SortFunc(out.SupportedFeatures, func(a, b kmsg.ApiVersionsResponseSupportedFeature) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(out.FinalizedFeatures, func(a, b kmsg.ApiVersionsResponseFinalizedFeature) int { return strings.Compare(a.Name, b.Name) })
	out.FinalizedFeaturesEpoch = int64(revision)
}
