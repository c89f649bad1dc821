//go:build kafka

package kafka_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"tidemark/test/kafka/cluster"
)

func scramOf(user, password string) kgo.Opt {
	return kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism())
}

// guardedKafka is a cluster with an authorizer, a super user admin, and a user alice.
func guardedKafka(t *testing.T) *cluster.Cluster {
	return cluster.Start(t, cluster.Options{Listener: "SASL_PLAINTEXT",
		FormatArgs: []string{"--add-scram", "SCRAM-SHA-256=[name=admin,password=admins]", "--add-scram", "SCRAM-SHA-256=[name=alice,password=alices]"},
		Props: map[string]string{
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:admin;User:ANONYMOUS",
			"sasl.enabled.mechanisms":                             "SCRAM-SHA-256",
			"listener.name.client.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
		}})
}

// guardedStandby is a standby of it that enforces ACLs; its first listener is the
// operator's, and it gives the address of the one that takes log-ins.
func guardedStandby(t *testing.T, source string) (*node, string) {
	t.Helper()
	config := writeFile(t, "client.properties", "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"+
		"sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"admin\" password=\"admins\";\n")
	n := newNode(t, "standby", "--source", source, "--source-config", config, "--set", "mirror.metadata.refresh.ms=1000", "--set", "mirror.acl.sync.ms=500",
		"--set", "mirror.scram.sync.ms=500", "--set", "group.initial.rebalance.delay.ms=0")
	return n, n.guard()
}

// guard starts a node that enforces ACLs, with a second listener, for log-ins, whose address it gives.
func (n *node) guard() string {
	n.t.Helper()
	guarded := fmt.Sprintf("127.0.0.1:%d", cluster.FreePort(n.t))
	listen := slices.Index(n.Args, "--listen")
	n.Args = append(slices.Delete(n.Args, listen, listen+2), "--set", "listeners=PLAINTEXT://"+n.kafka+",SASL_PLAINTEXT://"+guarded,
		"--set", "authorizer=acl", "--set", "super.users=User:admin;User:ANONYMOUS")
	n.start()
	n.waitReady()
	return guarded
}

// createACLs makes entries by lines such as "ALLOW User:alice READ TOPIC LITERAL orders".
func createACLs(ctx context.Context, t *testing.T, cl *kgo.Client, lines ...string) {
	t.Helper()
	in := kmsg.NewPtrCreateACLsRequest()
	for _, line := range lines {
		f := strings.Fields(line)
		c := kmsg.CreateACLsRequestCreation{Principal: f[1], Host: "*", ResourceName: f[5]}
		if err := firstError(c.PermissionType.UnmarshalText([]byte(f[0])), c.Operation.UnmarshalText([]byte(f[2])),
			c.ResourceType.UnmarshalText([]byte(f[3])), c.ResourcePatternType.UnmarshalText([]byte(f[4]))); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		in.Creations = append(in.Creations, c)
	}
	out, err := in.RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range out.Results {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			t.Fatalf("%s: %v", lines[i], err)
		}
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// aclsOf lists a cluster's entries as text.
func aclsOf(ctx context.Context, t *testing.T, cl *kgo.Client) []string {
	t.Helper()
	in := kmsg.NewPtrDescribeACLsRequest()
	in.ResourceType, in.ResourcePatternType, in.Operation, in.PermissionType = 1, 1, 1, 1
	out, err := in.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(out.ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, r := range out.Resources {
		for _, a := range r.ACLs {
			list = append(list, fmt.Sprintf("%v %s %v %v %v %s from %s", a.PermissionType, a.Principal, a.Operation, r.ResourceType, r.ResourcePatternType, r.ResourceName, a.Host))
		}
	}
	slices.Sort(list)
	return list
}

// codesIn gives every error code of an answer, in the order of its fields.
func codesIn(out any) []int16 {
	var codes []int16
	var look func(v reflect.Value)
	look = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				look(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				look(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.Name == "ErrorCode" {
					codes = append(codes, int16(v.Field(i).Int()))
				} else if f.IsExported() {
					look(v.Field(i))
				}
			}
		}
	}
	look(reflect.ValueOf(out))
	slices.Sort(codes)
	return codes
}

// deniedRequests are asked as alice at both clusters: what may be refused, for
// things that she may have, may not have, and that don't exist.
func deniedRequests() map[string]kmsg.Request {
	topics := []string{"orders", "orders-audit", "bills", "nonesuch"}
	all := map[string]kmsg.Request{}
	metadata := kmsg.NewPtrMetadataRequest()
	offsets := kmsg.NewPtrListOffsetsRequest()
	offsets.ReplicaID = -1
	epochs := kmsg.NewPtrOffsetForLeaderEpochRequest()
	deletes, partitions, records := kmsg.NewPtrDeleteTopicsRequest(), kmsg.NewPtrCreatePartitionsRequest(), kmsg.NewPtrDeleteRecordsRequest()
	partitions.ValidateOnly, partitions.TimeoutMillis, deletes.TimeoutMillis, records.TimeoutMillis = true, 5000, 5000, 5000
	configs, alter := kmsg.NewPtrDescribeConfigsRequest(), kmsg.NewPtrIncrementalAlterConfigsRequest()
	alter.ValidateOnly = true
	for _, name := range topics {
		metadata.Topics = append(metadata.Topics, kmsg.MetadataRequestTopic{Topic: kmsg.StringPtr(name)})
		offsets.Topics = append(offsets.Topics, kmsg.ListOffsetsRequestTopic{Topic: name, Partitions: []kmsg.ListOffsetsRequestTopicPartition{{CurrentLeaderEpoch: -1, Timestamp: -1}}})
		epochs.Topics = append(epochs.Topics, kmsg.OffsetForLeaderEpochRequestTopic{Topic: name, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{CurrentLeaderEpoch: -1}}})
		if name != "orders" {
			deletes.Topics = append(deletes.Topics, kmsg.DeleteTopicsRequestTopic{Topic: kmsg.StringPtr(name)})
			records.Topics = append(records.Topics, kmsg.DeleteRecordsRequestTopic{Topic: name, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: 0}}})
		}
		partitions.Topics = append(partitions.Topics, kmsg.CreatePartitionsRequestTopic{Topic: name, Count: 2})
		configs.Resources = append(configs.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: 2, ResourceName: name})
		alter.Resources = append(alter.Resources, kmsg.IncrementalAlterConfigsRequestResource{ResourceType: 2, ResourceName: name,
			Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: kmsg.StringPtr("100000")}}})
	}
	all["metadata"], all["list offsets"], all["epoch ends"], all["delete topics"], all["create partitions"] = metadata, offsets, epochs, deletes, partitions
	all["delete records"], all["describe configs"], all["alter configs"] = records, configs, alter
	create := kmsg.NewPtrCreateTopicsRequest()
	create.ValidateOnly, create.TimeoutMillis = true, 5000
	for _, name := range []string{"orders-new", "other-new"} {
		create.Topics = append(create.Topics, kmsg.CreateTopicsRequestTopic{Topic: name, NumPartitions: 1, ReplicationFactor: 1})
	}
	all["create topics"] = create
	for _, group := range []string{"readers", "others"} {
		commit := kmsg.NewPtrOffsetCommitRequest()
		commit.Group, commit.Generation = group, -1
		fetch := kmsg.NewPtrOffsetFetchRequest()
		fetch.Group = group
		g := kmsg.OffsetFetchRequestGroup{Group: group, MemberEpoch: -1}
		for _, name := range []string{"orders", "bills"} {
			commit.Topics = append(commit.Topics, kmsg.OffsetCommitRequestTopic{Topic: name, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{LeaderEpoch: -1}}})
			fetch.Topics = append(fetch.Topics, kmsg.OffsetFetchRequestTopic{Topic: name, Partitions: []int32{0}})
			g.Topics = append(g.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: name, Partitions: []int32{0}})
		}
		fetch.Groups = []kmsg.OffsetFetchRequestGroup{g}
		describe := kmsg.NewPtrDescribeGroupsRequest()
		describe.Groups = []string{group}
		all["commit as "+group], all["offsets of "+group], all["describe "+group] = commit, fetch, describe
	}
	acls := kmsg.NewPtrDescribeACLsRequest()
	acls.ResourceType, acls.ResourcePatternType, acls.Operation, acls.PermissionType = 1, 1, 1, 1
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.TimeoutMillis, elect.Topics = 5000, []kmsg.ElectLeadersRequestTopic{{Topic: "orders", Partitions: []int32{0}}}
	features := kmsg.NewPtrUpdateFeaturesRequest()
	features.ValidateOnly, features.TimeoutMillis = true, 5000
	features.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "none", MaxVersionLevel: 1, UpgradeType: 1}}
	reassign := kmsg.NewPtrListPartitionReassignmentsRequest()
	// Not among them: DescribeUserScramCredentials, which Kafka 4.4 leaves without an answer where it isn't allowed.
	all["acls"], all["elect"], all["features"], all["reassignments"] = acls, elect, features, reassign
	id := kmsg.NewPtrInitProducerIDRequest()
	id.ProducerID, id.ProducerEpoch = -1, -1
	all["producer id"] = id
	return all
}

// TestPermissionsCarryOver: the standby of a Kafka cluster has its ACLs, says whose
// passwords it lacks, and after the failover answers alice as Kafka did: the same error
// codes for the same requests.
func TestPermissionsCarryOver(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	kafka := guardedKafka(t)
	admin := client(t, kafka.Bootstrap(), scramOf("admin", "admins"))
	for _, topic := range []string{"orders", "orders-audit", "bills"} {
		fillTopic(ctx, t, client(t, kafka.Bootstrap(), scramOf("admin", "admins")), topic, 10)
	}
	createACLs(ctx, t, admin, "ALLOW User:alice READ TOPIC LITERAL orders", "ALLOW User:alice WRITE TOPIC PREFIXED orders", "ALLOW User:alice CREATE TOPIC PREFIXED orders",
		"DENY User:alice WRITE TOPIC LITERAL orders-audit", "ALLOW User:alice ALTER_CONFIGS TOPIC LITERAL orders", "ALLOW User:* DESCRIBE TOPIC LITERAL bills",
		"ALLOW User:alice READ GROUP LITERAL readers", "DENY User:alice DESCRIBE TOPIC LITERAL orders-audit", "ALLOW User:broker CLUSTER_ACTION CLUSTER LITERAL kafka-cluster")
	standby, guarded := guardedStandby(t, kafka.Bootstrap())
	operator := client(t, standby.kafka)
	want := slices.DeleteFunc(aclsOf(ctx, t, admin), func(line string) bool { return strings.Contains(line, "CLUSTER_ACTION") })
	eventually(t, time.Minute, "the standby has the source's entries", func() error {
		if got := aclsOf(ctx, t, operator); !slices.Equal(got, want) {
			return fmt.Errorf("it has %q, want %q", got, want)
		}
		return nil
	})
	standby.waitSaid(30*time.Second, "alice (SCRAM-SHA-256)", "without a password here")
	standby.waitCaughtUp(30*time.Second, ends(ctx, t, admin, "orders", "orders-audit", "bills"))

	asKafka := askAsAlice(ctx, t, kafka.Bootstrap())
	if code, _, errOut := standby.tidemark("mirror", "failover", "standby", "--yes"); code != 0 {
		t.Fatal(errOut)
	}
	out, err := kadm.NewClient(operator).AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: "alice", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "alices"}})
	if err == nil {
		err = out.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	asHere := askAsAlice(ctx, t, guarded)
	for name, codes := range asKafka {
		if !reflect.DeepEqual(codes, asHere[name]) {
			t.Errorf("%s: Kafka answers %v, the standby %v", name, codes, asHere[name])
		}
	}
}

// askAsAlice asks everything and gives the error codes of each answer.
func askAsAlice(ctx context.Context, t *testing.T, bootstrap string) map[string]any {
	t.Helper()
	cl := client(t, bootstrap, scramOf("alice", "alices"), kgo.RecordRetries(0), kgo.RequestRetries(0))
	out := map[string]any{}
	for _, topic := range []string{"orders", "orders-audit", "bills"} {
		err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr()
		out["produce "+topic] = fmt.Sprint(err)
	}
	for name, in := range deniedRequests() {
		resp, err := cl.SeedBrokers()[0].Request(ctx, in) // as it is: the client itself would split it and try again
		if err != nil {
			t.Errorf("%s at %s: %v", name, bootstrap, err)
			continue
		}
		out[name] = codesIn(resp)
	}
	seen, err := kadm.NewClient(cl).ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	out["topics"] = slices.DeleteFunc(seen.Names(), func(name string) bool { return strings.HasPrefix(name, "__") })
	return out
}

// TestKafkasSecurityTools: kafka-acls and kafka-configs work as they are, and what they set holds.
func TestKafkasSecurityTools(t *testing.T) {
	ctx := testContext(t, 4*time.Minute)
	n := newNode(t, "serve")
	guarded := n.guard()
	createTopic(ctx, t, client(t, n.kafka), "orders", 1, 1)
	const acls, configs = "org.apache.kafka.tools.AclCommand", "org.apache.kafka.tools.ConfigCommand"
	tool(ctx, t, configs, "--bootstrap-server", n.kafka, "--alter", "--entity-type", "users", "--entity-name", "alice", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=alices]")
	mustSay(t, "describe users", tool(ctx, t, configs, "--bootstrap-server", n.kafka, "--describe", "--entity-type", "users", "--entity-name", "alice"), `SCRAM-SHA-256=iterations=8192`)
	tool(ctx, t, acls, "--bootstrap-server", n.kafka, "--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
	mustSay(t, "list", tool(ctx, t, acls, "--bootstrap-server", n.kafka, "--list", "--topic", "orders"), `principal=User:alice.*operation=WRITE.*permissionType=ALLOW`)
	alice := client(t, guarded, scramOf("alice", "alices"), kgo.RecordRetries(0))
	produce := func() error {
		return alice.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("x")}).FirstErr()
	}
	if err := produce(); err != nil {
		t.Error(err)
	}
	tool(ctx, t, acls, "--bootstrap-server", n.kafka, "--remove", "--force", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
	if err := produce(); err == nil {
		t.Error("alice writes without a permission")
	}
	tool(ctx, t, configs, "--bootstrap-server", n.kafka, "--alter", "--entity-type", "users", "--entity-name", "alice", "--delete-config", "SCRAM-SHA-256")
	if err := client(t, guarded, scramOf("alice", "alices"), kgo.RequestRetries(0)).Ping(ctx); err == nil {
		t.Error("alice logs in without a credential")
	}
}
