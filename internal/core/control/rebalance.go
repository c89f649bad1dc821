package control

import (
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Rebalance gives leaders back to preferred replicas, for those brokers that
// lead fewer of the partitions that name them first than they should, by more
// than percent of these (Kafka's leader.imbalance.per.broker.percentage).
func Rebalance(image *meta.Image, percent int, me Me, limits Limits) ([]Change, []meta.Plan) {
	preferred, elsewhere := make(map[types.BrokerID]int), make(map[types.BrokerID]int)
	for p := range image.Partitions() {
		if p.Record == nil {
			continue
		}
		first := p.Record.Replicas[0]
		preferred[first]++
		if p.Record.Leader != first {
			elsewhere[first]++
		}
	}
	var changes []Change
	var plans []meta.Plan
	for p := range image.Partitions() {
		if p.Record == nil || len(p.Record.Adding)+len(p.Record.Removing) > 0 {
			continue
		}
		first := p.Record.Replicas[0]
		if elsewhere[first]*100 <= percent*preferred[first] {
			continue
		}
		if c, err := ElectPreferred(image, p, me); err == nil {
			changes = append(changes, c)
			plans = append(plans, c.Plan)
		}
	}
	return changes, Split(plans, limits)
}
