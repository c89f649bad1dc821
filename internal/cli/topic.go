package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// requestWait bounds one request of a command to a broker.
const requestWait = 15 * time.Second

// topicCmd is `tidemark topic …`.
type topicCmd struct {
	Create   topicCreateCmd   `cmd:"" help:"Create a topic."`
	List     topicListCmd     `cmd:"" help:"List topics."`
	Describe topicDescribeCmd `cmd:"" help:"Show a topic's partitions and settings."`
	Alter    topicAlterCmd    `cmd:"" help:"Change a topic's settings, or add partitions."`
	Delete   topicDeleteCmd   `cmd:"" help:"Delete a topic with all its records."`
}

// admin connects to the target's Kafka address.
func (t Target) admin() (*kadm.Client, func(), error) {
	opts, err := t.clientOptions()
	if err != nil {
		return nil, nil, err
	}
	cl, err := kgo.NewClient(append(opts, kgo.RetryTimeout(requestWait))...)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: --bootstrap %s: %w", errUsage, t.Bootstrap, err)
	}
	return kadm.NewClient(cl), cl.Close, nil
}

type topicCreateCmd struct {
	Target
	Name        string            `arg:"" help:"The topic's name."`
	Partitions  int32             `short:"p" help:"How many partitions; -1: the broker's default." default:"-1"`
	Replication int16             `short:"r" help:"Replication factor; -1: the broker's default." default:"-1"`
	Config      map[string]string `short:"c" help:"A topic setting; repeatable." placeholder:"KEY=VALUE" mapsep:"none"`
}

func (c *topicCreateCmd) Run(ctx context.Context, s Streams) error {
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	configs := map[string]*string{}
	for k, v := range c.Config {
		configs[k] = &v
	}
	resp, err := adm.CreateTopic(ctx, c.Partitions, c.Replication, configs, c.Name)
	if err != nil {
		return c.reach(kafkaError(err, resp.ErrMessage))
	}
	fmt.Fprintf(s.Out, "created %s with %d partitions\n", c.Name, resp.NumPartitions)
	return nil
}

// kafkaError adds the broker's own sentence to an error code.
func kafkaError(err error, message string) error {
	if err == nil || message == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, message)
}

// topicRow is one topic as `topic list` prints it.
type topicRow struct {
	Name       string `json:"name"`
	ID         string `json:"id"`
	Partitions int    `json:"partitions"`
	Internal   bool   `json:"internal"`
}

type topicListCmd struct {
	Target
}

func (c *topicListCmd) Run(ctx context.Context, s Streams) error {
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	topics, err := adm.ListTopicsWithInternal(ctx)
	if err != nil {
		return c.reach(err)
	}
	rows := []topicRow{}
	for _, t := range topics.Sorted() {
		rows = append(rows, topicRow{Name: t.Topic, ID: t.ID.String(), Partitions: len(t.Partitions), Internal: t.IsInternal})
	}
	return c.print(s.Out, rows, func() table {
		out := table{columns: []string{"TOPIC", "PARTITIONS", "ID", "INTERNAL"}, wideFrom: 2}
		for _, r := range rows {
			out.rows = append(out.rows, []string{r.Name, fmt.Sprint(r.Partitions), r.ID, fmt.Sprint(r.Internal)})
		}
		return out
	})
}

// topicDescription is `topic describe`'s answer.
type topicDescription struct {
	Name       string                 `json:"name"`
	ID         string                 `json:"id"`
	Partitions []partitionDescription `json:"partitions"`
	Configs    map[string]string      `json:"configs"`
}

type partitionDescription struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"`
	LeaderEpoch int32   `json:"leaderEpoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Start       int64   `json:"start"`
	End         int64   `json:"end"`
}

type topicDescribeCmd struct {
	Target
	Name string `arg:"" help:"The topic's name."`
}

func (c *topicDescribeCmd) Run(ctx context.Context, s Streams) error {
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	d, err := describeTopic(ctx, adm, c.Name)
	if err != nil {
		return c.reach(err)
	}
	return c.print(s.Out, d, func() table {
		out := table{columns: []string{"PARTITION", "LEADER", "EPOCH", "START", "END", "REPLICAS", "ISR"}}
		for _, p := range d.Partitions {
			out.rows = append(out.rows, []string{fmt.Sprint(p.Partition), fmt.Sprint(p.Leader), fmt.Sprint(p.LeaderEpoch),
				fmt.Sprint(p.Start), fmt.Sprint(p.End), fmt.Sprint(p.Replicas), fmt.Sprint(p.ISR)})
		}
		return out
	})
}

func describeTopic(ctx context.Context, adm *kadm.Client, name string) (*topicDescription, error) {
	topics, err := adm.ListTopics(ctx, name)
	if err != nil {
		return nil, err
	}
	t := topics[name]
	if t.Err != nil {
		return nil, fmt.Errorf("topic %s: %w", name, t.Err)
	}
	starts, err := adm.ListStartOffsets(ctx, name)
	if err != nil {
		return nil, err
	}
	ends, err := adm.ListEndOffsets(ctx, name)
	if err != nil {
		return nil, err
	}
	d := &topicDescription{Name: name, ID: t.ID.String(), Configs: map[string]string{}}
	for _, p := range t.Partitions.Sorted() {
		start, _ := starts.Lookup(name, p.Partition)
		end, _ := ends.Lookup(name, p.Partition)
		d.Partitions = append(d.Partitions, partitionDescription{Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch,
			Replicas: p.Replicas, ISR: p.ISR, Start: start.Offset, End: end.Offset})
	}
	configs, err := adm.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, rc := range configs {
		for _, kv := range rc.Configs {
			if kv.Value != nil {
				d.Configs[kv.Key] = *kv.Value
			}
		}
	}
	return d, nil
}

type topicAlterCmd struct {
	Target
	Name       string            `arg:"" help:"The topic's name."`
	Partitions int32             `short:"p" help:"The new number of partitions (it only grows)."`
	Config     map[string]string `short:"c" help:"Set a topic setting; repeatable." placeholder:"KEY=VALUE" mapsep:"none"`
	Unset      []string          `help:"Give a topic setting back to its default; repeatable." placeholder:"KEY"`
}

func (c *topicAlterCmd) Run(ctx context.Context, s Streams) error {
	if c.Partitions == 0 && len(c.Config) == 0 && len(c.Unset) == 0 {
		return fmt.Errorf("%w: nothing to change: give --partitions, --config or --unset", errUsage)
	}
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	if len(c.Config)+len(c.Unset) > 0 {
		if err := alterConfigs(ctx, adm, c.Name, c.Config, c.Unset); err != nil {
			return c.reach(err)
		}
		fmt.Fprintf(s.Out, "changed the settings of %s\n", c.Name)
	}
	if c.Partitions > 0 {
		resps, err := adm.UpdatePartitions(ctx, int(c.Partitions), c.Name)
		if err != nil {
			return c.reach(err)
		}
		for _, r := range resps {
			if r.Err != nil {
				return c.reach(kafkaError(r.Err, r.ErrMessage))
			}
		}
		fmt.Fprintf(s.Out, "%s has %d partitions\n", c.Name, c.Partitions)
	}
	return nil
}

func alterConfigs(ctx context.Context, adm *kadm.Client, topic string, set map[string]string, unset []string) error {
	var changes []kadm.AlterConfig
	for _, k := range slices.Sorted(maps.Keys(set)) {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: kadm.StringPtr(set[k])})
	}
	for _, k := range unset {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: k})
	}
	resps, err := adm.AlterTopicConfigs(ctx, changes, topic)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range resps {
		errs = append(errs, kafkaError(r.Err, r.ErrMessage))
	}
	return errors.Join(errs...)
}

type topicDeleteCmd struct {
	Target
	Name string `arg:"" help:"The topic's name."`
	Yes  bool   `short:"y" help:"Don't ask."`
}

func (c *topicDeleteCmd) Run(ctx context.Context, s Streams) error {
	if err := askable(s, c.Yes); err != nil {
		return err
	}
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	topics, err := adm.ListTopics(ctx, c.Name)
	if err != nil {
		return c.reach(err)
	}
	if err := topics[c.Name].Err; err != nil {
		return c.reach(fmt.Errorf("topic %s: %w", c.Name, err))
	}
	warning := fmt.Sprintf("This deletes the topic %s, of %d partitions, and all its records.", c.Name, len(topics[c.Name].Partitions))
	if err := confirm(s, c.Yes, warning, c.Name); err != nil {
		return err
	}
	resp, err := adm.DeleteTopic(ctx, c.Name)
	if err != nil {
		return c.reach(kafkaError(err, resp.ErrMessage))
	}
	fmt.Fprintf(s.Out, "deleted %s\n", c.Name)
	return nil
}
