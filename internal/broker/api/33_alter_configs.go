package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// AlterConfigs (key 33): replace all configs of a resource.
//
// Behaviour
//   - What isn't named goes back to its default: the older way, kept for older
//     clients. All or nothing per resource; a resource named twice is INVALID_REQUEST.
//   - Unknown names and bad values are INVALID_CONFIG with a sentence.
//
// Versions
//   - 0-1 alike; 2: flexible.
func (c *Call) alterConfigs(in *kmsg.AlterConfigsRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrAlterConfigsResponse()
	twice := repeated(in.Resources, func(r kmsg.AlterConfigsRequestResource) ConfigResource {
		return ConfigResource{ConfigResourceKind(r.ResourceType), r.ResourceName}
	})
	for _, r := range in.Resources {
		changes := make([]ConfigChange, 0, len(r.Configs))
		for _, cfg := range r.Configs {
			op := ConfigSet
			if cfg.Value == nil {
				op = ConfigDelete
			}
			changes = append(changes, ConfigChange{Name: cfg.Name, Op: op, Value: cfg.Value})
		}
		err := c.alter(alteration{int8(r.ResourceType), r.ResourceName, changes, true, in.ValidateOnly}, twice)
		to := kmsg.NewAlterConfigsResponseResource()
		to.ResourceType, to.ResourceName = r.ResourceType, r.ResourceName
		if err != nil {
			to.ErrorCode, to.ErrorMessage = int16(c.failed(wire.KeyAlterConfigs, err)), MessageOf(err)
		}
		out.Resources = append(out.Resources, to)
	}
	return out, nil
}

// alteration is what both ways of altering ask for.
type alteration struct {
	kind         int8
	name         string
	changes      []ConfigChange
	replace      bool
	validateOnly bool
}

func (c *Call) alter(a alteration, twice map[ConfigResource]bool) error {
	if twice[ConfigResource{ConfigResourceKind(a.kind), a.name}] {
		return wire.Errorf(wire.ErrInvalidRequest, "The resource is named more than once.")
	}
	r, err := c.configResource(a.kind, a.name)
	if err != nil {
		return err
	}
	names := repeated(a.changes, func(ch ConfigChange) string { return ch.Name })
	for _, ch := range a.changes {
		switch {
		case names[ch.Name]:
			return wire.Errorf(wire.ErrInvalidRequest, "Config %s is named more than once.", ch.Name)
		case ch.Op < ConfigSet || ch.Op > ConfigSubtract:
			return wire.Errorf(wire.ErrInvalidRequest, "Config %s: unknown operation %d.", ch.Name, ch.Op)
		case ch.Op != ConfigDelete && ch.Value == nil:
			return wire.Errorf(wire.ErrInvalidRequest, "Config %s: a null value can't be set.", ch.Name)
		}
	}
	return c.Topics.AlterConfigs(c.Ctx, r, a.changes, a.replace, a.validateOnly)
}
