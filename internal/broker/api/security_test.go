package api

import (
	"bytes"
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/xdg-go/scram"

	"tidemark/internal/core/acl"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// askBy is by for requests that must be answered.
func askBy[Out kmsg.Response](w *world, principal string, in kmsg.Request, version int16) Out {
	w.t.Helper()
	out, err := w.by(principal, in, version)
	if err != nil {
		w.t.Fatalf("%T %d: %v", in, version, err)
	}
	return out.(Out)
}

// TestMetadataShowsWhatMayBeSeen: hidden topics aren't among all, and by name they
// look like topics that don't exist.
func TestMetadataShowsWhatMayBeSeen(t *testing.T) {
	w := newWorld(t).guarded("allow READ TOPIC literal seen", "allow CREATE TOPIC prefixed new-", "allow DESCRIBE TOPIC prefixed new-")
	w.settings.AutoCreateTopics = true
	w.topic("seen", topicOptions{})
	w.topic("hidden", topicOptions{})
	all := askBy[*kmsg.MetadataResponse](w, "User:alice", &kmsg.MetadataRequest{}, 12)
	if len(all.Topics) != 1 || *all.Topics[0].Topic != "seen" {
		t.Errorf("all topics: %+v", all.Topics)
	}
	page := askBy[*kmsg.DescribeTopicPartitionsResponse](w, "User:alice", &kmsg.DescribeTopicPartitionsRequest{}, 0)
	if len(page.Topics) != 1 || *page.Topics[0].Topic != "seen" {
		t.Errorf("described topics: %+v", page.Topics)
	}
	in := metadataOf("seen", "hidden", "nonesuch", "new-1")
	in.AllowAutoTopicCreation, in.IncludeTopicAuthorizedOperations = true, true
	out := askBy[*kmsg.MetadataResponse](w, "User:alice", in, 12)
	var codes []wire.ErrCode
	for _, topic := range out.Topics {
		codes = append(codes, wire.ErrCode(topic.ErrorCode))
	}
	denied := wire.ErrTopicAuthorizationFailed
	if want := []wire.ErrCode{wire.None, denied, denied, wire.None}; !slices.Equal(codes, want) {
		t.Errorf("%v, want %v", codes, want)
	}
	if out.Topics[1].TopicID != [16]byte{} || len(out.Topics[1].Partitions) > 0 {
		t.Errorf("of a hidden topic is told: %+v", out.Topics[1])
	}
	if ops := out.Topics[0].AuthorizedOperations; ops != 1<<acl.Read|1<<acl.Describe {
		t.Errorf("operations %b", ops)
	}
	if len(w.topics.created) != 1 || w.topics.created[0].Name != "new-1" {
		t.Errorf("created %+v", w.topics.created)
	}
	byID := &kmsg.MetadataRequest{Topics: []kmsg.MetadataRequestTopic{{TopicID: topicIDOf("hidden")}}}
	if topic := askBy[*kmsg.MetadataResponse](w, "User:alice", byID, 12).Topics[0]; wire.ErrCode(topic.ErrorCode) != denied || topic.Topic != nil {
		t.Errorf("a hidden topic by its id: %+v", topic)
	}
}

// TestViewsTakeBothPermissions: what the vault keeps of a topic is no way around it.
func TestViewsTakeBothPermissions(t *testing.T) {
	w := newWorld(t).guarded("allow READ TOPIC prefixed __vault.", "deny READ TOPIC literal secret")
	c := &Call{Server: w.server, Image: w.server.Image(), Req: &wire.Request{Principal: "User:alice"}}
	for name, want := range map[string]bool{"__vault.secret": false, "__vault.x": false} {
		if got := c.mayTopic(acl.Read, name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	w.grant("allow READ TOPIC literal x")
	c.Image = w.server.Image()
	if !c.mayTopic(acl.Read, "__vault.x") || c.mayTopic(acl.Read, "__vault.secret") {
		t.Error("a view takes READ of the topic that it shows")
	}
}

// TestListsShowWhatMayBeSeen: lists of groups and offsets leave out the rest.
func TestListsShowWhatMayBeSeen(t *testing.T) {
	w := newWorld(t).guarded("allow DESCRIBE GROUP literal mine", "allow READ TOPIC literal seen")
	fake := &listing{agreeing: agreeing{&fakeGroups{node: 1}}}
	w.server.Groups = fake
	if out := askBy[*kmsg.ListGroupsResponse](w, "User:alice", &kmsg.ListGroupsRequest{}, 4); len(out.Groups) != 1 || out.Groups[0].Group != "mine" {
		t.Errorf("groups: %+v", out.Groups)
	}
	if out := askBy[*kmsg.ListGroupsResponse](w, "User:root", &kmsg.ListGroupsRequest{}, 4); len(out.Groups) != 2 {
		t.Errorf("a super user sees %+v", out.Groups)
	}
	for version := int16(2); version <= 9; version++ {
		in := kmsg.NewPtrOffsetFetchRequest()
		in.Group, in.Groups = "mine", []kmsg.OffsetFetchRequestGroup{{Group: "mine"}, {Group: "other"}}
		out := askBy[*kmsg.OffsetFetchResponse](w, "User:alice", in, version)
		var topics []string
		for _, topic := range out.Topics {
			topics = append(topics, topic.Topic)
		}
		for _, g := range out.Groups {
			for _, topic := range g.Topics {
				topics = append(topics, topic.Topic)
			}
			if (g.Group == "other") != (wire.ErrCode(g.ErrorCode) == wire.ErrGroupAuthorizationFailed) {
				t.Errorf("version %d: group %s: %v", version, g.Group, wire.ErrCode(g.ErrorCode))
			}
		}
		if !slices.Equal(topics, []string{"seen"}) {
			t.Errorf("version %d shows %v", version, topics)
		}
	}
}

// listing has two groups with offsets of two topics.
type listing struct{ agreeing }

func (listing) List(context.Context, []string, []string) ([]group.Listing, errcode.Code) {
	return []group.Listing{{Group: "mine"}, {Group: "other"}}, errcode.None
}

func (listing) Offsets(context.Context, string) ([]group.OffsetEntry, errcode.Code) {
	return []group.OffsetEntry{{TopicPartition: types.TopicPartition{Topic: "hidden"}}, {TopicPartition: types.TopicPartition{Topic: "seen"}}}, errcode.None
}

// TestProduceWithoutAcks: what may be written is, the rest costs the connection.
func TestProduceWithoutAcks(t *testing.T) {
	w := newWorld(t).guarded("allow WRITE TOPIC literal mine")
	w.topic("mine", topicOptions{})
	w.topic("other", topicOptions{})
	in := produceOf(0, "mine", topicIDOf("mine"), map[int32][]byte{0: rawBatch(1, 10)})
	in.Topics = append(in.Topics, produceOf(0, "other", topicIDOf("other"), map[int32][]byte{0: rawBatch(1, 10)}).Topics...)
	if _, err := w.by("User:alice", in, 9); !errors.Is(err, ErrClose) {
		t.Errorf("%v", err)
	}
	if len(w.part("mine", 0).batches) != 1 || len(w.part("other", 0).batches) != 0 {
		t.Error("the wrong topic was written")
	}
}

// TestRevocation: an answer lasts until an ACL changes, in a fetch session too.
func TestRevocation(t *testing.T) {
	w := newWorld(t).guarded("allow READ TOPIC literal t")
	w.topic("t", topicOptions{})
	w.part("t", 0).fill(2, 10).advance(2)
	fetchAs := func(session, epoch int32) *kmsg.FetchResponse {
		in := fetchOf(want{topic: "t", epoch: unsaid, last: unsaid})
		in.SessionID, in.SessionEpoch = session, epoch
		if epoch > 0 {
			in.Topics = nil
		}
		return askBy[*kmsg.FetchResponse](w, "User:alice", in, 11)
	}
	first := fetchAs(0, 0)
	if refusals(first) != 0 || len(first.Topics) != 1 || first.SessionID == 0 {
		t.Fatalf("%+v", first)
	}
	w.grant("deny READ TOPIC literal t")
	if out := fetchAs(first.SessionID, 1); refusals(out) != 1 || len(out.Topics[0].Partitions[0].RecordBatches) > 0 {
		t.Errorf("after a denial: %+v", out)
	}
	w.apply(map[string][]byte{w.image.Keys().ACL(binding(t, "deny READ TOPIC literal t")): nil})
	if out := fetchAs(first.SessionID, 2); refusals(out) != 0 || len(out.Topics) != 1 {
		t.Errorf("after its end: %+v", out)
	}
}

// TestUnreadableACLCloses (I-328): it may deny anything to anybody.
func TestUnreadableACLCloses(t *testing.T) {
	w := newWorld(t).guarded("allow ALL TOPIC literal *")
	image := w.server.Image()
	may := func(principal string, image *meta.Image) bool {
		return w.server.Access.allows(image, question{principal: principal, op: acl.Read, resource: acl.Topic, name: "t"})
	}
	if !may("User:alice", image) {
		t.Fatal("not allowed to begin with")
	}
	key := image.Keys().ACLByID("unknown")
	image, _ = image.Apply(meta.Events{Revision: image.Revision() + 1, Events: []meta.Event{{KV: meta.KV{Key: key, Value: []byte("{"), CreateRevision: image.Revision() + 1, ModRevision: image.Revision() + 1}}}})
	if may("User:alice", image) || !may("User:root", image) {
		t.Error("an ACL that can't be read leaves things open")
	}
	image, _ = image.Apply(meta.Events{Revision: image.Revision() + 1, Events: []meta.Event{{Kind: meta.EventDelete, KV: meta.KV{Key: key, ModRevision: image.Revision() + 1}}}})
	if !may("User:alice", image) {
		t.Error("it goes on after its end")
	}
}

// TestKeptAnswersAreBounded: whoever asks for whatever.
func TestKeptAnswersAreBounded(t *testing.T) {
	w := newWorld(t).guarded()
	for i := range 3 * answersMax {
		w.server.Access.allows(w.image, question{principal: "User:a", name: fmt.Sprint(i)})
	}
	w.server.Access.allows(w.image, question{principal: "User:a", name: strings.Repeat("x", 1<<20)})
	if n := len(w.server.Access.answers); n > answersMax {
		t.Errorf("%d answers are kept", n)
	}
	for q := range w.server.Access.answers {
		if len(q.name) > questionBytesMax {
			t.Error("a long question is kept")
		}
	}
}

// TestHostForms: an address is found as Go writes it and as Java does.
func TestHostForms(t *testing.T) {
	f := func(host string, want ...string) {
		t.Helper()
		for _, form := range want {
			if !slices.Contains(hostForms(host), form) {
				t.Errorf("%s: %v lacks %s", host, hostForms(host), form)
			}
		}
	}
	f("10.0.0.1", "10.0.0.1")
	f("::1", "::1", "0:0:0:0:0:0:0:1")
	f("2001:db8::a0:0", "2001:db8:0:0:0:0:a0:0")
	f("::ffff:10.0.0.1", "10.0.0.1")
	f("fe80::1%eth0", "fe80::1", "fe80:0:0:0:0:0:0:1")
	f("", "")
}

func TestACLs(t *testing.T) {
	w := newWorld(t).guarded("allow READ TOPIC literal t", "allow WRITE TOPIC literal t", "allow READ TOPIC prefixed t", "deny READ GROUP literal g")
	fake := &fakeSecurity{}
	w.server.Security = fake
	describe := func(version int16, change func(*kmsg.DescribeACLsRequest)) *kmsg.DescribeACLsResponse {
		in := kmsg.NewPtrDescribeACLsRequest()
		in.ResourceType, in.ResourcePatternType, in.Operation, in.PermissionType = 1, 1, 1, 1
		change(in)
		return askBy[*kmsg.DescribeACLsResponse](w, "User:root", in, version)
	}
	count := func(out *kmsg.DescribeACLsResponse) (n int) {
		for _, r := range out.Resources {
			n += len(r.ACLs)
		}
		return n
	}
	if out := describe(3, func(*kmsg.DescribeACLsRequest) {}); len(out.Resources) != 3 || count(out) != 4 {
		t.Errorf("all: %+v", out)
	}
	if out := describe(2, func(in *kmsg.DescribeACLsRequest) { in.ResourcePatternType, in.ResourceName = 2, ptr("topic") }); count(out) != 1 {
		t.Errorf("what matches topic: %+v", out)
	}
	if out := describe(2, func(in *kmsg.DescribeACLsRequest) { in.Operation = 99 }); wire.ErrCode(out.ErrorCode) != wire.ErrInvalidRequest {
		t.Errorf("an unknown operation: %+v", out)
	}
	in := kmsg.NewPtrCreateACLsRequest()
	good := kmsg.CreateACLsRequestCreation{ResourceType: 2, ResourceName: "x", ResourcePatternType: 4, Principal: "User:b", Host: "*", Operation: 3, PermissionType: 3}
	bad := good
	bad.Principal = "b"
	in.Creations = []kmsg.CreateACLsRequestCreation{good, bad}
	out := askBy[*kmsg.CreateACLsResponse](w, "User:root", in, 3)
	if out.Results[0].ErrorCode != 0 || wire.ErrCode(out.Results[1].ErrorCode) != wire.ErrInvalidRequest || len(fake.add) != 1 || fake.add[0].Pattern != acl.Prefixed {
		t.Errorf("%+v, %v", out, fake.add)
	}
	del := kmsg.NewPtrDeleteACLsRequest()
	del.Filters = []kmsg.DeleteACLsRequestFilter{{ResourceType: 2, ResourceName: ptr("t"), ResourcePatternType: 3, Operation: 1, PermissionType: 1}, {ResourceType: 3, ResourcePatternType: 1, Operation: 1, PermissionType: 3}}
	gone := askBy[*kmsg.DeleteACLsResponse](w, "User:root", del, 3)
	if len(gone.Results[0].MatchingACLs) != 2 || len(gone.Results[1].MatchingACLs) != 0 || len(fake.remove) != 2 {
		t.Errorf("%+v, %v", gone, fake.remove)
	}
	w.server.Access = nil
	if out := describe(3, func(*kmsg.DescribeACLsRequest) {}); wire.ErrCode(out.ErrorCode) != wire.ErrSecurityDisabled {
		t.Errorf("without an authorizer: %+v", out)
	}
}

func TestScramCredentials(t *testing.T) {
	w := newWorld(t).guarded()
	fake := &fakeSecurity{}
	w.server.Security = fake
	client, err := scram.SHA256.NewClientUnprepped("alice", "secret", "")
	if err != nil {
		t.Fatal(err)
	}
	stored, err := client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: "salt", Iters: 4096})
	if err != nil {
		t.Fatal(err)
	}
	salted, err := pbkdf2.Key(sha256.New, "secret", []byte("salt"), 4096, sha256.Size)
	if err != nil {
		t.Fatal(err)
	}
	alter := func(user string, iterations int32, mechanism int8, salted []byte, deletions ...kmsg.AlterUserSCRAMCredentialsRequestDeletion) wire.ErrCode {
		in := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
		in.Deletions = deletions
		in.Upsertions = []kmsg.AlterUserSCRAMCredentialsRequestUpsertion{{Name: user, Mechanism: mechanism, Iterations: iterations, Salt: []byte("salt"), SaltedPassword: salted}}
		return wire.ErrCode(askBy[*kmsg.AlterUserSCRAMCredentialsResponse](w, "User:root", in, 0).Results[0].ErrorCode)
	}
	if code := alter("alice", 4096, 1, salted); code != wire.None || len(fake.set) != 1 || !bytes.Equal(fake.set[0].StoredKey, stored.StoredKey) || !bytes.Equal(fake.set[0].ServerKey, stored.ServerKey) {
		t.Errorf("%v, %+v; want %+v", code, fake.set, stored)
	}
	refused := func(name string, code, want wire.ErrCode) {
		t.Helper()
		if code != want || len(fake.set) != 1 {
			t.Errorf("%s: %v, want %v", name, code, want)
		}
	}
	refused("few iterations", alter("alice", 4095, 1, salted), wire.ErrUnacceptableCredential)
	refused("many iterations", alter("alice", 16385, 1, salted), wire.ErrUnacceptableCredential)
	refused("no name", alter("", 4096, 1, salted), wire.ErrUnacceptableCredential)
	refused("not text", alter("a\xff", 4096, 1, salted), wire.ErrUnacceptableCredential)
	refused("unknown mechanism", alter("alice", 4096, 3, salted), wire.ErrUnsupportedSaslMechanism)
	refused("a password that isn't salted", alter("alice", 4096, 1, []byte("secret")), wire.ErrUnacceptableCredential)
	refused("twice", alter("alice", 4096, 1, salted, kmsg.AlterUserSCRAMCredentialsRequestDeletion{Name: "alice", Mechanism: 1}), wire.ErrDuplicateResource)

	w.apply(map[string][]byte{w.image.Keys().Scram(fake.set[0].ID()): fake.set[0].Encode()})
	in := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	if out := askBy[*kmsg.DescribeUserSCRAMCredentialsResponse](w, "User:root", in, 0); len(out.Results) != 1 || out.Results[0].CredentialInfos[0].Iterations != 4096 {
		t.Errorf("all users: %+v", out)
	}
	in.Users = []kmsg.DescribeUserSCRAMCredentialsRequestUser{{Name: "bob"}, {Name: "alice"}, {Name: "bob2"}, {Name: "bob2"}}
	var codes []wire.ErrCode
	for _, r := range askBy[*kmsg.DescribeUserSCRAMCredentialsResponse](w, "User:root", in, 0).Results {
		codes = append(codes, wire.ErrCode(r.ErrorCode))
	}
	if want := []wire.ErrCode{wire.ErrResourceNotFound, wire.None, wire.ErrDuplicateResource}; !slices.Equal(codes, want) {
		t.Errorf("%v, want %v", codes, want)
	}
	keys := askBy[*wire.ScramKeysResponse](w, "User:root", &wire.ScramKeysRequest{}, 0)
	if len(keys.Credentials) != 1 || !bytes.Equal(keys.Credentials[0].StoredKey, stored.StoredKey) {
		t.Errorf("keys: %+v", keys)
	}
	plain := request(&wire.ScramKeysRequest{}, 0, "test")
	plain.Principal = "User:root"
	if out, err := w.send(t.Context(), plain, &wire.ScramKeysRequest{}); err != nil || out.(*wire.ScramKeysResponse).ErrorCode != wire.ErrSecurityDisabled || len(out.(*wire.ScramKeysResponse).Credentials) > 0 {
		t.Errorf("keys without TLS: %+v, %v", out, err)
	}
	if out := askBy[*wire.ScramKeysResponse](w, acl.Anonymous, &wire.ScramKeysRequest{}, 0); out.ErrorCode != wire.ErrClusterAuthorizationFailed || len(out.Credentials) > 0 {
		t.Errorf("keys for nobody: %+v", out)
	}
	w.server.Access = NewAccess(acl.Rules{SuperUsers: map[string]bool{acl.Anonymous: true}})
	if out := askBy[*wire.ScramKeysResponse](w, acl.Anonymous, &wire.ScramKeysRequest{}, 0); out.ErrorCode != wire.ErrClusterAuthorizationFailed || len(out.Credentials) > 0 {
		t.Errorf("keys for nobody as a super user: %+v", out)
	}
	w.server.Access = nil
	if out := askBy[*wire.ScramKeysResponse](w, "User:root", &wire.ScramKeysRequest{}, 0); out.ErrorCode != wire.ErrSecurityDisabled || len(out.Credentials) > 0 {
		t.Errorf("keys without an authorizer: %+v", out)
	}
}
