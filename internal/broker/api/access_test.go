package api

import (
	"bytes"
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/acl"
	"tidemark/internal/core/meta"
	"tidemark/internal/wire"
)

// guarded gives a world an authorizer, and its ACLs by lines such as
// "allow READ TOPIC literal secret", all of User:alice.
func (w *world) guarded(lines ...string) *world {
	w.server.Access = NewAccess(acl.Rules{SuperUsers: map[string]bool{"User:root": true}})
	w.grant(lines...)
	return w
}

func (w *world) grant(lines ...string) {
	kvs := map[string][]byte{}
	for _, line := range lines {
		r := meta.NewACLRecord(binding(w.t, line), "")
		kvs[w.image.Keys().ACL(r.Binding())] = r.Encode()
	}
	w.apply(kvs)
}

func binding(t testing.TB, line string) acl.Binding {
	t.Helper()
	f := strings.Fields(line)
	b := acl.Binding{Name: f[4], Principal: "User:alice", Host: acl.Wildcard}
	for _, err := range []error{
		b.Permission.UnmarshalText([]byte(strings.ToUpper(f[0]))), b.Operation.UnmarshalText([]byte(f[1])),
		b.Resource.UnmarshalText([]byte(f[2])), b.Pattern.UnmarshalText([]byte(strings.ToUpper(f[3]))), b.Validate(),
	} {
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return b
}

// by sends a request as somebody.
func (w *world) by(principal string, in kmsg.Request, version int16) (kmsg.Response, error) {
	w.t.Helper()
	req := request(in, version, "test")
	req.Secure, req.Principal, req.Remote = true, principal, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5}
	return w.send(context.Background(), req, in)
}

// filled makes a request in which every list has one element, every text is
// "secret", and every id that topic's.
func filled(key wire.Key) kmsg.Request {
	in := wire.NewRequest(key)
	fill(reflect.ValueOf(in).Elem())
	switch in := in.(type) {
	case *kmsg.FetchRequest:
		in.ReplicaID, in.ReplicaState.ID, in.SessionEpoch = -1, -1, -1
		in.ForgottenTopics = nil
	case *kmsg.ProduceRequest:
		in.Acks, in.TransactionID = 1, nil
		in.Topics[0].Partitions[0].Records = rawBatch(1, 10)
	case *kmsg.InitProducerIDRequest:
		in.TransactionalID, in.ProducerID, in.ProducerEpoch = nil, -1, -1
	case *kmsg.DeleteTopicsRequest:
		in.Topics[0].TopicID = [16]byte{}
	case *kmsg.MetadataRequest:
		in.Topics[0].TopicID = [16]byte{}
	case *kmsg.DescribeTopicPartitionsRequest:
		in.Cursor = nil
	}
	return in
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() && v.Type().Field(i).Name != "UnknownTags" && v.Type().Field(i).Name != "Version" {
				fill(f)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.String:
		v.SetString("secret")
	case reflect.Array:
		if v.Type() == reflect.TypeFor[[16]byte]() || v.Len() == 16 {
			reflect.Copy(v, reflect.ValueOf([16]byte(topicIDOf("secret"))))
		}
	}
}

// refusals counts the error codes of an answer that say that something isn't allowed.
func refusals(out any) int {
	denied := []wire.ErrCode{wire.ErrTopicAuthorizationFailed, wire.ErrGroupAuthorizationFailed, wire.ErrClusterAuthorizationFailed, wire.ErrTransactionalIDAuthorizationFailed}
	n := 0
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
				if v.Type().Field(i).Name == "ErrorCode" {
					for _, d := range denied {
						if v.Field(i).Int() == int64(d) {
							n++
						}
					}
				} else if v.Type().Field(i).IsExported() {
					look(v.Field(i))
				}
			}
		}
	}
	look(reflect.ValueOf(out))
	return n
}

// secretWorld has a topic "secret", led here, and a group coordinator that fails the test when asked.
func secretWorld(t *testing.T) *world {
	w := newWorld(t)
	w.topic("secret", topicOptions{})
	w.part("secret", 0).fill(1, 10)
	return w
}

// open are the APIs that everybody may ask.
var openKeys = map[wire.Key]bool{
	wire.KeyApiVersions: true, wire.KeySaslHandshake: true, wire.KeySaslAuthenticate: true, wire.KeyDescribeCluster: true,
	wire.KeyListGroups: true, wire.KeyListTransactions: true, // show what may be described: TestListsShowWhatMayBeSeen
	wire.KeyGetTelemetrySubscriptions: true, wire.KeyPushTelemetry: true,
}

// TestEveryAPIHasARule: an API can't come into the table without one; and one that
// has none is closed, not open.
func TestEveryAPIHasARule(t *testing.T) {
	w := secretWorld(t).guarded()
	for key := range w.server.byKey {
		if _, ok := w.server.rules[key]; !ok {
			t.Errorf("no rule says who may ask %s: add it to rules_*.go (accessRules)", key)
		}
	}
	delete(w.server.rules, wire.KeyListOffsets)
	if _, err := w.by("User:root", filled(wire.KeyListOffsets), 1); !errors.Is(err, ErrClose) {
		t.Errorf("an API without a rule: %v", err)
	}
}

// TestNothingIsAllowed: with an authorizer and no ACL, every version of every API
// refuses, its handler never sees the request, and nothing happens.
func TestNothingIsAllowed(t *testing.T) {
	w := secretWorld(t).guarded()
	w.server.Groups, w.server.Security = nil, nil // asking them would panic
	for key := range w.server.byKey {
		if openKeys[key] {
			continue
		}
		api, _ := wire.LookupAPI(key)
		for version := api.Min; version <= api.Max; version++ {
			out, err := w.by("User:alice", filled(key), version)
			if err != nil || out == nil {
				t.Errorf("%s %d: %v, %v", key, version, out, err)
				continue
			}
			if n := refusals(out); n == 0 && !(key == wire.KeyDescribeLogDirs && version < 3 && len(out.(*kmsg.DescribeLogDirsResponse).Dirs) == 0) {
				t.Errorf("%s %d answers %+v", key, version, out)
			}
		}
	}
	if f := &w.topics; len(f.created)+len(f.deleted)+len(f.added)+len(f.altered) > 0 {
		t.Errorf("the handlers were asked: %+v", f)
	}
	if end := w.part("secret", 0).batches; len(end) != 1 {
		t.Errorf("%d batches, want the one that was there", len(end))
	}
}

// TestSuperUsersSeeNoDifference: what a super user is answered is what everybody is
// answered without an authorizer, byte for byte.
func TestSuperUsersSeeNoDifference(t *testing.T) {
	for key := range newWorld(t).server.byKey {
		api, _ := wire.LookupAPI(key)
		if key == wire.KeyDescribeAcls || key == wire.KeyCreateAcls || key == wire.KeyDeleteAcls || key == wire.KeyDescribeScramKeys {
			continue // without an authorizer they say so
		}
		for version := api.Min; version <= api.Max; version++ {
			answer := func(w *world) []byte {
				w.server.Groups = agreeing{&fakeGroups{node: 1}}
				w.server.Security = &fakeSecurity{}
				req := request(filled(key), version, "test")
				req.Principal = "User:root"
				resp, err := w.server.Handle(context.Background(), req)
				if err != nil || resp == nil {
					return nil
				}
				defer resp.Done()
				return flat(resp)
			}
			open, guarded := answer(secretWorld(t)), answer(secretWorld(t).guarded())
			if !bytes.Equal(open, guarded) {
				t.Errorf("%s %d: %x, with an authorizer %x", key, version, open, guarded)
			}
		}
	}
}

// TestWhatEachAPITakes: with these ACLs a request passes, and without any one of them it doesn't.
func TestWhatEachAPITakes(t *testing.T) {
	const cluster, topic, group, txn = " CLUSTER literal kafka-cluster", " TOPIC literal secret", " GROUP literal secret", " TRANSACTIONAL_ID literal secret"
	f := func(key wire.Key, change func(kmsg.Request), lines ...string) {
		t.Helper()
		api, _ := wire.LookupAPI(key)
		try := func(lines ...string) int {
			w := secretWorld(t).guarded(lines...)
			if _, served := w.server.byKey[key]; !served {
				return -1
			}
			w.server.Groups, w.server.Security = agreeing{&fakeGroups{node: 1}}, &fakeSecurity{}
			in := filled(key)
			if change != nil {
				change(in)
			}
			out, err := w.by("User:alice", in, api.Max)
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			return refusals(out)
		}
		if n := try(lines...); n > 0 {
			t.Errorf("%s with %q: %d refusals", key, lines, n)
		}
		for i := range lines {
			without := append(append([]string{}, lines[:i]...), lines[i+1:]...)
			if n := try(without...); n == 0 {
				t.Errorf("%s passes without %q", key, lines[i])
			}
		}
	}
	allow := func(op, on string) string { return "allow " + op + on }
	f(wire.KeyProduce, nil, allow("WRITE", topic))
	f(wire.KeyFetch, nil, allow("READ", topic))
	f(wire.KeyFetch, func(m kmsg.Request) { m.(*kmsg.FetchRequest).ReplicaState.ID = 2 }, allow("CLUSTER_ACTION", cluster))
	f(wire.KeyListOffsets, nil, allow("DESCRIBE", topic))
	f(wire.KeyMetadata, nil, allow("DESCRIBE", topic))
	f(wire.KeyDescribeTopicPartitions, nil, allow("DESCRIBE", topic))
	f(wire.KeyOffsetForLeaderEpoch, nil, allow("DESCRIBE", topic))
	f(wire.KeyOffsetForLeaderEpoch, nil, allow("CLUSTER_ACTION", cluster))
	f(wire.KeyDescribeLineage, nil, allow("DESCRIBE", topic))
	f(wire.KeyCreateTopics, nil, allow("CREATE", cluster))
	f(wire.KeyCreateTopics, nil, allow("CREATE", topic))
	f(wire.KeyDeleteTopics, nil, allow("DELETE", topic))
	f(wire.KeyDeleteRecords, nil, allow("DELETE", topic))
	f(wire.KeyCreatePartitions, nil, allow("ALTER", topic))
	f(wire.KeyInitProducerId, nil, allow("IDEMPOTENT_WRITE", cluster))
	f(wire.KeyInitProducerId, nil, "allow WRITE TOPIC prefixed other")
	f(wire.KeyInitProducerId, func(m kmsg.Request) { m.(*kmsg.InitProducerIDRequest).TransactionalID = ptr("secret") }, allow("WRITE", txn))
	f(wire.KeyJoinGroup, nil, allow("READ", group))
	f(wire.KeySyncGroup, nil, allow("READ", group))
	f(wire.KeyHeartbeat, nil, allow("READ", group))
	f(wire.KeyLeaveGroup, nil, allow("READ", group))
	f(wire.KeyOffsetCommit, nil, allow("READ", group), allow("READ", topic))
	f(wire.KeyOffsetFetch, nil, allow("DESCRIBE", group), allow("DESCRIBE", topic))
	f(wire.KeyFindCoordinator, nil, allow("DESCRIBE", group))
	f(wire.KeyDescribeGroups, nil, allow("DESCRIBE", group))
	f(wire.KeyDeleteGroups, nil, allow("DELETE", group))
	f(wire.KeyOffsetDelete, nil, allow("DELETE", group), allow("READ", topic))
	byName := func(m kmsg.Request) { m.(*kmsg.ConsumerGroupHeartbeatRequest).SubscribedTopicRegex = nil }
	f(wire.KeyConsumerGroupHeartbeat, byName, allow("READ", group), allow("DESCRIBE", topic))
	f(wire.KeyConsumerGroupHeartbeat, nil, allow("READ", group), allow("DESCRIBE", topic)) // an expression needs nothing more
	f(wire.KeyConsumerGroupDescribe, nil, allow("DESCRIBE", group))
	asTopic := func(m kmsg.Request) {
		switch in := m.(type) {
		case *kmsg.DescribeConfigsRequest:
			in.Resources[0].ResourceType = kmsg.ConfigResourceTypeTopic
		case *kmsg.AlterConfigsRequest:
			in.Resources[0].ResourceType = kmsg.ConfigResourceTypeTopic
		case *kmsg.IncrementalAlterConfigsRequest:
			in.Resources[0].ResourceType = kmsg.ConfigResourceTypeTopic
		}
	}
	for key, op := range map[wire.Key]string{wire.KeyDescribeConfigs: "DESCRIBE_CONFIGS", wire.KeyAlterConfigs: "ALTER_CONFIGS", wire.KeyIncrementalAlterConfigs: "ALTER_CONFIGS"} {
		f(key, asTopic, allow(op, topic))
		f(key, nil, allow(op, cluster))
	}
	for key, op := range map[wire.Key]string{
		wire.KeyDescribeLogDirs: "DESCRIBE", wire.KeyElectLeaders: "ALTER", wire.KeyAlterPartitionReassignments: "ALTER", wire.KeyListPartitionReassignments: "DESCRIBE",
		wire.KeyDescribeQuorum: "DESCRIBE", wire.KeyDescribeClientQuotas: "DESCRIBE_CONFIGS", wire.KeyUpdateFeatures: "ALTER", wire.KeyUnregisterBroker: "ALTER",
		wire.KeyDescribeAcls: "DESCRIBE", wire.KeyCreateAcls: "ALTER", wire.KeyDeleteAcls: "ALTER",
		wire.KeyDescribeUserScramCredentials: "DESCRIBE", wire.KeyAlterUserScramCredentials: "ALTER",
		wire.KeyMirrorVerb: "CLUSTER_ACTION", wire.KeyWakeFetch: "CLUSTER_ACTION", wire.KeyDescribeScramKeys: "ALTER",
	} {
		f(key, nil, allow(op, cluster))
	}
}

// fakeSecurity remembers what it was asked for.
type fakeSecurity struct {
	add, remove []acl.Binding
	set         []meta.ScramRecord
	deleted     []meta.ScramID
	err         error
}

func (f *fakeSecurity) ChangeACLs(_ context.Context, add, remove []acl.Binding) error {
	f.add, f.remove = append(f.add, add...), append(f.remove, remove...)
	return f.err
}

func (f *fakeSecurity) ChangeCredentials(_ context.Context, set []meta.ScramRecord, remove []meta.ScramID) error {
	f.set, f.deleted = append(f.set, set...), append(f.deleted, remove...)
	return f.err
}
