package console

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/broker/mirror"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/metastore/member"
	"tidemark/internal/vault"
)

// document is the part of OpenAPI that the tests look at.
type document struct {
	Paths      map[string]map[string]json.RawMessage `json:"paths"`
	Components struct {
		Schemas map[string]schema `json:"schemas"`
	} `json:"components"`
}

type schema struct {
	Required   []string                   `json:"required"`
	Properties map[string]json.RawMessage `json:"properties"`
}

func readDocument(t *testing.T) document {
	t.Helper()
	var d document
	if err := json.Unmarshal(openapiDocument, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestOpenAPIListsEveryRoute compares the document's paths with what the server answers.
func TestOpenAPIListsEveryRoute(t *testing.T) {
	d := readDocument(t)
	documented := map[string]bool{}
	for path, methods := range d.Paths {
		for method := range methods {
			documented[strings.ToUpper(method)+" "+path] = true
		}
	}
	served := map[string]bool{"GET /metrics": true}
	for _, rt := range (&Server{}).routes() {
		served[rt.method+" "+rt.path] = true
	}
	for _, route := range slices.Sorted(maps.Keys(served)) {
		if !documented[route] {
			t.Errorf("%s is served and not documented", route)
		}
	}
	for _, route := range slices.Sorted(maps.Keys(documented)) {
		if !served[route] {
			t.Errorf("%s is documented and not served", route)
		}
	}
}

// fields gives the JSON names of a struct's fields, and which are always there.
func fields(v any) (all, always []string) {
	typ := reflect.TypeOf(v)
	for i := range typ.NumField() {
		name, opts, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		all = append(all, name)
		if !strings.Contains(opts, "omit") {
			always = append(always, name)
		}
	}
	return all, always
}

// TestOpenAPISchemasAreTheTypes compares each schema with the Go type whose JSON it describes.
func TestOpenAPISchemasAreTheTypes(t *testing.T) {
	d := readDocument(t)
	f := func(name string, v any) {
		t.Helper()
		s, ok := d.Components.Schemas[name]
		if !ok {
			t.Errorf("no schema %s", name)
			return
		}
		all, always := fields(v)
		if got := slices.Sorted(maps.Keys(s.Properties)); !slices.Equal(got, slices.Sorted(slices.Values(all))) {
			t.Errorf("%s: document has %v, type has %v", name, got, all)
		}
		if got := slices.Sorted(slices.Values(s.Required)); !slices.Equal(got, slices.Sorted(slices.Values(always))) {
			t.Errorf("%s: required %v, always written %v", name, got, always)
		}
	}
	f("Problem", Problem{})
	f("Health", Health{})
	f("Cluster", Cluster{})
	f("Closed", mirror.Closed{})
	f("Spec", mirror.Spec{})
	f("Status", mirror.Status{})
	f("SwitchoverStatus", mirror.SwitchoverStatus{})
	f("PartitionStatus", mirror.PartitionStatus{})
	f("Promotion", mirror.Promotion{})
	f("Loss", mirror.Loss{})
	f("SplitBrainAlarm", mirror.SplitBrainAlarm{})
	f("AlarmProducer", mirror.AlarmProducer{})
	f("LossSum", mirror.LossSum{})
	f("MirrorList", MirrorList{})
	f("SyncHealth", mirror.SyncHealth{})
	f("Alteration", mirror.Alteration{})
	f("Altered", mirror.Altered{})
	f("GroupSync", mirror.GroupSync{})
	f("MirrorGroups", MirrorGroups{})
	f("VerifyPartition", mirror.VerifyPartition{})
	f("Verify", mirror.Verify{})
	f("VerifyReport", mirror.VerifyReport{})
	f("VerifySummary", mirror.VerifySummary{})
	f("Event", mirror.Event{})
	f("Events", Events{})
	f("FailoverRequest", FailoverRequest{})
	f("Preview", mirror.Preview{})
	f("PartitionPlan", mirror.PartitionPlan{})
	f("PlannedCut", core.PlannedCut{})
	f("GroupPast", mirror.GroupPast{})
	f("PreviewRequest", mirror.PreviewRequest{})
	f("SwitchoverRequest", mirror.SwitchoverRequest{})
	f("TopicsRequest", TopicsRequest{})
	f("DrillRequest", mirror.DrillRequest{})
	f("DrillReport", mirror.DrillReport{})
	f("DrillStep", mirror.DrillStep{})
	f("DrillPartition", mirror.DrillPartition{})
	f("DrillGroup", mirror.DrillGroup{})
	f("Drill", mirror.Drill{})
	f("DrillList", DrillList{})
	f("Done", Done{})
	f("VaultList", VaultList{})
	f("VaultUsage", vault.Usage{})
	f("VaultReplay", vault.Replay{})
	f("Member", member.Info{})
	f("JoinRequest", member.JoinRequest{})
	f("JoinAnswer", member.JoinAnswer{})
	f("Replaced", member.Replaced{})
	f("Addition", member.Addition{})
	f("Recovery", member.Recovery{})
	f("FeaturesRequest", FeaturesRequest{})
	f("Accepted", Accepted{})
	f("Decommissioned", Decommissioned{})
}
