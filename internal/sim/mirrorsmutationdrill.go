package sim

import (
	"slices"
	"strings"

	"tidemark/internal/broker"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/internal/log"
	"tidemark/internal/metastore"
)

// drillMutations switch off what drills rest on.
func drillMutations() []*Mutation {
	of := func(name, rule string, finds []string, m *mirrorsMutation) *Mutation {
		m.adjust = drillsOften
		return &Mutation{Name: "mirrors-drill-" + name, Rule: rule, Finds: finds, Profile: "mirrors", Mirrors: m}
	}
	return []*Mutation{
		{Name: "mirrors-plain-failovers", Rule: "ADR 11: a failover at a consistent cut is one at the log ends", Finds: []string{"TxnWhole"}, Profile: "mirrors",
			Mirrors: &mirrorsMutation{adjust: func(o *MirrorsOptions) {
				mirrorsProfiles["mirrors-txn"](o)
				o.PlainFailovers = true
			}}},
		of("cut-in-place", "I-310: a cut shortens a file that a fork holds too", []string{"DrillApart", "DrillPrefix", "LogReadable", "PANIC"},
			&mirrorsMutation{log: log.Rules{CutSharedInPlace: true}}),
		of("uncommitted", "R14: a fork ends at its leader's log end, whatever is committed", []string{"DrillPrefix"},
			&mirrorsMutation{rules: broker.MirrorRules{Mirror: mirror.Rules{ForksToLogEnd: true}}}),
		of("shown-early", "ADR 23: a drill is shown when its making begins", []string{"DrillWhole"},
			&mirrorsMutation{change: drillsAre(meta.DrillMaking, func(r *meta.DrillRecord, op *meta.Op) { r.State = meta.DrillReady; op.Value = r.Encode() })}),
		of("record-first", "ADR 23: a drill's record is deleted before its topics", []string{"DrillWhole"},
			&mirrorsMutation{change: drillsAre(meta.DrillDropping, func(_ *meta.DrillRecord, op *meta.Op) { *op = meta.Delete(op.Key) })}),
	}
}

// drillsAre changes what is written of drills in a state.
func drillsAre(state string, change func(r *meta.DrillRecord, op *meta.Op)) func(*storeLink, metastore.Txn) metastore.Txn {
	return func(_ *storeLink, txn metastore.Txn) metastore.Txn {
		txn.Then = slices.Clone(txn.Then)
		for i, op := range txn.Then {
			if op.Kind != meta.OpPut || !strings.Contains(op.Key, "/drills/") {
				continue
			}
			if r, err := meta.DecodeDrill(op.Key, op.Value); err == nil && r.State == state {
				change(r, &txn.Then[i])
			}
		}
		return txn
	}
}

// drillsOften has drills of mirrors whose source loses records again and again.
func drillsOften(o *MirrorsOptions) {
	o.Compacted, o.Kafka, o.SegmentBytes, o.FetchBytes, o.VaultBytes = false, true, 900, 600, -1
	o.Brokers, o.Replicas, o.MinISR = max(o.Brokers, 2), 2, 1
	o.SlowReplica = max(o.SlowReplica, 0.4)
	o.Rates = map[string]float64{"mirror": 12, "drill": 20, "drill-delete": 6, "drill-write": 20, "kafka-write": 120, "kafka-elect-unclean": 12, "kafka-elect": 4, "cut-link": 6}
}
