package api

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/telemetry"
)

// denials gives what was counted, as OPERATION RESOURCE.
func denials(t *testing.T, m *telemetry.Metrics) []string {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if f.GetName() == "tidemark_security_denials_total" {
			for _, one := range f.GetMetric() {
				out = append(out, one.GetLabel()[0].GetValue()+" "+one.GetLabel()[1].GetValue())
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestWhatIsADenial: what a client asked for by name and may not have is one; what
// a list leaves out, and the first of two permissions that would do, isn't.
func TestWhatIsADenial(t *testing.T) {
	f := func(name string, in kmsg.Request, version int16, want ...string) {
		t.Helper()
		w := secretWorld(t).guarded("allow READ TOPIC literal mine", "allow IDEMPOTENT_WRITE CLUSTER literal kafka-cluster")
		m := telemetry.New()
		w.server.Audit, w.server.Groups = telemetry.NewAudit(m, telemetry.Discard()), agreeing{&fakeGroups{node: 1}}
		if _, err := w.by("User:alice", in, version); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := denials(t, m); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	all := kmsg.NewPtrMetadataRequest()
	all.IncludeClusterAuthorizedOperations = true
	f("all topics", all, 9)
	one := kmsg.NewPtrMetadataRequest()
	one.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("secret")}}
	f("a topic by name", one, 9, "DESCRIBE TOPIC")
	f("all groups", kmsg.NewPtrListGroupsRequest(), 4)
	id := kmsg.NewPtrInitProducerIDRequest()
	id.ProducerID, id.ProducerEpoch = -1, -1
	f("a producer id by the second permission", id, 4)
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "secret", NumPartitions: 1, ReplicationFactor: 1}}
	f("a topic to be made", create, 5, "CREATE TOPIC")
	acls := kmsg.NewPtrDescribeACLsRequest()
	acls.ResourceType, acls.ResourcePatternType, acls.Operation, acls.PermissionType = 1, 1, 1, 1
	f("the ACLs", acls, 2, "DESCRIBE CLUSTER")
}
