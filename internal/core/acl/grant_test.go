package acl

import (
	"reflect"
	"slices"
	"testing"
)

// TestGrants: the convenience options of kafka-acls, by what its documentation says of them.
func TestGrants(t *testing.T) {
	producer := ProducerGrants([]string{"a", "b"}, []string{"t"}, true)
	want := []Grant{
		{Topic, "a", []Operation{Write, Describe, Create}}, {Topic, "b", []Operation{Write, Describe, Create}},
		{TransactionalID, "t", []Operation{Write, Describe}}, {Cluster, ClusterName, []Operation{IdempotentWrite}},
	}
	if !reflect.DeepEqual(producer, want) {
		t.Errorf("producer: %v", producer)
	}
	consumer := ConsumerGrants([]string{"a"}, []string{"g"})
	if want := []Grant{{Topic, "a", []Operation{Read, Describe}}, {Group, "g", []Operation{Read}}}; !reflect.DeepEqual(consumer, want) {
		t.Errorf("consumer: %v", consumer)
	}
	if ProducerGrants([]string{"a"}, nil, false)[0].Operations == nil || len(ProducerGrants([]string{"a"}, nil, false)) != 1 {
		t.Error("a plain producer gets more than its topic")
	}
	for _, g := range append(producer, consumer...) {
		for _, op := range g.Operations {
			if !slices.Contains(Applicable(g.Resource), op) {
				t.Errorf("%v isn't applicable to %v", op, g.Resource)
			}
		}
	}
}

// TestApplicable: every resource has operations, and every operation but All a resource.
func TestApplicable(t *testing.T) {
	of := map[Operation]bool{}
	for r := Topic; r <= User; r++ {
		ops := Applicable(r)
		if len(ops) < 2 || ops[0] != All {
			t.Errorf("%v: %v", r, ops)
		}
		for _, op := range ops {
			of[op] = true
		}
	}
	for op := All; op <= TwoPhaseCommit; op++ {
		if !of[op] {
			t.Errorf("%v is of no use", op)
		}
	}
}
