package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/console"
	"tidemark/internal/core/types"
)

// eventsCmd is `tidemark events`.
type eventsCmd struct {
	Target
	Mirror   string        `help:"Only this mirror's." placeholder:"NAME"`
	Kind     []string      `help:"Only events of this kind (CUT, PROMOTED, GROUP_CUT, FAILED, SPLIT_BRAIN, …); repeatable." placeholder:"KIND"`
	Since    time.Duration `help:"Only what happened in the time before now." placeholder:"DURATION"`
	All      bool          `help:"Also what many partitions go through at once (ADOPTED, EPOCH_FENCING, WAITING, SOURCE_UNREACHABLE)."`
	Watch    bool          `short:"w" help:"Go on with what happens from now on, until interrupted."`
	Interval time.Duration `help:"How often --watch looks." default:"1s"`
}

// usualKinds are left out unless they are asked for: each start or outage brings one for every partition.
var usualKinds = []string{"ADOPTED", "EPOCH_FENCING", "WAITING", "SOURCE_UNREACHABLE"}

// eventIdentity tells one event from another over several looks.
type eventIdentity struct {
	node      types.BrokerID
	seq       int64
	vault     string
	topic     string
	partition int32
}

func (c *eventsCmd) Run(ctx context.Context, s Streams) error {
	since := types.Millis(0)
	if c.Since > 0 {
		since = types.Millis(time.Now().Add(-c.Since).UnixMilli())
	}
	list, err := c.look(ctx, s, since)
	if err != nil {
		return err
	}
	if !c.Watch {
		return c.print(s.Out, list, func() table { return eventTable(list) })
	}
	return c.follow(ctx, s, list)
}

// look asks every node for its events at or after since.
func (c *eventsCmd) look(ctx context.Context, s Streams, since types.Millis) ([]mirror.Event, error) {
	list := []mirror.Event{}
	err := c.eachNode(ctx, s, func(_ types.BrokerID, cl *console.Client) error {
		e, err := cl.Events(ctx, console.EventFilter{Since: since, Mirror: c.Mirror, Kinds: c.Kind})
		for _, one := range e.Events {
			if c.All || len(c.Kind) > 0 || !slices.Contains(usualKinds, one.Kind) {
				list = append(list, one)
			}
		}
		return err
	})
	slices.SortStableFunc(list, func(a, b mirror.Event) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Seq, b.Seq)) })
	return list, err
}

// watchOverlap is how far back each look goes: clocks of nodes differ, and a cut
// is told a moment after its time.
const watchOverlap = 30 * time.Second

// follow prints one line an event, what there is first, then what comes.
func (c *eventsCmd) follow(ctx context.Context, s Streams, list []mirror.Event) error {
	told := map[eventIdentity]types.Millis{}
	return watch(ctx, c.Interval, func() (bool, error) {
		if list == nil {
			from := types.Millis(time.Now().Add(-watchOverlap).UnixMilli())
			var err error
			if list, err = c.look(ctx, s, from); err != nil {
				if ctx.Err() == nil {
					fmt.Fprintln(s.Err, "events can't be had at the moment:", err)
				}
				list = nil
				return false, nil
			}
			for id, at := range told {
				if at < from-types.Millis(watchOverlap.Milliseconds()) {
					delete(told, id)
				}
			}
		}
		for _, e := range list {
			id := eventIdentity{e.Node, e.Seq, e.VaultID, e.Topic, e.Partition}
			if _, ok := told[id]; ok {
				continue
			}
			told[id] = e.At
			if err := c.line(s, e); err != nil {
				return true, err
			}
		}
		list = nil
		return false, nil
	})
}

// line prints one event: JSON on one line, or text.
func (c *eventsCmd) line(s Streams, e mirror.Event) error {
	if c.Output == "json" || c.Output == "yaml" {
		return json.NewEncoder(s.Out).Encode(e)
	}
	_, err := fmt.Fprintf(s.Out, "%s  node %d  %-16s %s\n", time.UnixMilli(int64(e.At)).UTC().Format(time.RFC3339), e.Node, e.Kind, e.Message)
	return err
}

func eventTable(list []mirror.Event) table {
	out := table{columns: []string{"AT", "KIND", "MIRROR", "TOPIC", "PARTITION", "FROM", "TO", "RECORDS", "VAULT-ENTRY", "ORDERED-BY", "MESSAGE", "NODE", "SEQ"}, wideFrom: 11}
	for _, e := range list {
		out.rows = append(out.rows, []string{millisText(int64(e.At)), e.Kind, orDash(e.Mirror), orDash(e.Topic), fmt.Sprint(e.Partition), fmt.Sprint(e.From), fmt.Sprint(e.To),
			fmt.Sprint(e.Records), orDash(e.VaultID), orDash(string(e.OrderedBy)), e.Message, fmt.Sprint(e.Node), fmt.Sprint(e.Seq)})
	}
	return out
}
