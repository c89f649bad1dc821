package config

import (
	"slices"
	"strings"
)

// ignoredReasons says why a key that Kafka knows has no effect here.
// A prefix ends with a dot.
var ignoredReasons = map[string]string{
	"zookeeper.":                                       "there is no ZooKeeper here: metadata lives in etcd (key metadata)",
	"controller.":                                      "there is no KRaft quorum here: metadata lives in etcd (key metadata)",
	"metadata.log.":                                    "there is no KRaft metadata log here: metadata lives in etcd (key metadata)",
	"metadata.max.":                                    "there is no KRaft metadata log here: metadata lives in etcd (key metadata)",
	"process.roles":                                    "a node's roles follow from the key metadata",
	"broker.id.generation.enable":                      "node ids are given, never generated",
	"reserved.broker.max.id":                           "node ids are given, never generated",
	"inter.broker.":                                    "inter.broker.listener.name says how brokers reach each other",
	"num.network.threads":                              "connections are served by goroutines, not a fixed pool",
	"num.io.threads":                                   "requests are served by goroutines; num.shards sets the event loops",
	"background.threads":                               "background work has no fixed pool",
	"queued.max.requests":                              "requests are bounded by bytes: queued.max.request.bytes",
	"num.replica.fetchers":                             "followers fetch over one connection for each leading broker; mirrors have mirror.fetchers.per.source.broker",
	"replica.":                                         "this key of replication has no effect here",
	"follower.":                                        "throttles of replication are set at run time, by kafka-configs or kafka-reassign-partitions",
	"leader.":                                          "throttles of replication are set at run time, by kafka-configs or kafka-reassign-partitions",
	"controlled.shutdown.":                             "a shutdown waits for the controller; it has nothing to retry",
	"log.cleaner.io.":                                  "compaction is not paced by these keys",
	"log.dir.failure.timeout.ms":                       "a failed log dir goes offline at once",
	"log.message.format.version":                       "only record format v2 exists here",
	"log.message.downconversion.enable":                "records are never converted",
	"log.message.timestamp.difference.max.ms":          "use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms",
	"inter.broker.protocol.version":                    "versions are negotiated by ApiVersions alone",
	"metric.reporters":                                 "metrics are served at /metrics of the HTTP listener",
	"metrics.":                                         "metrics are served at /metrics of the HTTP listener",
	"kafka.metrics.":                                   "metrics are served at /metrics of the HTTP listener",
	"auto.include.jmx.reporter":                        "metrics are served at /metrics of the HTTP listener",
	"client.metrics.":                                  "client telemetry is not collected",
	"telemetry.max.bytes":                              "client telemetry is not collected",
	"share.":                                           "share groups are not served",
	"group.share.":                                     "share groups are not served",
	"group.streams.":                                   "streams groups are not served",
	"group.coordinator.threads":                        "group coordinators run on the partitions' event loops",
	"group.coordinator.append.linger.ms":               "commits are grouped by what waits, not by time",
	"group.coordinator.new.enable":                     "there is one group coordinator",
	"offsets.commit.required.acks":                     "commits are acks=all",
	"initial.broker.registration.timeout.ms":           "a node that can't register says so at once",
	"broker.heartbeat.interval.ms":                     "follows from broker.session.timeout.ms",
	"sasl.server.max.receive.size":                     "messages of log-ins are bounded at 16 KiB",
	"max.connection.creation.rate":                     "new connections are bounded in number, not in rate",
	"max.connections.per.ip.overrides":                 "max.connections.per.ip holds for every address",
	"socket.listen.backlog.size":                       "the system's backlog is used",
	"socket.connection.setup.timeout.":                 "the broker opens no connection but a mirror's (mirror.request.timeout.ms)",
	"request.timeout.ms":                               "a mirror's requests have mirror.request.timeout.ms",
	"delegation.token.":                                "delegation tokens are not served",
	"password.encoder.":                                "no secret is stored encrypted",
	"config.providers":                                 "values are taken as they are written",
	"quota.":                                           "quotas are not enforced",
	"replication.quota.":                               "quotas are not enforced",
	"alter.config.policy.class.name":                   "classes can't be loaded",
	"create.topic.policy.class.name":                   "classes can't be loaded",
	"remote.log.manager.":                              "there is no tiered storage",
	"remote.log.metadata.":                             "there is no tiered storage",
	"remote.fetch.max.wait.ms":                         "there is no tiered storage",
	"remote.list.offsets.request.timeout.ms":           "there is no tiered storage",
	"log.local.":                                       "there is no tiered storage",
	"log.initial.task.delay.ms":                        "background work starts when the node is ready",
	"producer.purgatory.purge.interval.requests":       "waiting requests are subscriptions and need no purge",
	"delete.records.purgatory.purge.interval.requests": "waiting requests are subscriptions and need no purge",
	"eligible.leader.replicas.":                        "eligible leader replicas are always kept",
	"early.start.listeners":                            "listeners open when the node is ready",
	"unstable.":                                        "unstable switches don't exist here",
	"ssl.":                                             "TLS listeners take PEM files: ssl.keystore.location, ssl.key.location, ssl.truststore.location, ssl.client.auth",
	"compression.":                                     "compression levels matter only when the broker recompresses, with default levels",

	"socket.send.buffer.bytes":                                   "the system sizes socket buffers",
	"socket.receive.buffer.bytes":                                "the system sizes socket buffers",
	"fetch.purgatory.purge.interval.requests":                    "waiting requests are subscriptions and need no purge",
	"log.flush.start.offset.checkpoint.interval.ms":              "log starts are written with the recovery points: log.flush.offset.checkpoint.interval.ms",
	"producer.id.expiration.check.interval.ms":                   "silent producers are looked for with each pass of retention: log.retention.check.interval.ms",
	"transaction.partition.verification.enable":                  "partitions of transactions are always verified",
	"transaction.remove.expired.transaction.cleanup.interval.ms": "expired ids are looked for with each look for old transactions",
	"transaction.state.log.compression.codec":                    "transaction state isn't compressed",
	"transaction.two.phase.commit.enable":                        "two-phase commit is not served",
	"group.coordinator.rebalance.protocols":                      "classic groups and those of the consumer protocol (KIP-848) are served",
	"group.coordinator.background.threads":                       "group coordinators run on the partitions' event loops",
	"group.consumer.":                                            "groups of the consumer protocol (KIP-848) have the keys group.consumer.session.timeout.ms, .heartbeat.interval.ms, .max.size and .assignors",
	"group.consumer.migration.policy":                            "a group changes its protocol when it has no members, as with the policy disabled",
	"group.consumer.regex.refresh.interval.ms":                   "expressions are matched anew when topics change",
	"mirror.source.unsafe":                                       "a source older than Kafka 2.1 is always refused",
	"mirror.groups.never.overwrite":                              "groups with members here are always left alone",
}

// refusal gives the reason why a key of Kafka's with this value can't be taken, or "".
func refusal(k, v string) string {
	v = strings.TrimSpace(v)
	switch {
	case k == "remote.log.storage.system.enable" && strings.EqualFold(v, "true"):
		return "tiered storage is not supported: leave it out, or set it to false"
	case k == "authorizer.class.name" && v != "" && !slices.Contains(kafkaAuthorizers, v):
		return "classes can't be loaded: ACLs are enforced with authorizer=acl, and another authorizer would be missing unseen"
	case k == "ssl.principal.mapping.rules" && !strings.EqualFold(v, "DEFAULT"), k == "sasl.kerberos.principal.to.local.rules" && !strings.EqualFold(v, "DEFAULT"):
		return "principals aren't mapped: ACLs would name other ones than meant"
	case isForeignSASL(k):
		return "this key of SASL has no counterpart here; log-ins take sasl.enabled.mechanisms and the cluster's SCRAM credentials"
	case k == "principal.builder.class" && v != "":
		return "classes can't be loaded"
	case k == "ssl.keystore.type" && !strings.EqualFold(v, "PEM"), k == "ssl.truststore.type" && !strings.EqualFold(v, "PEM"):
		return "only PEM files are read"
	case k == "mirror.source.unsafe" && strings.EqualFold(v, "true"):
		return "a source older than Kafka 2.1 can't be mirrored in this version: it doesn't say where its epochs end"
	case k == "mirror.groups.never.overwrite" && strings.EqualFold(v, "false"):
		return "groups with members here are always left alone in this version"
	case strings.HasPrefix(k, "listener.name."):
		return "keys of a single listener are not supported: set the key for all listeners"
	default:
		return ""
	}
}

// isForeignSASL reports whether a key of SASL is none that this program has.
func isForeignSASL(k string) bool {
	_, known := keyIndex()[k]
	return !known && k != "sasl.server.max.receive.size" && (strings.HasPrefix(k, "sasl.") || strings.Contains(k, ".sasl."))
}

// ignoredReason looks a foreign key up, whole or by its prefix.
func ignoredReason(k string) (string, bool) {
	if r, ok := ignoredReasons[k]; ok && r != "" {
		return r, true
	}
	for i := len(k) - 1; i > 0; i-- {
		if k[i] != '.' {
			continue
		}
		if r, ok := ignoredReasons[k[:i+1]]; ok {
			return r, true
		}
	}
	if k == "remote.log.storage.system.enable" || k == "authorizer.class.name" || k == "principal.builder.class" {
		return "empty or off, as here", true
	}
	return "", false
}
