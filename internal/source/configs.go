package source

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TopicConfigs is the configuration of one topic at the source.
type TopicConfigs struct {
	// Code is not 0 if the source refuses to say.
	Code Code
	// Set holds the configurations that are set on the topic itself; defaults of
	// the source's brokers are not in it.
	Set map[string]string
}

// sourceDynamicTopic is DescribeConfigs' source of a value that is set on the topic (KIP-226).
const sourceDynamicTopic = kmsg.ConfigSourceDynamicTopicConfig

// resourceTopic is DescribeConfigs' resource type of a topic.
const resourceTopic = kmsg.ConfigResourceTypeTopic

// TopicConfigs asks for what is set on the named topics.
func (c *Client) TopicConfigs(ctx context.Context, topics []string) (map[string]TopicConfigs, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range topics {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = resourceTopic, name
		req.Resources = append(req.Resources, r)
	}
	out := make(map[string]TopicConfigs, len(topics))
	err := c.anyBroker(ctx, func(cn *conn) error {
		kr, err := cn.ask(ctx, req)
		if err != nil {
			return err
		}
		resp := kr.(*kmsg.DescribeConfigsResponse)
		for _, r := range resp.Resources {
			tc := TopicConfigs{Code: Code(r.ErrorCode), Set: map[string]string{}}
			for _, e := range r.Configs {
				own := e.Source == sourceDynamicTopic || (resp.Version < 1 && !e.IsDefault)
				if own && e.Value != nil && !e.IsSensitive {
					tc.Set[e.Name] = *e.Value
				}
			}
			out[r.ResourceName] = tc
		}
		return nil
	})
	return out, err
}
