package consumer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// subjectsOf reads "m1:ab m2@i:b": members, an instance, the topics they subscribe to.
func subjectsOf(text string, sizes map[string]int32) []subject {
	var all []subject
	for _, word := range strings.Fields(text) {
		who, topics, _ := strings.Cut(word, ":")
		id, instance, _ := strings.Cut(who, "@")
		s := subject{id: id, instance: instance}
		for _, r := range topics {
			s.topics = append(s.topics, Topic{Name: string(r), ID: topicID(string(r)), Partitions: sizes[string(r)]})
		}
		all = append(all, s)
	}
	return all
}

func text(targets [][]Partition) string {
	var out []string
	for _, target := range targets {
		var ps []string
		for _, p := range target {
			ps = append(ps, fmt.Sprintf("%s%d", strings.TrimRight(string(p.Topic[:]), "\x00"), p.Number))
		}
		out = append(out, strings.Join(ps, ","))
	}
	return strings.Join(out, " | ")
}

// assigns gives a check of what an assignor gives to subjects.
func assigns(t *testing.T, with assign, sizes map[string]int32) func(subjects, want string) {
	return func(subjects, want string) {
		t.Helper()
		if got := text(with(subjectsOf(subjects, sizes))); got != want {
			t.Errorf("%s: %s, want %s", subjects, got, want)
		}
	}
}

func TestRange(t *testing.T) {
	sizes := map[string]int32{"a": 3, "b": 3, "c": 1}
	f := assigns(t, assignRange, sizes)
	f("m1:ab m2:ab", "a0,a1,b0,b1 | a2,b2")
	f("m2:ab m1:ab", "a2,b2 | a0,a1,b0,b1") // in the order of ids
	f("m1:ab m2@z:ab m3@y:ab", "a2,b2 | a1,b1 | a0,b0")
	f("m1:a m2:ab m3:b", "a0,a1 | a2,b0,b1 | b2")
	f("m1:c m2:c", "c0 | ")
	f("m1: m2:c", " | c0")
	f("", "")
}

func TestUniform(t *testing.T) {
	sizes := map[string]int32{"a": 4, "b": 2, "c": 1}
	f := assigns(t, assignUniform, sizes)
	f("m1:a m2:a", "a0,a2 | a1,a3")
	f("m1:abc m2:abc m3:abc", "a0,a3,c0 | a1,b0 | a2,b1")
	f("m1:a m2:ab m3:b", "a0,a2 | a1,a3 | b0,b1")
	f("m1: m2:c", " | c0")
	f("", "")
}

// TestUniformHolds: whatever members subscribe to and had, each partition goes to one
// reader of its topic, no move of one could even things out, and where all may read all,
// as few as can be have moved.
func TestUniformHolds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		sizes := map[string]int32{"a": r.Int32N(8), "b": r.Int32N(5), "c": r.Int32N(3)}
		var words []string
		same := r.IntN(2) == 0
		for i := range r.IntN(6) {
			topics := "abc"
			if !same {
				topics = "abc"[r.IntN(3):]
			}
			words = append(words, fmt.Sprintf("m%d:%s", i, topics))
		}
		subjects := subjectsOf(strings.Join(words, " "), sizes)
		before := assignUniform(subjects)
		if fault := uniformFault(subjects, before); fault != "" {
			t.Fatalf("%v of %v: %s: %s", words, sizes, text(before), fault)
		}
		for i := range subjects {
			subjects[i].had = before[i]
		}
		if again := assignUniform(subjects); text(again) != text(before) {
			t.Fatalf("%v of %v moved from %s to %s for nothing", words, sizes, text(before), text(again))
		}
		if len(subjects) < 2 {
			continue
		}
		fewer := assignUniform(subjects[1:])
		if fault := uniformFault(subjects[1:], fewer); fault != "" {
			t.Fatalf("%v of %v: %s: %s", words[1:], sizes, text(fewer), fault)
		}
		for i, had := range before[1:] {
			for _, p := range had {
				if same && !slices.Contains(fewer[i], p) {
					t.Fatalf("%v of %v: %v moved when %s left: %s, then %s", words, sizes, p, words[0], text(before), text(fewer))
				}
			}
		}
	}
}

func uniformFault(subjects []subject, targets [][]Partition) string {
	owner := map[Partition]int{}
	reads := func(i int, p Partition) bool {
		return slices.ContainsFunc(subjects[i].topics, func(t Topic) bool { return t.ID == p.Topic && p.Number < t.Partitions })
	}
	for i, target := range targets {
		for _, p := range target {
			if other, twice := owner[p]; twice {
				return fmt.Sprintf("%v is both %d's and %d's", p, other, i)
			}
			if !reads(i, p) {
				return fmt.Sprintf("%v is %d's, who doesn't read it", p, i)
			}
			owner[p] = i
			for j := range subjects {
				if reads(j, p) && len(targets[j])+1 < len(target) {
					return fmt.Sprintf("%v could go from %d to %d", p, i, j)
				}
			}
		}
	}
	for _, s := range subjects {
		for _, topic := range s.topics {
			for n := range topic.Partitions {
				if _, ok := owner[Partition{topic.ID, n}]; !ok {
					return fmt.Sprintf("%s%d is nobody's", topic.Name, n)
				}
			}
		}
	}
	return ""
}

// TestUniformFaultIsFound: the check of TestUniformHolds sees what it is for.
func TestUniformFaultIsFound(t *testing.T) {
	f := func(targets ...[]Partition) {
		t.Helper()
		if uniformFault(subjectsOf("m1:a m2:a", map[string]int32{"a": 3}), targets) == "" {
			t.Errorf("%s is taken for good", text(targets))
		}
	}
	f(parts("a", 0, 1), parts("a", 1))
	f(parts("a", 0, 1), nil)
	f(parts("a", 0, 1, 2), nil)
	f(parts("a", 0, 1), parts("b", 0))
}

func BenchmarkUniform(b *testing.B) {
	sizes := map[string]int32{"a": 10_000}
	var words []string
	for i := range 1000 {
		words = append(words, fmt.Sprintf("m%04d:a", i))
	}
	subjects := subjectsOf(strings.Join(words, " "), sizes)
	for b.Loop() {
		targets := assignUniform(subjects)
		for i := range subjects {
			subjects[i].had = targets[i]
		}
	}
}
