package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/core/types"
	"tidemark/internal/replay"
	"tidemark/internal/vault"
)

type vaultReplayCmd struct {
	entryArg
	Topic            string `help:"The topic to write into (default: the one that the records come from)." placeholder:"NAME"`
	Partition        int32  `help:"The partition to write into (default: the one that the records come from)." default:"-1" placeholder:"N"`
	Create           bool   `help:"Make the topic if it is missing."`
	OpenTransactions bool   `help:"Also records of transactions of which the entry has no end."`
	Again            bool   `help:"Also if the entry was replayed there before and the topic no longer has what was written."`
	DryRun           bool   `help:"Only say what would be written."`
	Yes              bool   `short:"y" help:"Don't ask."`
}

func (c *vaultReplayCmd) Run(ctx context.Context, s Streams) error {
	if err := askable(s, c.Yes || c.DryRun); err != nil {
		return err
	}
	e, err := c.entry(ctx, s)
	if err != nil {
		return err
	}
	if e.Damaged != "" {
		return fmt.Errorf("entry %s can't be read: %s", e.ID, e.Damaged)
	}
	if c.Topic == "" {
		c.Topic = e.Topic
	}
	if c.Partition < 0 {
		c.Partition = e.Partition
	}
	topicID, err := c.target(ctx, s)
	if err != nil {
		return err
	}
	for _, r := range e.Replays {
		if r.Topic == c.Topic && r.Partition == c.Partition && r.TopicID == topicID && !c.Again {
			fmt.Fprintf(s.Err, "entry %s was replayed into %s-%d at %s: nothing is written (--again writes what the topic no longer has)\n", e.ID, r.Topic, r.Partition, millisText(int64(r.At)))
			out := replay.Result{Entry: e.ID, Topic: r.Topic, Partition: r.Partition, DryRun: c.DryRun, Present: r.Records, FirstOffset: -1, LastOffset: -1}
			return c.print(s.Out, out, func() table { return replayTable(out) })
		}
	}
	warning := fmt.Sprintf("This writes up to %d records of entry %s into %s-%d, behind what is there now. Consumers of the topic will read them.", e.Records, e.ID, c.Topic, c.Partition)
	if !c.DryRun {
		if err := confirm(s, c.Yes, warning, c.Topic); err != nil {
			return err
		}
	}
	connect, err := c.clientOptions()
	if err != nil {
		return err
	}
	out, err := replay.Run(ctx, replay.Request{
		Entry: e.Entry, Open: e.open, Connect: connect, Bootstrap: strings.Split(c.Bootstrap, ","), Topic: c.Topic, Partition: c.Partition,
		OpenTransactions: c.OpenTransactions, DryRun: c.DryRun,
	})
	if err != nil {
		return fmt.Errorf("%w (%d records are written; the same command again goes on from there)", err, out.Replayed)
	}
	if !c.DryRun {
		done := vault.Replay{Topic: c.Topic, TopicID: topicID, Partition: c.Partition, Records: out.Replayed + out.Present}
		if err := e.client.VaultReplayed(ctx, e.ID, done); err != nil {
			return fmt.Errorf("everything is written, but the vault could not note it: %w", err)
		}
	}
	return c.print(s.Out, out, func() table { return replayTable(out) })
}

// target finds the topic to write into, or makes it, and gives its id.
func (c *vaultReplayCmd) target(ctx context.Context, s Streams) (types.TopicID, error) {
	opts, err := c.clientOptions()
	if err != nil {
		return types.TopicID{}, err
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return types.TopicID{}, fmt.Errorf("%w: --bootstrap: %w", errUsage, err)
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	topics, err := adm.ListTopics(ctx, c.Topic)
	if err != nil {
		return types.TopicID{}, fmt.Errorf("topic %s: %w", c.Topic, err)
	}
	if topics.Has(c.Topic) || !c.Create {
		if !topics.Has(c.Topic) {
			return types.TopicID{}, fmt.Errorf("there is no topic %s: --create makes it", c.Topic)
		}
		return types.TopicID(topics[c.Topic].ID), nil
	}
	if c.DryRun {
		return types.TopicID{}, fmt.Errorf("there is no topic %s yet; without --dry-run it would be made with %d partitions", c.Topic, c.Partition+1)
	}
	made, err := adm.CreateTopic(ctx, c.Partition+1, -1, nil, c.Topic)
	if err != nil {
		return types.TopicID{}, fmt.Errorf("make topic %s: %w", c.Topic, err)
	}
	fmt.Fprintf(s.Err, "topic %s made with %d partitions\n", c.Topic, c.Partition+1)
	return types.TopicID(made.ID), nil
}

func replayTable(r replay.Result) table {
	written := "REPLAYED"
	if r.DryRun {
		written = "WOULD-REPLAY"
	}
	return table{columns: []string{"ENTRY", "TOPIC", "PARTITION", written, "PRESENT", "ABORTED", "OPEN", "CONTROL", "FIRST-OFFSET", "LAST-OFFSET"}, rows: [][]string{{
		r.Entry, r.Topic, fmt.Sprint(r.Partition), fmt.Sprint(r.Replayed), fmt.Sprint(r.Present), fmt.Sprint(r.Aborted), fmt.Sprint(r.Open), fmt.Sprint(r.Control),
		fmt.Sprint(r.FirstOffset), fmt.Sprint(r.LastOffset),
	}}}
}
