package mirror

import (
	"errors"
	"slices"
	"testing"

	"tidemark/internal/config"
	"tidemark/internal/core/acl"
	"tidemark/internal/core/meta"
	"tidemark/internal/source"
)

func aclOf(name, principal string, op acl.Operation, p acl.Permission) acl.Binding {
	return acl.Binding{Resource: acl.Topic, Pattern: acl.Literal, Name: name, Principal: principal, Host: "*", Operation: op, Permission: p}
}

func TestACLFilter(t *testing.T) {
	cluster := acl.Binding{Resource: acl.Cluster, Pattern: acl.Literal, Name: acl.ClusterName, Principal: "User:broker", Host: "*", Operation: acl.ClusterAction, Permission: acl.Allow}
	orders, denied := aclOf("orders", "User:alice", acl.Read, acl.Allow), aclOf("bills", "User:CN=bob,O=Acme", acl.Write, acl.Deny)
	f := func(name string, include, exclude []string, want ...acl.Binding) {
		t.Helper()
		filter, err := newACLFilter(include, exclude)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []acl.Binding
		for _, b := range []acl.Binding{cluster, orders, denied} {
			if filter.copies(b) {
				got = append(got, b)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	f("nothing", nil, nil)
	f("everything", []string{"*"}, nil, cluster, orders, denied)
	f("by default the source's brokers aren't brokers here", []string{"*"}, []string{"CLUSTER;*;CLUSTER_ACTION"}, orders, denied)
	f("resource", []string{"topic"}, nil, orders, denied)
	f("name", []string{"TOPIC;ord.*"}, nil, orders)
	f("a name is whole", []string{"TOPIC;ord"}, nil)
	f("permission", []string{"*;*;*;DENY"}, nil, denied)
	f("principal", []string{`*;*;*;*;User:CN=.*\x2cO=Acme`}, nil, denied)
	f("two rules, exclude wins", []string{"TOPIC;orders", "TOPIC;bills"}, []string{"*;bills"}, orders)
	for _, rule := range []string{"QUEUE", "TOPIC;(", "TOPIC;*;EAT", "TOPIC;*;*;MAYBE", "a;b;c;d;e;f"} {
		if _, err := newACLFilter([]string{rule}, nil); !errors.Is(err, ErrSpec) {
			t.Errorf("%q: %v, want ErrSpec", rule, err)
		}
	}
}

// TestCompareACLs: what is added, taken away, and left alone.
func TestCompareACLs(t *testing.T) {
	r := &run{name: "m"}
	keys := meta.KeysOf("c")
	own, copied, old, others := aclOf("own", "User:a", acl.Read, acl.Allow), aclOf("copied", "User:a", acl.Read, acl.Allow), aclOf("old", "User:a", acl.Read, acl.Deny), aclOf("others", "User:a", acl.Read, acl.Allow)
	var kvs []meta.KV
	for b, mirror := range map[acl.Binding]string{own: "", copied: "m", old: "m", others: "another"} {
		kvs = append(kvs, meta.KV{Key: keys.ACL(b), Value: meta.NewACLRecord(b, mirror).Encode(), CreateRevision: 2, ModRevision: 2})
	}
	image, _ := meta.Load("c", kvs, 2)
	f, err := newACLFilter([]string{"*"}, []string{"*;left-out"})
	if err != nil {
		t.Fatal(err)
	}
	listed := func(b acl.Binding) source.ACL {
		return source.ACL{Resource: int8(b.Resource), Pattern: int8(b.Pattern), Name: b.Name, Principal: b.Principal, Host: b.Host, Operation: int8(b.Operation), Permission: int8(b.Permission)}
	}
	fresh, leftOut := aclOf("fresh", "User:a", acl.Write, acl.Allow), aclOf("left-out", "User:a", acl.Write, acl.Allow)
	strange := listed(fresh)
	strange.Resource = 99
	d := r.compareACLs(image, f, []source.ACL{listed(own), listed(copied), listed(fresh), listed(fresh), listed(leftOut), strange})
	if !slices.Equal(d.add, []acl.Binding{fresh}) || !slices.Equal(d.remove, []acl.Binding{old}) || d.copied != 2 || d.foreign != 1 || d.leftOut != 1 || d.unknown != 1 {
		t.Errorf("%+v", d)
	}
	if text := d.text(); text != "2 copied, 1 written here by others, 1 left out by the filters" {
		t.Error(text)
	}
	d.unenforced = true
	if text := d.text(); text != "2 copied, 1 written here by others, 1 left out by the filters, not enforced by this node (authorizer=off)" {
		t.Error(text)
	}
}

// TestAMirrorTakesNothingOfAnEarlierOne: made again under the name of one that was deleted,
// with another source, a mirror took away what the first had copied: it guards what was failed over.
func TestAMirrorTakesNothingOfAnEarlierOne(t *testing.T) {
	n := timedNode{newPaperNode(t, 0)}
	keys := meta.KeysOf(paperCluster)
	n.put(t, keys.Features(), meta.FeaturesRecord{Levels: map[string]int16{meta.FeatureMetadata: meta.LevelSecurity}}.Encode())
	guard := aclOf("orders", "User:a", acl.Write, acl.Deny)
	n.put(t, keys.ACL(guard), meta.NewACLRecord(guard, "m").Encode())
	m := &Mirrors{o: Options{Node: n, Config: config.Default()}, ctx: t.Context()}
	if err := m.Create(t.Context(), Spec{Name: "m", Bootstrap: []string{"h:1"}}); err != nil {
		t.Fatal(err)
	}
	d := (&run{name: "m"}).compareACLs(n.Image(), aclFilter{}, nil)
	if _, ok := n.Image().Mirror("m"); !ok || len(d.remove) > 0 {
		t.Errorf("made %t, it takes away %v", ok, d.remove)
	}
}
