package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// IncrementalAlterConfigs (key 44): change single configs (KIP-339).
//
// Behaviour
//   - Set, delete (back to the default), and append or subtract for lists. All
//     or nothing per resource; a resource or a config named twice is INVALID_REQUEST.
//
// Versions
//   - 0; 1: flexible.
func (c *Call) incrementalAlterConfigs(in *kmsg.IncrementalAlterConfigsRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrIncrementalAlterConfigsResponse()
	twice := repeated(in.Resources, func(r kmsg.IncrementalAlterConfigsRequestResource) ConfigResource {
		return ConfigResource{ConfigResourceKind(r.ResourceType), r.ResourceName}
	})
	for _, r := range in.Resources {
		changes := make([]ConfigChange, 0, len(r.Configs))
		for _, cfg := range r.Configs {
			changes = append(changes, ConfigChange{Name: cfg.Name, Op: ConfigOp(cfg.Op), Value: cfg.Value})
		}
		err := c.alter(alteration{int8(r.ResourceType), r.ResourceName, changes, false, in.ValidateOnly}, twice)
		to := kmsg.NewIncrementalAlterConfigsResponseResource()
		to.ResourceType, to.ResourceName = r.ResourceType, r.ResourceName
		if err != nil {
			to.ErrorCode, to.ErrorMessage = int16(c.failed(wire.KeyIncrementalAlterConfigs, err)), MessageOf(err)
		}
		out.Resources = append(out.Resources, to)
	}
	return out, nil
}
