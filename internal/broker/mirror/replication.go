package mirror

import (
	"tidemark/internal/config"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
)

// replicasMost is how many replicas a mirrored topic gets at the most where no number is set.
const replicasMost = 3

// replicas gives how many replicas a mirrored topic gets that is made now.
func replicas(image *meta.Image, settings *config.Mirror) int {
	if settings.ReplicationFactor > 0 {
		return int(settings.ReplicationFactor)
	}
	return control.ReplicasFor(image, replicasMost)
}

// Replication says how many replicas a mirror's topics have.
type Replication struct {
	// Setting is mirror.replication.factor as the mirror has it; 0: one on each live
	// broker, at most three.
	Setting int16 `json:"setting"`
	// New is what a topic gets that is made now.
	New int `json:"new"`
	// Fewer counts the mirror's partitions that have less: those were made before there
	// were as many brokers, or under another setting.
	Fewer int `json:"fewer"`
}

func (m *Mirrors) replication(rec *meta.MirrorRecord) Replication {
	image := m.o.Node.Image()
	settings, err := settingsOf(m.o.Config.Mirror, rec.Settings)
	if err != nil {
		settings = &m.o.Config.Mirror
	}
	r := Replication{Setting: settings.ReplicationFactor, New: replicas(image, settings)}
	for p := range image.Partitions() {
		if p.Record != nil && p.Record.Mirror != nil && p.Record.Mirror.Name == rec.Name && len(p.Record.Target()) < r.New {
			r.Fewer++
		}
	}
	return r
}
