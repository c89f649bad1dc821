package acl

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// sortedBindings is an Index over a slice.
type sortedBindings []Binding

func indexOf(list ...Binding) sortedBindings {
	out := slices.Clone(list)
	slices.SortFunc(out, Compare)
	return slices.Compact(out)
}

func (s sortedBindings) Has(b Binding) bool {
	_, ok := slices.BinarySearchFunc(s, b, Compare)
	return ok
}

func (s sortedBindings) From(b Binding) iter.Seq[Binding] {
	at, _ := slices.BinarySearchFunc(s, b, Compare)
	return slices.Values(s[at:])
}

// parse reads "allow User:a READ TOPIC literal NAME [HOST]".
func parse(t testing.TB, line string) Binding {
	t.Helper()
	f := strings.Fields(line)
	b := Binding{Principal: f[1], Name: f[5], Host: Wildcard}
	for _, err := range []error{
		b.Permission.UnmarshalText([]byte(strings.ToUpper(f[0]))), b.Operation.UnmarshalText([]byte(f[2])),
		b.Resource.UnmarshalText([]byte(f[3])), b.Pattern.UnmarshalText([]byte(strings.ToUpper(f[4]))),
	} {
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	if len(f) > 6 {
		b.Host = f[6]
	}
	if err := b.Validate(); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return b
}

func TestDecisions(t *testing.T) {
	rules := &Rules{SuperUsers: map[string]bool{"User:root": true}}
	open := &Rules{AllowIfNone: true}
	f := func(name string, r *Rules, bindings, ask string, want bool) {
		t.Helper()
		var list []Binding
		for _, line := range strings.Split(bindings, ";") {
			if strings.TrimSpace(line) != "" {
				list = append(list, parse(t, line))
			}
		}
		q := parse(t, "allow "+ask)
		host := q.Host
		if host == Wildcard {
			host = "10.0.0.1"
		}
		if got := r.May(indexOf(list...), Who{q.Principal, []string{host}}, q.Operation, q.Resource, q.Name); got != want {
			t.Errorf("%s: %s with %q: %v, want %v", name, ask, bindings, got, want)
		}
	}
	const readX = "User:a READ TOPIC literal x"
	f("nothing is written", rules, "", readX, false)
	f("nothing is written, open", open, "", readX, true)
	f("something about the resource closes it", open, "allow User:b READ TOPIC literal x", readX, false)
	f("something about another resource doesn't", open, "allow User:b READ TOPIC literal y", readX, true)
	f("a wildcard is about every resource", open, "allow User:b READ TOPIC literal *", readX, false)
	f("a prefix is about what begins with it", open, "allow User:b READ TOPIC prefixed x", readX, false)
	f("another type isn't concerned", open, "allow User:b READ GROUP literal x", readX, true)
	f("literal", rules, "allow User:a READ TOPIC literal x", readX, true)
	f("literal of another", rules, "allow User:b READ TOPIC literal x", readX, false)
	f("other case", rules, "allow User:A READ TOPIC literal x", readX, false)
	f("wildcard name", rules, "allow User:a READ TOPIC literal *", readX, true)
	f("prefixed star is no wildcard", rules, "allow User:a READ TOPIC prefixed *", readX, false)
	f("prefix", rules, "allow User:a READ TOPIC prefixed or", "User:a READ TOPIC literal orders", true)
	f("the whole name as a prefix", rules, "allow User:a READ TOPIC prefixed orders", "User:a READ TOPIC literal orders", true)
	f("longer than the name", rules, "allow User:a READ TOPIC prefixed orders-eu", "User:a READ TOPIC literal orders", false)
	f("prefixes on the way", rules, "allow User:b READ TOPIC prefixed o;allow User:b READ TOPIC prefixed oq;allow User:a READ TOPIC prefixed ord", "User:a READ TOPIC literal orders", true)
	f("everyone", rules, "allow User:* READ TOPIC literal x", readX, true)
	f("everyone, for another type of principal", rules, "allow User:* READ TOPIC literal x", "Group:g READ TOPIC literal x", true)
	f("host", rules, "allow User:a READ TOPIC literal x 10.0.0.1", readX, true)
	f("other host", rules, "allow User:a READ TOPIC literal x 10.0.0.2", readX, false)
	f("all operations", rules, "allow User:a ALL TOPIC literal x", readX, true)
	f("other operation", rules, "allow User:a WRITE TOPIC literal x", readX, false)
	f("deny over allow", rules, "allow User:a READ TOPIC literal x;deny User:a READ TOPIC literal x", readX, false)
	f("deny by wildcard over literal", rules, "allow User:a READ TOPIC literal x;deny User:* READ TOPIC literal *", readX, false)
	f("deny by prefix over literal", rules, "allow User:a READ TOPIC literal xy;deny User:a ALL TOPIC prefixed x", "User:a READ TOPIC literal xy", false)
	f("deny of another host", rules, "allow User:a READ TOPIC literal x;deny User:a READ TOPIC literal x 10.0.0.2", readX, true)
	f("super user against a denial", rules, "deny User:root ALL TOPIC literal x", "User:root READ TOPIC literal x", true)
	for _, op := range []string{"READ", "WRITE", "DELETE", "ALTER", "DESCRIBE", "ALL"} {
		f("DESCRIBE implied by "+op, rules, "allow User:a "+op+" TOPIC literal x", "User:a DESCRIBE TOPIC literal x", true)
	}
	for _, op := range []string{"CREATE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"} {
		f("DESCRIBE not implied by "+op, rules, "allow User:a "+op+" TOPIC literal x", "User:a DESCRIBE TOPIC literal x", false)
	}
	f("DESCRIBE_CONFIGS implied", rules, "allow User:a ALTER_CONFIGS TOPIC literal x", "User:a DESCRIBE_CONFIGS TOPIC literal x", true)
	f("DESCRIBE_CONFIGS not implied", rules, "allow User:a ALTER TOPIC literal x", "User:a DESCRIBE_CONFIGS TOPIC literal x", false)
	f("denied READ leaves DESCRIBE", rules, "allow User:a DESCRIBE TOPIC literal x;deny User:a READ TOPIC literal x", "User:a DESCRIBE TOPIC literal x", true)
	f("denied READ takes implied READ, not what WRITE implies", rules, "deny User:a READ TOPIC literal x;allow User:a WRITE TOPIC literal x", "User:a DESCRIBE TOPIC literal x", true)
	f("denied DESCRIBE against implied", rules, "deny User:a DESCRIBE TOPIC literal x;allow User:a READ TOPIC literal x", "User:a DESCRIBE TOPIC literal x", false)
	f("cluster", rules, "allow User:a ALTER CLUSTER literal kafka-cluster", "User:a ALTER CLUSTER literal kafka-cluster", true)
}

// TestBothFormsOfAnAddress: a host is looked up in every text that it may have.
func TestBothFormsOfAnAddress(t *testing.T) {
	who := Who{"User:a", []string{"::1", "0:0:0:0:0:0:0:1"}}
	rules := &Rules{}
	for _, host := range who.Hosts {
		denied := indexOf(parse(t, "allow User:a READ TOPIC literal x"), parse(t, "deny User:a READ TOPIC literal x "+host))
		if rules.May(denied, who, Read, Topic, "x") {
			t.Errorf("a denial of %s is passed", host)
		}
	}
}

// plainly decides by a walk over all bindings, as Kafka's documentation says it.
func plainly(r *Rules, list []Binding, who Who, op Operation, resource ResourceType, name string) bool {
	if r.SuperUsers[who.Principal] {
		return true
	}
	found, allowed := false, false
	for _, b := range list {
		isThere := b.Pattern == Literal && (b.Name == name || b.Name == Wildcard) || b.Pattern == Prefixed && strings.HasPrefix(name, b.Name)
		if b.Resource != resource || !isThere {
			continue
		}
		found = true
		if b.Principal != who.Principal && b.Principal != Everyone || b.Host != Wildcard && !slices.Contains(who.Hosts, b.Host) {
			continue
		}
		if b.Permission == Deny {
			if b.Operation == op || b.Operation == All {
				return false
			}
			continue
		}
		allowed = allowed || b.Operation == op || b.Operation == All ||
			op == Describe && slices.Contains([]Operation{Read, Write, Delete, Alter}, b.Operation) ||
			op == DescribeConfigs && b.Operation == AlterConfigs
	}
	if !found {
		return r.AllowIfNone
	}
	return allowed
}

// sometimes gives one of the choices.
func sometimes[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }

func randomBindings(r *rand.Rand, n int) []Binding {
	list := make([]Binding, n)
	for i := range list {
		list[i] = Binding{
			Resource: sometimes(r, Topic, Group), Pattern: sometimes(r, Literal, Prefixed), Name: randomName(r),
			Principal: sometimes(r, "User:a", "User:b", Everyone), Host: sometimes(r, Wildcard, "1.1.1.1", "2.2.2.2"),
			Operation: sometimes(r, All, Read, Write, Describe, Alter, AlterConfigs, DescribeConfigs), Permission: sometimes(r, Allow, Allow, Allow, Deny),
		}
	}
	return list
}

func randomName(r *rand.Rand) string {
	if r.IntN(8) == 0 {
		return Wildcard
	}
	b := make([]byte, 1+r.IntN(5))
	for i := range b {
		b[i] = sometimes(r, byte('a'), 'b', '*', 0xff)
	}
	return string(b)
}

// TestDecisionsAgreeWithAPlainWalk compares look-ups with the walk on random bindings.
func TestDecisionsAgreeWithAPlainWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	outcomes := map[bool]int{}
	for range 20000 {
		list := randomBindings(r, r.IntN(12))
		index := indexOf(list...)
		rules := &Rules{AllowIfNone: r.IntN(2) == 0}
		who := Who{sometimes(r, "User:a", "User:b", "User:c"), []string{sometimes(r, "1.1.1.1", "3.3.3.3")}}
		op, resource, name := sometimes(r, Read, Write, Describe, DescribeConfigs), sometimes(r, Topic, Group), randomName(r)
		got, want := rules.May(index, who, op, resource, name), plainly(rules, list, who, op, resource, name)
		if got != want {
			t.Fatalf("%v %s on %s %q: %v, want %v with %v", who, op, resource, name, got, want, index)
		}
		outcomes[got]++
	}
	if outcomes[true] < 1000 || outcomes[false] < 1000 {
		t.Errorf("the cases are one-sided: %v", outcomes)
	}
}

func TestMayOnAny(t *testing.T) {
	f := func(bindings string, want bool) {
		t.Helper()
		var list []Binding
		for _, line := range strings.Split(bindings, ";") {
			list = append(list, parse(t, line))
		}
		if got := (&Rules{}).MayOnAny(indexOf(list...), Who{"User:a", []string{"1.1.1.1"}}, Write, Topic); got != want {
			t.Errorf("%q: %v, want %v", bindings, got, want)
		}
	}
	f("allow User:a WRITE TOPIC literal x", true)
	f("allow User:a READ TOPIC literal x", false)
	f("allow User:b WRITE TOPIC literal x", false)
	f("allow User:a WRITE GROUP literal x", false)
	f("allow User:a WRITE TOPIC prefixed x", true)
	f("allow User:a WRITE TOPIC literal x;deny User:a WRITE TOPIC literal x", false)
	f("allow User:a WRITE TOPIC literal x;deny User:* ALL TOPIC literal x", false)
	f("allow User:a WRITE TOPIC literal x;allow User:a WRITE TOPIC literal y;deny User:a WRITE TOPIC literal x", true)
	f("allow User:a WRITE TOPIC prefixed xy;deny User:a WRITE TOPIC prefixed x", false)
	f("allow User:a WRITE TOPIC prefixed x;deny User:a WRITE TOPIC prefixed xy", true)
	f("allow User:a WRITE TOPIC literal xyz;deny User:a WRITE TOPIC prefixed xy", false)
	f("allow User:a WRITE TOPIC literal x;deny User:a WRITE TOPIC literal *", false)
	f("allow User:a WRITE TOPIC literal *;deny User:a WRITE TOPIC literal x", true)
	f("allow User:* ALL TOPIC literal *", true)
}

func TestFilter(t *testing.T) {
	orders, every, prefix := parse(t, "allow User:a READ TOPIC literal orders"), parse(t, "allow User:a READ TOPIC literal *"), parse(t, "deny User:b ALL TOPIC prefixed ord 1.1.1.1")
	name := func(s string) *string { return &s }
	f := func(what string, filter Filter, want ...Binding) {
		t.Helper()
		if filter.Resource == 0 {
			filter.Resource = AnyResource
		}
		if filter.Pattern == 0 {
			filter.Pattern = AnyPattern
		}
		if filter.Operation == 0 {
			filter.Operation = AnyOperation
		}
		if filter.Permission == 0 {
			filter.Permission = AnyPermission
		}
		if err := filter.Validate(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		var got []Binding
		for _, b := range []Binding{orders, every, prefix} {
			if filter.Matches(b) {
				got = append(got, b)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s finds %v, want %v", what, got, want)
		}
	}
	f("anything", Filter{}, orders, every, prefix)
	f("another type", Filter{Resource: Group})
	f("literal", Filter{Pattern: Literal}, orders, every)
	f("literal name", Filter{Pattern: Literal, Name: name("orders")}, orders)
	f("prefixed name", Filter{Pattern: Prefixed, Name: name("ord")}, prefix)
	f("any pattern of a name", Filter{Pattern: AnyPattern, Name: name("ord")}, prefix)
	f("match", Filter{Pattern: Match, Name: name("orders")}, orders, every, prefix)
	f("match of another name", Filter{Pattern: Match, Name: name("bills")}, every)
	f("match without a name", Filter{Pattern: Match}, orders, every, prefix)
	f("principal", Filter{Principal: name("User:b")}, prefix)
	f("host", Filter{Host: name("*")}, orders, every)
	f("operation", Filter{Operation: Read}, orders, every)
	f("permission", Filter{Permission: Deny}, prefix)
}

func TestBindingsThatCannotBe(t *testing.T) {
	good := Binding{Topic, Literal, "x", "User:a", Wildcard, Read, Allow}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Binding){
		"no name":                func(b *Binding) { b.Name = "" },
		"bytes that aren't text": func(b *Binding) { b.Name = "x\xff" },
		"too long":               func(b *Binding) { b.Name = strings.Repeat("x", 1<<15) },
		"no principal":           func(b *Binding) { b.Principal = "alice" },
		"principal without name": func(b *Binding) { b.Principal = "User:" },
		"no host":                func(b *Binding) { b.Host = "" },
		"any resource":           func(b *Binding) { b.Resource = AnyResource },
		"a resource to come":     func(b *Binding) { b.Resource = 9 },
		"match":                  func(b *Binding) { b.Pattern = Match },
		"any operation":          func(b *Binding) { b.Operation = AnyOperation },
		"an operation to come":   func(b *Binding) { b.Operation = 16 },
		"any permission":         func(b *Binding) { b.Permission = AnyPermission },
		"another cluster":        func(b *Binding) { b.Resource = Cluster },
	} {
		b := good
		change(&b)
		if b.Validate() == nil {
			t.Errorf("%s: %v is taken", name, b)
		}
	}
}

// TestIDs: no two bindings share an id, however their texts are cut.
func TestIDs(t *testing.T) {
	a := Binding{Topic, Literal, "x", "User:a", "h", Read, Allow}
	seen := map[string]Binding{a.ID(): a}
	for _, b := range []Binding{
		{Topic, Literal, "xUser", ":a", "h", Read, Allow}, {Topic, Literal, "x", "User:ah", "", Read, Allow},
		{Topic, Prefixed, "x", "User:a", "h", Read, Allow}, {Group, Literal, "x", "User:a", "h", Read, Allow},
		{Topic, Literal, "x", "User:a", "h", Write, Allow}, {Topic, Literal, "x", "User:a", "h", Read, Deny},
	} {
		if o, twice := seen[b.ID()]; twice {
			t.Errorf("%v and %v have one id", o, b)
		}
		seen[b.ID()] = b
	}
}

// BenchmarkDecide is one decision among 100,000 bindings, on one topic and on many.
func BenchmarkDecide(b *testing.B) {
	for _, spread := range []int{1, 100_000} {
		list := make([]Binding, 100_000)
		for i := range list {
			list[i] = Binding{Topic, sometimes(rand.New(rand.NewPCG(1, uint64(i))), Literal, Prefixed), fmt.Sprintf("topic-%d", i%spread),
				fmt.Sprintf("User:u%d", i), Wildcard, Read, Allow}
		}
		index := indexOf(list...)
		b.Run(fmt.Sprintf("topics=%d", spread), func(b *testing.B) {
			who := Who{"User:u77", []string{"10.0.0.1"}}
			for b.Loop() {
				(&Rules{}).May(index, who, Read, Topic, "topic-77")
			}
		})
	}
}
