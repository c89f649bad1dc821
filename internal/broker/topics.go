package broker

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator"
	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/config"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// topics changes topics by metadata transactions (api.Topics). A change is done
// when this node's image shows it and its partitions have been told.
type topics struct{ b *Broker }

// Create implements api.Topics.
func (t *topics) Create(ctx context.Context, r api.CreateTopic) (api.CreatedTopic, error) {
	if err := control.ValidTopicName(r.Name); err != nil {
		return api.CreatedTopic{}, topicFault(err)
	}
	if strings.HasPrefix(r.Name, api.ViewPrefix) {
		return api.CreatedTopic{}, wire.Errorf(wire.ErrInvalidTopic, "Names that begin with %s are the vault's.", api.ViewPrefix)
	}
	r = t.withCoordinators(r)
	configs := make(map[string]string, len(r.Configs))
	for k, v := range r.Configs {
		if v != nil {
			configs[k] = *v
		}
	}
	if err := config.ValidateTopic(configs); err != nil {
		return api.CreatedTopic{}, wire.Errorf(wire.ErrInvalidConfig, "%s", plainText(err))
	}
	req, err := t.createRequest(r, configs)
	if err != nil {
		return api.CreatedTopic{}, err
	}
	made := api.CreatedTopic{Partitions: req.Partitions, ReplicationFactor: int16(req.ReplicationFactor), Configs: t.entries(configs, nil)}
	if r.ValidateOnly {
		_, err := control.CreateTopic(t.b.Image(), req, t.b.me(), t.b.limits())
		return made, topicFault(err)
	}
	err = t.b.plan(ctx, func(i *meta.Image) ([]meta.Plan, error) { return control.CreateTopic(i, req, t.b.me(), t.b.limits()) })
	if err != nil {
		return api.CreatedTopic{}, topicFault(err)
	}
	made.ID = req.ID
	t.awaitServed(ctx, req.ID)
	return made, nil
}

// withCoordinators completes a request for a coordinator's own topic with what its
// coordinator would ask for, wherever the request says nothing. A client that looks at such
// a topic before its first use has it made (auto.create.topics.enable); with one partition
// and a topic's usual retention it would lose committed offsets with their age.
func (t *topics) withCoordinators(r api.CreateTopic) api.CreateTopic {
	s := t.b.services.Load()
	if s == nil {
		return r
	}
	var own api.CreateTopic
	switch r.Name {
	case coordinator.OffsetsTopic:
		own = s.groups.TopicAsMade()
	case transactions.StateTopic:
		own = s.txns.TopicAsMade()
	default:
		return r
	}
	configs := maps.Clone(own.Configs)
	maps.Copy(configs, r.Configs)
	r.Configs = configs
	if len(r.Assignments) == 0 && r.Partitions == -1 {
		r.Partitions = own.Partitions
	}
	if len(r.Assignments) == 0 && r.ReplicationFactor == -1 {
		r.ReplicationFactor = own.ReplicationFactor
	}
	return r
}

func (t *topics) createRequest(r api.CreateTopic, configs map[string]string) (control.CreateTopicRequest, error) {
	effective := t.b.cfg.Topic(configs)
	req := control.CreateTopicRequest{
		Name: r.Name, ID: t.b.freshTopicID(), Partitions: r.Partitions, ReplicationFactor: int(r.ReplicationFactor),
		Configs: configs, MinISR: int(effective.MinInsyncReplicas), Internal: api.IsInternalTopic(r.Name), TimelineID: t.b.fresh.Fresh(),
	}
	if len(r.Assignments) > 0 {
		if r.Partitions != -1 || r.ReplicationFactor != -1 {
			return req, wire.Errorf(wire.ErrInvalidRequest, "A topic with replica assignments must not say partitions or replication factor.")
		}
		req.Assignment = make([][]types.BrokerID, len(r.Assignments))
		for n, replicas := range r.Assignments {
			if n < 0 || int(n) >= len(req.Assignment) {
				return req, wire.Errorf(wire.ErrInvalidReplicaAssignment, "Partitions must be assigned from 0 without a gap.")
			}
			req.Assignment[n] = replicas
		}
		req.Partitions = int32(len(req.Assignment))
		req.ReplicationFactor = len(req.Assignment[0])
		return req, nil
	}
	if req.Partitions == -1 {
		req.Partitions = t.b.cfg.NumPartitions
	}
	if req.ReplicationFactor == -1 {
		req.ReplicationFactor = int(t.b.cfg.DefaultReplicationFactor)
	}
	switch {
	case req.Partitions < 1:
		return req, wire.Errorf(wire.ErrInvalidPartitions, "Number of partitions must be at least 1, not %d.", r.Partitions)
	case req.Partitions > t.b.cfg.CreateTopicPolicyMaxPerReq:
		return req, wire.Errorf(wire.ErrPolicyViolation, "Number of partitions must be at most %d (create.topics.max.partitions.per.request).", t.b.cfg.CreateTopicPolicyMaxPerReq)
	case req.ReplicationFactor < 1:
		return req, wire.Errorf(wire.ErrInvalidReplicationFactor, "Replication factor must be at least 1, not %d.", r.ReplicationFactor)
	}
	return req, nil
}

// awaitServed waits until this node's partitions of a topic have taken the image
// that shows them, so that the client's next request finds them.
func (t *topics) awaitServed(ctx context.Context, id types.TopicID) {
	for e := range t.b.Image().PartitionsOf(id) {
		if p, ok := t.b.Partition(id, e.ID.Number); ok {
			_ = p.Do(ctx, func(*Owned) error { return nil }) // an error shows at the first request
		}
	}
}

// Delete implements api.Topics.
func (t *topics) Delete(ctx context.Context, id types.TopicID) error {
	return topicFault(t.b.plan(ctx, func(i *meta.Image) ([]meta.Plan, error) {
		topic, ok := i.Topic(id)
		if !ok {
			return nil, wire.ErrUnknownTopicID
		}
		if err := t.refuseMirrored(i, topic, "deleted"); err != nil {
			return nil, err
		}
		p, err := control.DeleteTopic(i, id, t.b.me())
		return []meta.Plan{p}, err
	}))
}

// refuseMirrored protects what a mirror writes.
func (t *topics) refuseMirrored(i *meta.Image, topic *meta.Topic, what string) error {
	for p := range i.PartitionsOf(topic.ID) {
		if p.Record != nil && p.Record.IsMirror() {
			return wire.Errorf(wire.ErrPolicyViolation, "Topic %s can't be %s: mirror %q copies it; fail the mirror over first.", topic.Record.Name, what, p.Record.Mirror.Name)
		}
	}
	return nil
}

// AddPartitions implements api.Topics.
func (t *topics) AddPartitions(ctx context.Context, r api.AddPartitions) error {
	var id types.TopicID
	build := func(i *meta.Image) ([]meta.Plan, error) {
		topic, ok := i.TopicByName(r.Topic)
		if !ok {
			return nil, wire.Errorf(wire.ErrUnknownTopicOrPartition, "Topic %s doesn't exist.", r.Topic)
		}
		if err := t.refuseMirrored(i, topic, "given partitions"); err != nil {
			return nil, err
		}
		if r.Count <= topic.Record.Partitions {
			return nil, wire.Errorf(wire.ErrInvalidPartitions, "Topic %s has %d partitions already; the new count %d must be higher.", r.Topic, topic.Record.Partitions, r.Count)
		}
		id = topic.ID
		return control.CreatePartitions(i, control.CreatePartitionsRequest{
			Topic: id, Count: r.Count, Assignment: r.Assignments, TimelineID: t.b.fresh.Fresh(),
			MinISR: int(t.b.cfg.Topic(topic.Record.Configs).MinInsyncReplicas),
		}, t.b.me(), t.b.limits())
	}
	if r.ValidateOnly {
		_, err := build(t.b.Image())
		return topicFault(err)
	}
	if err := t.b.plan(ctx, build); err != nil {
		return topicFault(err)
	}
	t.awaitServed(ctx, id)
	return nil
}

// plainText is an error's message without the sentinel in front.
func plainText(err error) string {
	return strings.ReplaceAll(err.Error(), config.ErrTopicConfig.Error()+": ", "")
}

// AlterConfigs implements api.Topics.
func (t *topics) AlterConfigs(ctx context.Context, r api.ConfigResource, changes []api.ConfigChange, replace, validateOnly bool) error {
	switch r.Kind {
	case api.ConfigTopic:
	case api.ConfigBroker:
		return t.alterBroker(ctx, r.Name, changes, replace, validateOnly)
	default:
		return wire.Errorf(wire.ErrInvalidRequest, "Configs of resource type %d are not served.", r.Kind)
	}
	build := func(i *meta.Image) ([]meta.Plan, error) {
		topic, ok := i.TopicByName(r.Name)
		if !ok {
			return nil, wire.Errorf(wire.ErrUnknownTopicOrPartition, "Topic %s doesn't exist.", r.Name)
		}
		if err := t.refuseMirrored(i, topic, "given configs"); err != nil {
			return nil, err
		}
		next, err := t.applyChanges(topic.Record.Configs, changes, replace)
		if err != nil {
			return nil, err
		}
		return control.AlterTopicConfigs(i, topic.ID, next, int(t.b.cfg.Topic(next).MinInsyncReplicas), t.b.me(), t.b.limits())
	}
	if validateOnly {
		_, err := build(t.b.Image())
		return topicFault(err)
	}
	return topicFault(t.b.plan(ctx, build))
}

// alterBroker changes the dynamic configs of this broker, or with no name those of all.
func (t *topics) alterBroker(ctx context.Context, name string, changes []api.ConfigChange, replace, validateOnly bool) error {
	id := types.NoBroker
	if name != "" {
		id = t.b.cfg.NodeID
	}
	build := func(i *meta.Image) ([]meta.Plan, error) {
		next := maps.Clone(brokerConfigs(i, id))
		if next == nil || replace {
			next = make(map[string]string)
		}
		for _, c := range changes {
			switch {
			case c.Op == api.ConfigDelete || c.Value == nil:
				delete(next, c.Name)
			case c.Op == api.ConfigSet:
				next[c.Name] = *c.Value
			default:
				return nil, wire.Errorf(wire.ErrInvalidConfig, "Config %s is not a list: nothing can be appended or subtracted.", c.Name)
			}
		}
		if err := config.ValidateDynamic(next); err != nil {
			return nil, wire.Errorf(wire.ErrInvalidConfig, "%s", strings.ReplaceAll(err.Error(), config.ErrDynamicConfig.Error()+": ", ""))
		}
		p, err := control.AlterBrokerConfigs(i, id, next, t.b.me())
		return []meta.Plan{p}, err
	}
	if validateOnly {
		_, err := build(t.b.Image())
		return topicFault(err)
	}
	return topicFault(t.b.plan(ctx, build))
}

// applyChanges gives a topic's configs after the changes, checked.
func (t *topics) applyChanges(now map[string]string, changes []api.ConfigChange, replace bool) (map[string]string, error) {
	next := maps.Clone(now)
	if next == nil || replace {
		next = make(map[string]string)
	}
	for _, c := range changes {
		if !config.IsTopicConfig(c.Name) {
			return nil, wire.Errorf(wire.ErrInvalidConfig, "%s", plainText(config.ValidateTopic(map[string]string{c.Name: ""})))
		}
		if c.Op != api.ConfigDelete && c.Value == nil {
			if replace {
				continue // AlterConfigs: null is the default
			}
			return nil, wire.Errorf(wire.ErrInvalidConfig, "Config %s needs a value.", c.Name)
		}
		if (c.Op == api.ConfigAppend || c.Op == api.ConfigSubtract) && !config.IsTopicList(c.Name) {
			return nil, wire.Errorf(wire.ErrInvalidConfig, "Config %s is not a list: nothing can be appended or subtracted.", c.Name)
		}
		switch c.Op {
		case api.ConfigSet:
			next[c.Name] = *c.Value
		case api.ConfigDelete:
			delete(next, c.Name)
		case api.ConfigAppend, api.ConfigSubtract:
			next[c.Name] = config.EditList(t.b.cfg.TopicText(next, c.Name), *c.Value, c.Op == api.ConfigAppend)
		default:
			return nil, wire.Errorf(wire.ErrInvalidRequest, "Unknown operation %d on config %s.", c.Op, c.Name)
		}
	}
	if err := config.ValidateTopic(next); err != nil {
		return nil, wire.Errorf(wire.ErrInvalidConfig, "%s", plainText(err))
	}
	return next, nil
}

// DescribeConfigs implements api.Topics.
func (t *topics) DescribeConfigs(_ context.Context, r api.ConfigResource, names []string) ([]api.ConfigEntry, error) {
	switch r.Kind {
	case api.ConfigTopic:
		topic, ok := t.b.Image().TopicByName(r.Name)
		if !ok {
			return nil, wire.Errorf(wire.ErrUnknownTopicOrPartition, "Topic %s doesn't exist.", r.Name)
		}
		return t.entries(topic.Record.Configs, names), nil
	case api.ConfigBroker:
		all := brokerConfigs(t.b.Image(), types.NoBroker)
		if r.Name == "" {
			return apiEntries(config.DescribeDynamic(nil, all), names), nil
		}
		if r.Name != fmt.Sprint(t.b.cfg.NodeID) {
			return nil, wire.Errorf(wire.ErrInvalidRequest, "Unexpected broker id, expected %d, but received %s.", t.b.cfg.NodeID, r.Name)
		}
		dynamic := config.DescribeDynamic(brokerConfigs(t.b.Image(), t.b.cfg.NodeID), all)
		return apiEntries(append(t.b.cfg.DescribeBroker(), dynamic...), names), nil
	default:
		return nil, wire.Errorf(wire.ErrInvalidRequest, "Configs of resource type %d are not served.", r.Kind)
	}
}

func (t *topics) entries(configs map[string]string, names []string) []api.ConfigEntry {
	return apiEntries(t.b.cfg.DescribeTopic(configs), names)
}

func apiEntries(entries []config.Entry, names []string) []api.ConfigEntry {
	var wanted map[string]bool
	if names != nil {
		wanted = make(map[string]bool, len(names))
		for _, n := range names {
			wanted[n] = true
		}
	}
	out := make([]api.ConfigEntry, 0, len(entries))
	for _, e := range entries {
		if wanted != nil && !wanted[e.Name] {
			continue
		}
		c := api.ConfigEntry{
			Name: e.Name, Source: api.ConfigSource(e.Source), Type: api.ConfigType(e.Kind), ReadOnly: e.ReadOnly, Sensitive: e.Sensitive, Documentation: e.Doc,
		}
		if !e.Sensitive {
			c.Value = &e.Value
		}
		for _, s := range e.Synonyms {
			c.Synonyms = append(c.Synonyms, api.ConfigSynonym{Name: s.Name, Value: &s.Value, Source: api.ConfigSource(s.Source)})
		}
		out = append(out, c)
	}
	return out
}
