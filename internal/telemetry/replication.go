package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Replication counts what brokers do for each other's replicas, and elections.
type Replication struct {
	ISRShrinks, ISRExpands prometheus.Counter
	// BytesIn came from leaders of this cluster, BytesOut went to followers; clients' are in Topics.
	BytesIn, BytesOut prometheus.Counter
	// Diverged counts the fetches of followers that were answered with a divergence (R5).
	Diverged  prometheus.Counter
	Elections *prometheus.CounterVec // kind
	Unclean   prometheus.Counter
}

func newReplication(r prometheus.Registerer) *Replication {
	return &Replication{
		ISRShrinks: counter(r, "kafka_server_replicamanager_isrshrinks_total", "Times the ISR of a partition led here lost a replica."),
		ISRExpands: counter(r, "kafka_server_replicamanager_isrexpands_total", "Times the ISR of a partition led here gained a replica."),
		BytesIn:    counter(r, "kafka_server_brokertopicmetrics_replicationbytesin_total", "Bytes of record batches fetched from leaders of this cluster."),
		BytesOut:   counter(r, "kafka_server_brokertopicmetrics_replicationbytesout_total", "Bytes of record batches given to followers."),
		Diverged:   counter(r, "tidemark_replication_divergences_total", "Fetches of followers that were told where their history departs from the leader's."),
		Elections:  counterVec(r, "tidemark_controller_elections_total", "Leaders elected by this broker as the controller, by why they may lead.", "kind"),
		Unclean:    counter(r, "kafka_controller_controllerstats_uncleanleaderelections_total", "Leaders elected by this broker that may lack committed records."),
	}
}
