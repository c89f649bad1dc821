package cli

import (
	"fmt"

	"tidemark/internal/broker/mirror"
)

// replicationText says how many replicas a mirror's new topics get, by what, and which have fewer.
func replicationText(r mirror.Replication) string {
	by := "as mirror.replication.factor says"
	if r.Setting == 0 {
		by = "one on each live broker, at most three, as mirror.replication.factor is not set"
	}
	text := fmt.Sprintf("replicas of new topics %d: %s", r.New, by)
	if r.Fewer > 0 {
		text += fmt.Sprintf("\n%d partitions have fewer: what was made before stays as it is; a reassignment (kafka-reassign-partitions) gives them more", r.Fewer)
	}
	return text
}
