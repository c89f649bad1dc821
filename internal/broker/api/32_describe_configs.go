package api

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// DescribeConfigs (key 32): effective configs, and where each comes from.
//
// Behaviour
//   - Topics by name; brokers by this broker's id, or "" for the dynamic
//     defaults of all. Other kinds of resource are INVALID_REQUEST.
//   - Null names are all; names that don't exist are left out (Kafka parity).
//   - Sensitive values are null.
//
// Versions
//   - 1: sources and synonyms. 3: types and documentation (KIP-569). 4: flexible.
func (c *Call) describeConfigs(in *kmsg.DescribeConfigsRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrDescribeConfigsResponse()
	for _, r := range in.Resources {
		to := kmsg.NewDescribeConfigsResponseResource()
		to.ResourceType, to.ResourceName = r.ResourceType, r.ResourceName
		res, err := c.configResource(int8(r.ResourceType), r.ResourceName)
		var entries []ConfigEntry
		if err == nil {
			entries, err = c.Topics.DescribeConfigs(c.Ctx, res, r.ConfigNames)
		}
		if err != nil {
			to.ErrorCode, to.ErrorMessage = int16(c.failed(wire.KeyDescribeConfigs, err)), MessageOf(err)
		}
		for i := range entries {
			to.Configs = append(to.Configs, describedConfig(in, &entries[i]))
		}
		out.Resources = append(out.Resources, to)
	}
	return out, nil
}

// configResource checks that the resource is of a kind with configs, and is ours.
func (c *Call) configResource(kind int8, name string) (ConfigResource, error) {
	r := ConfigResource{Kind: ConfigResourceKind(kind), Name: name}
	switch r.Kind {
	case ConfigTopic:
		if _, ok := c.Image.TopicByName(name); !ok {
			if !validTopicName(name) {
				return r, wire.Errorf(wire.ErrInvalidTopic, "Topic name %q is invalid.", name)
			}
			return r, wire.ErrUnknownTopicOrPartition
		}
	case ConfigBroker:
		if name == "" {
			return r, nil
		}
		if id, err := strconv.ParseInt(name, 10, 32); err != nil || int32(id) != int32(c.NodeID) {
			return r, wire.Errorf(wire.ErrInvalidRequest, "Broker %q isn't this one: ask broker %s itself, or name none for the defaults of all (this is %d).", name, name, c.NodeID)
		}
	default:
		return r, wire.Errorf(wire.ErrInvalidRequest, "Resource type %d has no configs here.", kind)
	}
	return r, nil
}

func describedConfig(in *kmsg.DescribeConfigsRequest, e *ConfigEntry) kmsg.DescribeConfigsResponseResourceConfig {
	to := kmsg.NewDescribeConfigsResponseResourceConfig()
	to.Name, to.ReadOnly, to.IsSensitive = e.Name, e.ReadOnly, e.Sensitive
	to.Source, to.IsDefault = kmsg.ConfigSource(e.Source), e.Source == SourceDefault
	to.ConfigType = kmsg.ConfigType(e.Type)
	if !e.Sensitive {
		to.Value = e.Value
	}
	if in.IncludeDocumentation {
		to.Documentation = nullable(e.Documentation)
	}
	if !in.IncludeSynonyms {
		return to
	}
	for _, s := range e.Synonyms {
		syn := kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{Name: s.Name, Value: s.Value, Source: kmsg.ConfigSource(s.Source)}
		if e.Sensitive {
			syn.Value = nil
		}
		to.ConfigSynonyms = append(to.ConfigSynonyms, syn)
	}
	return to
}
