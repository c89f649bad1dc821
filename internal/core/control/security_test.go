package control_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"tidemark/internal/core/acl"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
)

// raised makes a cluster of one broker at the level that has ACLs and credentials.
func raised(t *testing.T) (*cluster, control.Me) {
	c := newCluster(t)
	me := c.register(1, func(r *meta.BrokerRecord) { r.Features = meta.SupportedFeatures() })
	plan, _, err := control.UpdateFeatures(c.image, []control.FeatureChange{{Name: meta.FeatureMetadata, Level: meta.LevelSecurity}}, meta.SupportedFeatures(), me)
	if err != nil {
		t.Fatal(err)
	}
	c.commit(plan)
	return c, me
}

func read(topic string) acl.Binding {
	return acl.Binding{Resource: acl.Topic, Pattern: acl.Literal, Name: topic, Principal: "User:a", Host: "*", Operation: acl.Read, Permission: acl.Allow}
}

// changeACLs carries a change out.
func (c *cluster) changeACLs(change control.ACLChange, me control.Me) {
	c.t.Helper()
	plans, err := control.ChangeACLs(c.image, change, me, control.Limits{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.commit(plans...)
}

// owner says whose entry a binding is: a mirror's name, "here", or "nobody".
func (c *cluster) owner(b acl.Binding) string {
	e, ok := c.image.ACLs().Entry(b)
	switch {
	case !ok:
		return "nobody"
	case e.Record.Mirror == "":
		return "here"
	}
	return e.Record.Mirror
}

// TestAMirrorsACLs: a mirror adds and takes away what it has copied, and touches nothing else.
func TestAMirrorsACLs(t *testing.T) {
	c, me := raised(t)
	want := func(b acl.Binding, owner string) {
		t.Helper()
		if got := c.owner(b); got != owner {
			t.Errorf("%v is %s's, want %s", b, got, owner)
		}
	}
	c.changeACLs(control.ACLChange{Add: []acl.Binding{read("own"), read("own")}}, me)
	c.changeACLs(control.ACLChange{Mirror: "m", Add: []acl.Binding{read("own"), read("copied"), read("taken")}}, me)
	want(read("own"), "here")
	want(read("copied"), "m")
	c.changeACLs(control.ACLChange{Add: []acl.Binding{read("taken")}}, me) // an operator says that it is to stay
	c.changeACLs(control.ACLChange{Mirror: "other", Add: []acl.Binding{read("copied")}, Remove: []acl.Binding{read("copied"), read("own"), read("taken")}}, me)
	want(read("copied"), "m")
	c.changeACLs(control.ACLChange{Mirror: "m", Remove: []acl.Binding{read("own"), read("copied"), read("taken"), read("never")}}, me)
	want(read("own"), "here")
	want(read("copied"), "nobody")
	want(read("taken"), "here")
	c.changeACLs(control.ACLChange{Remove: []acl.Binding{read("own"), read("taken")}}, me)
	if c.image.ACLs().Len() != 0 {
		t.Errorf("%d entries are left", c.image.ACLs().Len())
	}
}

// TestAnEarlierMirrorsSecurityStays: a mirror that takes the name of one that was deleted
// copies another source. What the earlier one had copied guards what was failed over.
func TestAnEarlierMirrorsSecurityStays(t *testing.T) {
	c, me := raised(t)
	if plans, err := control.Disown(c.image, "m", me, control.Limits{}); err != nil || len(plans) > 0 {
		t.Error("of nothing: ", plans, err)
	}
	c.changeACLs(control.ACLChange{Mirror: "m", Add: []acl.Binding{read("a"), read("b")}}, me)
	c.changeACLs(control.ACLChange{Mirror: "other", Add: []acl.Binding{read("c")}}, me)
	user := credential("alice", "m", 1)
	plan, err := control.ChangeCredentials(c.image, control.CredentialChange{Set: []meta.ScramRecord{user}, Mirror: "m"}, me)
	if err != nil {
		t.Fatal(err)
	}
	c.commit(plan)
	plans, err := control.Disown(c.image, "m", me, control.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	c.commit(plans...)
	for b, want := range map[acl.Binding]string{read("a"): "here", read("b"): "here", read("c"): "other"} {
		if got := c.owner(b); got != want {
			t.Errorf("%v is %s's, want %s", b, got, want)
		}
	}
	if e, ok := c.image.Scram(user.ID()); !ok || e.Record.Mirror != "" || !slices.Equal(e.Record.StoredKey, user.StoredKey) {
		t.Errorf("%+v", e)
	}
	c.changeACLs(control.ACLChange{Mirror: "m", Remove: []acl.Binding{read("a"), read("b")}}, me)
	if c.owner(read("a")) != "here" {
		t.Error("the later mirror takes it away")
	}
}

// TestACLChangesAtOnce: of two changes of one entry planned by one image, one is refused.
func TestACLChangesAtOnce(t *testing.T) {
	c, me := raised(t)
	first, err := control.ChangeACLs(c.image, control.ACLChange{Mirror: "m", Add: []acl.Binding{read("x")}}, me, control.Limits{})
	second, err2 := control.ChangeACLs(c.image, control.ACLChange{Add: []acl.Binding{read("x")}}, me, control.Limits{})
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	c.commit(second...)
	c.refused(first[0])
	if c.owner(read("x")) != "here" {
		t.Error(c.owner(read("x")))
	}
}

// TestUnreadableACLIsOverwritten: asking for an entry mends its key.
func TestUnreadableACLIsOverwritten(t *testing.T) {
	c, me := raised(t)
	c.commit(meta.Plan{Why: "damage", If: []meta.Compare{meta.Exists(c.image.Keys().Broker(1))}, Then: []meta.Op{meta.Put(c.image.Keys().ACL(read("x")), []byte("{"))}})
	c.changeACLs(control.ACLChange{Mirror: "m", Remove: []acl.Binding{read("x")}}, me) // it may be anybody's
	if c.image.ACLs().Err() == nil {
		t.Fatal("a mirror takes away what it can't read")
	}
	c.changeACLs(control.ACLChange{Add: []acl.Binding{read("x")}}, me)
	if c.image.ACLs().Err() != nil || c.owner(read("x")) != "here" {
		t.Error(c.image.ACLs().Err())
	}
}

func credential(user, mirror string, salt byte) meta.ScramRecord {
	return meta.ScramRecord{User: user, Mechanism: meta.ScramSHA256, Salt: []byte{salt}, StoredKey: bytes.Repeat([]byte{1}, 32),
		ServerKey: bytes.Repeat([]byte{2}, 32), Iterations: 4096, Mirror: mirror}
}

// TestAMirrorsCredentials: as for its ACLs.
func TestAMirrorsCredentials(t *testing.T) {
	c, me := raised(t)
	change := func(ch control.CredentialChange) {
		t.Helper()
		plan, err := control.ChangeCredentials(c.image, ch, me)
		if err != nil {
			t.Fatal(err)
		}
		c.commit(plan)
	}
	want := func(user string, salt byte) {
		t.Helper()
		e, ok := c.image.Scram(meta.ScramID{User: user, Mechanism: meta.ScramSHA256})
		if !ok && salt != 0 || ok && (salt == 0 || e.Record.Salt[0] != salt) {
			t.Errorf("%s: %v %v, want the salt %d", user, ok, e, salt)
		}
	}
	change(control.CredentialChange{Set: []meta.ScramRecord{credential("own", "", 1)}})
	change(control.CredentialChange{Mirror: "m", Set: []meta.ScramRecord{credential("own", "m", 2), credential("copied", "m", 2)}})
	want("own", 1)
	want("copied", 2)
	change(control.CredentialChange{Mirror: "m", Set: []meta.ScramRecord{credential("copied", "m", 3)}})
	want("copied", 3)
	ids := []meta.ScramID{{User: "own", Mechanism: meta.ScramSHA256}, {User: "copied", Mechanism: meta.ScramSHA256}}
	change(control.CredentialChange{Mirror: "other", Delete: ids})
	want("copied", 3)
	change(control.CredentialChange{Mirror: "m", Delete: ids})
	want("own", 1)
	want("copied", 0)
	if _, err := control.ChangeCredentials(c.image, control.CredentialChange{Delete: ids}, me); !errors.Is(err, control.ErrUnknownCredential) {
		t.Errorf("deleting what isn't there: %v", err)
	}
	if _, err := control.ChangeCredentials(c.image, control.CredentialChange{Set: []meta.ScramRecord{{User: "x"}}}, me); !errors.Is(err, control.ErrBadCredential) {
		t.Errorf("an empty credential: %v", err)
	}
}

// TestSecurityNeedsItsLevel: below it, an older node would leave open what ACLs close.
func TestSecurityNeedsItsLevel(t *testing.T) {
	c := newCluster(t)
	me := c.register(1)
	_, err := control.ChangeACLs(c.image, control.ACLChange{Add: []acl.Binding{read("x")}}, me, control.Limits{})
	wantSentence(t, err, control.ErrSecurityLevel, "tidemark cluster upgrade")
	_, err = control.ChangeCredentials(c.image, control.CredentialChange{Set: []meta.ScramRecord{credential("a", "", 1)}}, me)
	wantSentence(t, err, control.ErrSecurityLevel, "tidemark cluster upgrade")
}
