package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/core/types"
)

func TestDefaultsLieInTheirOwnRange(t *testing.T) {
	names := make(map[string]bool)
	for _, k := range tables() {
		if names[k.name] {
			t.Errorf("%s is listed twice", k.name)
		}
		names[k.name] = true
		if k.alias == "" && k.def != "" && !k.rule.check(k.def) {
			t.Errorf("%s: default %q is not %s", k.name, k.def, k.rule.allowed())
		}
		if k.alias != "" && !slices.ContainsFunc(tables(), func(o key) bool { return o.name == k.alias && o.alias == "" }) {
			t.Errorf("%s stands for %s, which isn't a key", k.name, k.alias)
		}
		if k.doc == "" {
			t.Errorf("%s has no doc", k.name)
		}
		if _, ignored := ignoredReasons[k.name]; ignored {
			t.Errorf("%s is both a key and ignored", k.name)
		}
	}
	for _, k := range topicKeys() {
		if k.broker != "" && !names[k.broker] {
			t.Errorf("topic config %s: %s isn't a key", k.name, k.broker)
		}
		if k.broker == "" && k.def != "" && !k.rule.check(k.def) {
			t.Errorf("topic config %s: default %q is not %s", k.name, k.def, k.rule.allowed())
		}
	}
}

func TestEveryFieldIsFilledByAKey(t *testing.T) {
	// Every field of the groups must change when its key does: a key bound to a neighbour's field shows here.
	bound := make(map[any]string)
	var b Broker
	for _, k := range tables() {
		if k.bind == nil {
			continue
		}
		p := k.bind(&b)
		if other, twice := bound[p]; twice {
			t.Errorf("%s and %s fill the same field", k.name, other)
		}
		bound[p] = k.name
	}
	v := reflect.ValueOf(&b).Elem()
	special := []string{"Listeners", "AdvertisedListeners", "ProtocolMap", "Group", "Offsets", "Mirror", "Vault", "Replica", "Security", "Transactions", "settings"}
	for _, s := range []reflect.Value{v, v.FieldByName("Group"), v.FieldByName("Offsets"), v.FieldByName("Mirror"), v.FieldByName("Vault"), v.FieldByName("Replica"), v.FieldByName("Security"), v.FieldByName("Transactions")} {
		for i := range s.NumField() {
			name := s.Type().Field(i).Name
			if slices.Contains(special, name) {
				continue
			}
			if _, ok := bound[s.Field(i).Addr().Interface()]; !ok {
				t.Errorf("no key fills %s.%s", s.Type().Name(), name)
			}
		}
	}
}

func TestPrecedenceAndProvenance(t *testing.T) {
	file := Setting{Key: "num.partitions", Value: "3", Source: SourceFile, File: "a.properties", Line: 7}
	b, warnings, err := Resolve([]Setting{Flag("--set num.partitions", "num.partitions", "5"), file})
	if err != nil || len(warnings) > 0 {
		t.Fatalf("error %v, warnings %v", err, warnings)
	}
	if b.NumPartitions != 5 {
		t.Errorf("num.partitions = %d, want the flag's 5", b.NumPartitions)
	}
	if s, ok := b.Setting("num.partitions"); !ok || s.Source != SourceFlag || s.Where() != "--set num.partitions" {
		t.Errorf("provenance %+v", s)
	}
	if _, ok := b.Setting("node.id"); ok || b.NodeID != 1 {
		t.Errorf("node.id should be the default 1, is %d", b.NodeID)
	}
}

func TestResolveFailure(t *testing.T) {
	f := func(key, value string, want ...string) {
		t.Helper()
		_, _, err := Resolve([]Setting{{Key: key, Value: value, Source: SourceFile, File: "server.properties", Line: 12}})
		if err == nil {
			t.Errorf("%s=%s was taken", key, value)
			return
		}
		for _, w := range append(want, "server.properties:12", key) {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s=%s: %q doesn't say %q", key, value, err, w)
			}
		}
	}
	f("num.partitons", "3", "did you mean num.partitions? tidemark config keys lists them all")
	f("nothing.like.any.other.key.that.there.is", "3", "; tidemark config keys lists them all")
	f("log.retention.hour", "3", "did you mean log.retention.hours? tidemark config keys lists them all")
	f("auto.create.topic.enable", "true", "did you mean auto.create.topics.enable? tidemark config keys lists them all")
	f("num.partitions", "0", "an integer from 1 to 100000", `"0"`)
	f("num.partitions", "many", "an integer")
	f("socket.request.max.bytes", "3000000000", "2147483647")
	f("log.cleaner.min.cleanable.ratio", "1.5", "a number from 0 to 1")
	f("auto.create.topics.enable", "yes", "true or false")
	f("compression.type", "rar", "zstd")
	f("log.cleanup.policy", "delete,shred", "compact")
	f("listeners", "127.0.0.1:9092", "NAME://host:port")
	f("listeners", "PLAINTEXT://h:1,PLAINTEXT://h:2", "twice")
	f("listeners", "GSSAPI://h:1", "there isn't")
	f("listeners", "PLAINTEXT://h:70000", "65535")
	f("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "no host that a client could reach")
	f("advertised.listeners", "OTHER://h:9092", "no listener OTHER")
	f("gap.policy", "ignore", "fail, continue")
	f("metadata", "consul://h:1", "etcd://")
	f("remote.log.storage.system.enable", "true", "tiered storage")
	f("authorizer.class.name", "org.x", "ACL")
	f("authorizer", "some", "off, acl")
	f("super.users", "admin", "User:admin")
	f("sasl.enabled.mechanisms", "GSSAPI", "SCRAM-SHA-512")
	f("sasl.kerberos.service.name", "kafka", "SASL")
	f("ssl.principal.mapping.rules", "RULE:^CN=(.*?),.*$/$1/", "principals")
	f("inter.broker.listener.name", "INTERNAL", "one of listeners")
	f("security.inter.broker.protocol", "SASL_SSL", "one of listeners")
	f("security.inter.broker.protocol", "TLS", "SASL_SSL")
	f("http.read.token.file", "/t", "http.token.file")
	f("listener.name.internal.ssl.keystore.location", "x", "single listener")
	f("log.dirs", " , ", "at least one")
	f("log.dirs", "/a,/b,/a", "twice")
	f("queued.max.request.bytes", "1000", "socket.request.max.bytes")
}

func TestResolveTellsAllFaultsAtOnce(t *testing.T) {
	_, _, err := Resolve([]Setting{Flag("--set", "nun.partitions", "1"), Flag("--set", "num.partitions", "x")})
	var unknown *UnknownKeyError
	var value *ValueError
	if !errors.As(err, &unknown) || !errors.As(err, &value) {
		t.Errorf("%v: want both faults", err)
	}
}

func TestForeignKeysWarn(t *testing.T) {
	f := func(key, value, want string) {
		t.Helper()
		_, warnings, err := Resolve([]Setting{Flag("--set", key, value)})
		if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].String(), want) {
			t.Errorf("%s: error %v, warnings %v, want %q", key, err, warnings, want)
		}
	}
	f("zookeeper.connect", "zk:2181", "ZooKeeper")
	f("process.roles", "broker,controller", "roles")
	f("controller.quorum.voters", "1@h:9093", "etcd")
	f("num.io.threads", "8", "goroutines")
	f("remote.log.storage.system.enable", "false", "as here")
	f("ssl.protocol", "TLSv1.3", "PEM")
}

func TestAliases(t *testing.T) {
	f := func(want types.Millis, settings ...string) {
		t.Helper()
		var all []Setting
		for _, s := range settings {
			one, err := ParseSet(s)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, one)
		}
		b, _, err := Resolve(all)
		if err != nil {
			t.Errorf("%v: %v", settings, err)
			return
		}
		if b.LogRetentionMs != want {
			t.Errorf("%v: log.retention.ms = %d, want %d", settings, b.LogRetentionMs, want)
		}
		if got := b.Topic(nil).RetentionMs; got != want {
			t.Errorf("%v: the topics' retention.ms = %d, want %d", settings, got, want)
		}
	}
	f(604800000)
	f(7200000, "log.retention.hours=2")
	f(180000, "log.retention.minutes=3", "log.retention.hours=2")
	f(5, "log.retention.ms=5", "log.retention.minutes=3", "log.retention.hours=2")
	f(-1, "log.retention.hours=-1")
}

func TestParseSet(t *testing.T) {
	s, err := ParseSet("listeners=PLAINTEXT://h:1=x")
	if err != nil || s.Key != "listeners" || s.Value != "PLAINTEXT://h:1=x" || s.Source != SourceFlag {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "=x", "key"} {
		if _, err := ParseSet(bad); err == nil {
			t.Errorf("--set %q was taken", bad)
		}
	}
}

func TestListeners(t *testing.T) {
	b, _, err := Resolve([]Setting{
		Flag("--set", "listeners", "PLAINTEXT://:9092, tls://[::1]:9093"),
		Flag("--set", "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,TLS:SSL"),
		Flag("--set", "ssl.keystore.location", "k.pem"),
		Flag("--set", "advertised.listeners", "PLAINTEXT://broker.example:29092"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Listener{{Name: "PLAINTEXT", Port: 9092}, {Name: "TLS", Host: "::1", Port: 9093}}
	if !slices.Equal(b.Listeners, want) || b.Protocol("TLS") != "SSL" {
		t.Errorf("listeners %v, protocol of TLS %s", b.Listeners, b.Protocol("TLS"))
	}
	if got := b.AdvertisedListeners[0].Addr(); got != "broker.example:29092" {
		t.Errorf("advertised %s", got)
	}
}

func TestFromFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.properties")
	text := "# a comment\nnode.id=7\n\nlog.dirs=/a,\\\n  /b\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	settings, err := FromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := Resolve(settings)
	if err != nil || b.NodeID != 7 || !slices.Equal(b.LogDirs, []string{"/a", "/b"}) {
		t.Fatalf("%+v, %v", b, err)
	}
	if s, _ := b.Setting("log.dirs"); s.Where() != file+":4" {
		t.Errorf("log.dirs comes from %s", s.Where())
	}
	if _, err := FromFile(file + ".missing"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("missing file: %v", err)
	}
	if _, err := FromFile(filepath.Dir(file)); err == nil || !strings.Contains(err.Error(), "folder") {
		t.Errorf("folder as file: %v", err)
	}
}

// TestMetadataSecurity: half of what TLS needs is refused, and so are users where there are none.
func TestMetadataSecurity(t *testing.T) {
	f := func(words string, settings ...string) {
		t.Helper()
		var set []Setting
		for _, s := range settings {
			one, err := ParseSet(s)
			if err != nil {
				t.Fatal(err)
			}
			set = append(set, one)
		}
		_, _, err := Resolve(set)
		if words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("%v: %v, want %q", settings, err, words)
		}
	}
	f("", "metadata.ssl.keystore.location=/k", "metadata.ssl.truststore.location=/t")
	f("members show each other certificates", "metadata.ssl.keystore.location=/k")
	f("members show each other certificates", "metadata.ssl.truststore.location=/t")
	f("", "metadata=etcd://h:1", "metadata.ssl.truststore.location=/t")
	f("because metadata.ssl.keystore.location is set", "metadata=etcd://h:1", "metadata.ssl.keystore.location=/k")
	f("the embedded store has no users", "metadata.username=u")
	f("", "metadata=etcd://h:1", "metadata.username=u", "metadata.password=p")
	f("whose password", "metadata=etcd://h:1", "metadata.password=p")
}
