//go:build kafka

package kafka_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"tidemark/test/kafka/cluster"
)

// said is one entry as either tool prints it, in one form.
type said struct {
	Permission string `json:"permissionType"`
	Principal  string `json:"principal"`
	Host       string `json:"host"`
	Operation  string `json:"operation"`
	Resource   string `json:"resourceType"`
	Pattern    string `json:"patternType"`
	Name       string `json:"resourceName"`
}

func (s said) String() string {
	return strings.Join([]string{s.Permission, s.Principal, s.Host, s.Operation, s.Resource, s.Pattern, s.Name}, " ")
}

// kafkaSays reads what kafka-acls --list prints.
func kafkaSays(out string) []string {
	field := func(text, name string) string {
		_, rest, _ := strings.Cut(text, name+"=")
		if end := strings.IndexAny(rest, ",)`"); end >= 0 {
			rest = rest[:end]
		}
		return strings.TrimSpace(rest)
	}
	var list []string
	var of said
	for line := range strings.SplitSeq(out, "\n") {
		switch {
		case strings.Contains(line, "ResourcePattern("):
			of = said{Resource: field(line, "resourceType"), Name: field(line, "name"), Pattern: field(line, "patternType")}
		case strings.Contains(line, "principal="):
			one := of
			one.Principal, one.Host, one.Operation, one.Permission = field(line, "principal"), field(line, "host"), field(line, "operation"), field(line, "permissionType")
			list = append(list, one.String())
		}
	}
	slices.Sort(list)
	return list
}

// TestOurToolAndKafkas: what kafka-acls and kafka-configs make, tidemark lists, and the
// other way round, at a Tidemark node and at Kafka's own brokers; one takes away what the other made.
func TestOurToolAndKafkas(t *testing.T) {
	ctx := testContext(t, 4*time.Minute)
	n := newNode(t, "serve")
	n.guard()
	kafka := cluster.Start(t, cluster.Options{Props: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ANONYMOUS"}})
	const acls, configs = "org.apache.kafka.tools.AclCommand", "org.apache.kafka.tools.ConfigCommand"
	grants := [][]string{
		{"--allow-principal", "User:alice", "--producer", "--topic", "orders", "--transactional-id", "tx", "--idempotent"},
		{"--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "readers"},
		{"--deny-principal", "User:eve", "--deny-host", "10.0.0.9", "--operation", "Read", "--operation", "DescribeConfigs", "--topic", "app-", "--resource-pattern-type", "prefixed"},
		{"--allow-principal", "User:bob", "--operation", "All", "--cluster"},
	}
	for _, at := range []string{n.kafka, kafka.Bootstrap()} {
		ours := func(args ...string) string {
			t.Helper()
			code, out, errOut := n.tidemark(append(args, "--bootstrap", at)...)
			if code != 0 {
				t.Fatalf("tidemark %s: %s", strings.Join(args, " "), errOut)
			}
			return out
		}
		lists := func() (here, there []string) {
			t.Helper()
			var rows []said
			if err := json.Unmarshal([]byte(ours("acl", "list", "-o", "json")), &rows); err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				here = append(here, r.String())
			}
			slices.Sort(here)
			return here, kafkaSays(tool(ctx, t, acls, "--bootstrap-server", at, "--list"))
		}
		for _, g := range grants {
			tool(ctx, t, acls, append([]string{"--bootstrap-server", at, "--add"}, g...)...)
		}
		kafkas, there := lists()
		if len(kafkas) != 11 || !slices.Equal(kafkas, there) {
			t.Errorf("%s: kafka-acls made %q, tidemark lists %q", at, there, kafkas)
		}
		for _, g := range grants {
			ours(append([]string{"acl", "remove", "--yes"}, g...)...)
		}
		if here, there := lists(); len(here)+len(there) != 0 {
			t.Errorf("%s: left after tidemark acl remove: %q, %q", at, here, there)
		}
		for _, g := range grants {
			ours(append([]string{"acl", "add"}, g...)...)
		}
		if here, there := lists(); !slices.Equal(here, kafkas) || !slices.Equal(there, kafkas) {
			t.Errorf("%s: the same options make %q with tidemark, kafka-acls lists %q; with kafka-acls they made %q", at, here, there, kafkas)
		}
		ours("user", "add", "carol", "--password", "carols", "--iterations", "8192")
		mustSay(t, "kafka-configs", tool(ctx, t, configs, "--bootstrap-server", at, "--describe", "--entity-type", "users", "--entity-name", "carol"),
			"SCRAM-SHA-256=iterations=8192", "SCRAM-SHA-512=iterations=8192")
		tool(ctx, t, configs, "--bootstrap-server", at, "--alter", "--entity-type", "users", "--entity-name", "dave", "--add-config", "SCRAM-SHA-512=[iterations=4096,password=daves]")
		mustSay(t, "user list", ours("user", "list"), `carol +SCRAM-SHA-256 +8192`, `dave +SCRAM-SHA-512 +4096`)
		ours("user", "passwd", "dave", "--password", "new")
		ours("user", "remove", "carol", "--yes")
		if out := ours("user", "list"); strings.Contains(out, "carol") {
			t.Errorf("%s: carol is still there: %s", at, out)
		}
	}
}
