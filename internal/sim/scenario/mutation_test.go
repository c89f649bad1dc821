package scenario

import (
	"strings"
	"testing"
)

// unseen are rules whose switching off a story doesn't notice here, with the reason.
var unseen = map[string]string{
	"P26 R3": "the replica that keeps its own election's entry restarts, and opening a log makes its history the one that the batches imply (R2)",
}

// TestScenarioMutations switches off, one at a time, each rule that a story names:
// the story must fail then.
func TestScenarioMutations(t *testing.T) {
	all := readStories(t)
	played, found := 0, 0
	for _, s := range all.Stories {
		for _, rule := range s.FailsWithout {
			t.Run(s.ID+"/"+rule, func(t *testing.T) {
				played++
				failed := false
				for _, fault := range s.play(rule) {
					known := false
					for _, d := range deviations[s.ID] {
						known = known || d == fault
					}
					failed = failed || !known
				}
				why, known := unseen[s.ID+" "+rule]
				switch {
				case failed && known:
					t.Errorf("it is found by now; %s said: %s", rule, why)
				case !failed && !known:
					t.Errorf("%s: %s: doesn't need %s (%s)", s.ID, s.Title, rule, strings.TrimSpace(all.Mutations[rule]))
				case failed:
					found++
				}
			})
		}
	}
	t.Logf("%d of %d switched-off rules were found", found, played)
}
