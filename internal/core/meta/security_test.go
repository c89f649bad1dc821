package meta

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/core/acl"
)

func exampleACL() *ACLRecord {
	r := NewACLRecord(acl.Binding{Resource: acl.Topic, Pattern: acl.Prefixed, Name: "orders-", Principal: "User:alice", Host: "*",
		Operation: acl.Read, Permission: acl.Allow}, "standby")
	return &r
}

func exampleScram() *ScramRecord {
	return &ScramRecord{User: "alice", Mechanism: ScramSHA256, Salt: []byte("salt"), StoredKey: bytes.Repeat([]byte{1}, 32),
		ServerKey: bytes.Repeat([]byte{2}, 32), Iterations: 4096}
}

// TestSecurityEncoding pins the stored form of ACLs and credentials.
func TestSecurityEncoding(t *testing.T) {
	f := func(got []byte, want string) {
		t.Helper()
		if string(got) != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	f(exampleACL().Encode(), `{"v":1,"resource":"TOPIC","pattern":"PREFIXED","name":"orders-","principal":"User:alice","host":"*","operation":"READ","permission":"ALLOW","mirror":"standby"}`)
	f([]byte(KeysOf("c").ACL(exampleACL().Binding())), "/tidemark/c/acls/cWFnYBc0Kk-McID2TfEmxE4IrId_narHfwwS0Y_2JzI")
	f([]byte(KeysOf("c").Scram(exampleScram().ID())), "/tidemark/c/scram/YWxpY2U/SCRAM-SHA-256")
}

func TestSecurityRecordsThatCannotBe(t *testing.T) {
	keys := KeysOf("c")
	decodeACL := func(change func(*ACLRecord)) error {
		r := exampleACL()
		change(r)
		data, err := json.Marshal(struct {
			V int `json:"v"`
			*ACLRecord
		}{1, r})
		if err != nil {
			return err
		}
		_, err = DecodeACL(keys.ACL(exampleACL().Binding()), data)
		return err
	}
	if err := decodeACL(func(r *ACLRecord) { r.V = 1 }); err != nil {
		t.Fatal(err)
	}
	if err := decodeACL(func(r *ACLRecord) { r.Name = "other" }); !errors.Is(err, ErrValue) {
		t.Errorf("an entry under another one's key: %v", err)
	}
	if err := decodeACL(func(r *ACLRecord) { r.Operation = 0 }); err == nil {
		t.Error("an entry without an operation is read")
	}
	scram := func(name string, change func(*ScramRecord)) {
		t.Helper()
		r := exampleScram()
		change(r)
		if _, err := DecodeScram(keys.Scram(exampleScram().ID()), r.Encode()); !errors.Is(err, ErrValue) {
			t.Errorf("%s: %v, want ErrValue", name, err)
		}
	}
	scram("another user's", func(r *ScramRecord) { r.User = "bob" })
	scram("no user", func(r *ScramRecord) { r.User = "" })
	scram("another mechanism's", func(r *ScramRecord) { r.Mechanism = ScramSHA512 })
	scram("no salt", func(r *ScramRecord) { r.Salt = nil })
	scram("a short key", func(r *ScramRecord) { r.StoredKey = r.StoredKey[:31] })
	scram("too few iterations", func(r *ScramRecord) { r.Iterations = 4095 })
	if _, err := DecodeScram(keys.Scram(exampleScram().ID()), exampleScram().Encode()); err != nil {
		t.Error(err)
	}
}

// TestSecurityInAnImage: entries come and go by their keys, and the index of
// bindings with them.
func TestSecurityInAnImage(t *testing.T) {
	s := newStored()
	keys := KeysOf("c1")
	i, _ := Load("c1", s.snapshot(), s.revision)
	entry, other := exampleACL(), *exampleACL()
	other.Name = "bills"
	i, _ = i.Apply(s.do(Put(keys.ACL(entry.Binding()), entry.Encode()), Put(keys.ACL(other.Binding()), other.Encode()), Put(keys.Scram(exampleScram().ID()), exampleScram().Encode())))
	at := i.ACLs().Revision()
	if i.ACLs().Len() != 2 || !i.ACLs().Has(entry.Binding()) || at != i.Revision() {
		t.Fatalf("%d entries at revision %d of %d", i.ACLs().Len(), at, i.Revision())
	}
	for found := range i.ACLs().From(acl.Binding{Resource: acl.Topic, Pattern: acl.Prefixed, Name: "c"}) {
		if found != entry.Binding() {
			t.Errorf("first from c is %v", found)
		}
		break
	}
	i, _ = i.Apply(s.do(putTopic(1, "t", 1)...))
	if i.ACLs().Revision() != at {
		t.Error("the revision of the ACLs moves without them")
	}
	i, _ = i.Apply(s.do(Delete(keys.ACL(entry.Binding()))))
	if i.ACLs().Has(entry.Binding()) || i.ACLs().Revision() != i.Revision() {
		t.Error("an entry that was deleted is there")
	}
	if e, ok := i.Scram(ScramID{"alice", ScramSHA256}); !ok || e.Record.Iterations != 4096 {
		t.Error("the credential isn't there")
	}
	if users := slices.Collect(i.ScramsOf("alice")); len(users) != 1 || len(slices.Collect(i.ScramsOf("alic"))) != 0 {
		t.Errorf("credentials of alice: %v", users)
	}
	if after := slices.Collect(i.ScramsFrom("alice", ScramSHA256)); len(after) != 0 {
		t.Errorf("behind alice: %v", after)
	}
}

// TestUnreadableACLs: an entry that nobody could ever read is told, a damaged one
// goes on as it was, and mending or deleting it ends both.
func TestUnreadableACLs(t *testing.T) {
	s := newStored()
	key := KeysOf("c1").ACL(exampleACL().Binding())
	i, _ := Load("c1", s.snapshot(), s.revision)
	i, _ = i.Apply(s.do(Put(key, []byte("{"))))
	if i.ACLs().Err() == nil || i.ACLs().Len() != 0 {
		t.Fatal("an entry that can't be read isn't told")
	}
	i, _ = i.Apply(s.do(Put(key, exampleACL().Encode())))
	if i.ACLs().Err() != nil || i.ACLs().Len() != 1 {
		t.Fatal("it was mended", i.ACLs().Err())
	}
	i, _ = i.Apply(s.do(Put(key, []byte("{"))))
	if i.ACLs().Err() != nil || !i.ACLs().Has(exampleACL().Binding()) || len(slices.Collect(i.Faults())) != 1 {
		t.Fatal("a damaged entry doesn't go on as it was", i.ACLs().Err())
	}
	i, _ = i.Apply(s.do(Delete(key)))
	if i.ACLs().Err() != nil || i.ACLs().Len() != 0 {
		t.Fatal("it was deleted", i.ACLs().Err())
	}
	i, _ = i.Apply(s.do(Put(key, []byte("{"))))
	i, _ = i.Apply(s.do(Delete(key)))
	if i.ACLs().Err() != nil {
		t.Fatal(i.ACLs().Err())
	}
}

// TestKeysOfCredentialsAreHidden: no view of the metadata shows them.
func TestKeysOfCredentialsAreHidden(t *testing.T) {
	s := newStored()
	i, _ := Load("c1", s.snapshot(), s.revision)
	i, _ = i.Apply(s.do(Put(KeysOf("c1").Scram(exampleScram().ID()), exampleScram().Encode())))
	d := Describe(i, "scram/")
	text, err := json.Marshal(d)
	if err != nil || len(d.Entries) != 1 {
		t.Fatal(err, d)
	}
	for _, secret := range [][]byte{exampleScram().Salt, exampleScram().StoredKey, exampleScram().ServerKey} {
		b, _ := json.Marshal(secret)
		if strings.Contains(string(text)+d.Table(), strings.Trim(string(b), `"`)) {
			t.Errorf("%s is shown in %s", b, text)
		}
	}
}
