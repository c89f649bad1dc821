//go:build kafka

package kafka_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/test/kafka/cluster"
)

// splitBrain is the alarm of one partition in `mirror status -o json`.
type splitBrain struct {
	Topic      string `json:"topic"`
	SplitBrain *struct {
		From      int64 `json:"from"`
		To        int64 `json:"to"`
		Producers []struct {
			ID int64 `json:"id"`
		} `json:"producers"`
	} `json:"splitBrain"`
}

// TestOldKafkaGoesOn fails over while the source lives, and lets a Java producer
// write on there: the alarm says what the source took, and who wrote it.
func TestOldKafkaGoesOn(t *testing.T) {
	ctx := testContext(t, 3*time.Minute)
	kafka := cluster.Start(t, cluster.Options{})
	cl := client(t, kafka.Bootstrap(), kgo.DefaultProduceTopic("split"))
	createTopic(ctx, t, cl, "split", 1, 1)
	javaLoad(ctx, t, kafka.Bootstrap(), "topic=split,count=100")
	standby := startStandby(t, kafka.Bootstrap(), "--set", "mirror.watch.source.ms=200")
	standby.waitCaughtUp(time.Minute, ends(ctx, t, cl, "split"))
	standby.failover()
	javaLoad(ctx, t, kafka.Bootstrap(), "topic=split,count=50")

	req := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = "split", []int32{0}
	req.Topics = append(req.Topics, rt)
	told, err := req.RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	wrote := map[int64]bool{}
	for _, p := range told.Topics[0].Partitions[0].ActiveProducers {
		wrote[p.ProducerID] = true
	}
	eventually(t, time.Minute, "the alarm", func() error {
		code, out, errOut := standby.tidemark("mirror", "status", "standby", "-o", "json")
		if code != 0 {
			return fmt.Errorf("exit %d: %s", code, errOut)
		}
		var st struct {
			Partitions []splitBrain `json:"partitions"`
		}
		if err := json.Unmarshal([]byte(out), &st); err != nil {
			return err
		}
		for _, p := range st.Partitions {
			a := p.SplitBrain
			switch {
			case p.Topic != "split":
				continue
			case a == nil || a.From != 100 || a.To != 150 || len(a.Producers) == 0:
				return fmt.Errorf("alarm %+v", a)
			}
			for _, producer := range a.Producers {
				if !wrote[producer.ID] {
					return fmt.Errorf("the alarm names producer %d, Kafka %v", producer.ID, wrote)
				}
			}
			return nil
		}
		return fmt.Errorf("no partition of split: %s", out)
	})
}
