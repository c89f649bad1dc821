package scenario

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"tidemark/internal/core/types"
)

// story is one failover story as scenarios.json tells it.
type story struct {
	ID, Title    string
	Params       *params
	FailsWithout []string `json:"fails_without"`
	Breaks       map[string]string
	Clusters     map[string]clusterSpec
	Steps        []step
	Equal        [][]string
	Expect       struct {
		After map[string]state
		Final struct {
			state
			LogStart      map[string]types.Offset `json:"log_start"`
			LogEnd        map[string]types.Offset `json:"log_end"`
			HighWatermark map[string]types.Offset `json:"high_watermark"`
		}
		History    map[string][][2]int64
		Timelines  map[string][][3]any
		Applied    map[string][][3]any
		Vault      map[string][][]any
		Promotions map[string][]map[string]any
		Groups     map[string]map[string]types.Offset
		Told       []map[string]any
	}
}

type params struct {
	PromotionStep int32 `json:"promotion_step"`
	EpochHeadroom int32 `json:"epoch_headroom"`
}

type clusterSpec struct {
	Kind      string
	Replicas  []string
	TopicID   string `json:"topic_id"`
	MinISR    int    `json:"min_isr"`
	GapPolicy string `json:"gap_policy"`
}

// step is one operation with its arguments; those that it doesn't have are zero.
type step struct {
	Op, Cluster, Source, Replica, Tag, Txn, Mode, Plan, Plan2, Phase, To, Other, Outcome, Crash, Image, Group, Member string
	TopicID                                                                                                           string `json:"topic_id"`
	Leader                                                                                                            string
	Epoch                                                                                                             *types.LeaderEpoch
	N, Lose, Records, Value, Late, Hours                                                                              int
	Start, Offset                                                                                                     types.Offset
	Upto                                                                                                              *types.Offset
	Keep                                                                                                              []types.Offset
	Replicate                                                                                                         json.RawMessage
	Replicas                                                                                                          json.RawMessage
	Learn, Join                                                                                                       *bool
	Unclean, Retry                                                                                                    bool
	WriterStops                                                                                                       *bool `json:"writer_stops"`
}

// names reads an argument that is a name or a list of names; nil if it is absent.
func names(raw json.RawMessage) []string {
	var one string
	var list []string
	switch {
	case len(raw) == 0 || json.Unmarshal(raw, &list) == nil:
	case json.Unmarshal(raw, &one) == nil:
		list = []string{one}
	}
	return list
}

type state struct {
	Logs     map[string][][]any
	Clusters map[string]struct {
		Leader *string
		Epoch  types.LeaderEpoch
		State  string
		ISR    []string
		ELR    []string
	}
}

// file is where the stories are: TIDEMARK_SCENARIOS, or the copy in testdata.
func file() string {
	if name := os.Getenv("TIDEMARK_SCENARIOS"); name != "" {
		return name
	}
	return filepath.Join("testdata", "scenarios.json")
}

func readStories(t testing.TB) (all struct {
	Params    params
	Mutations map[string]string
	Stories   []*story
}) {
	t.Helper()
	text, err := os.ReadFile(file())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatalf("%s: %v", file(), err)
	}
	if len(all.Stories) < 100 {
		t.Fatalf("%s has %d stories", file(), len(all.Stories))
	}
	for _, s := range all.Stories {
		p := all.Params
		if s.Params != nil && s.Params.PromotionStep != 0 {
			p.PromotionStep = s.Params.PromotionStep
		}
		if s.Params != nil {
			p.EpochHeadroom = s.Params.EpochHeadroom
		}
		s.Params = &p
	}
	return all
}

// TestScenarioCopyIsCurrent compares the copy in testdata with the file beside
// the repository, where there is one.
func TestScenarioCopyIsCurrent(t *testing.T) {
	theirs, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "shared", "scenarios.json"))
	if err != nil {
		t.Log("no shared file beside the repository to compare with")
		return
	}
	ours, err := os.ReadFile(filepath.Join("testdata", "scenarios.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(ours, theirs) {
		t.Error("testdata/scenarios.json is not the shared file")
	}
}
