package meta

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"tidemark/internal/core/types"
)

// DrillVersion is the version of the drill records that this program writes and reads.
const DrillVersion = 1

// LevelDrills is the level of FeatureMetadata from which drills are records, and
// their topics name them: a program below it would show a drill's topics before
// all of them are there.
const LevelDrills = 3

// The states of a drill.
const (
	DrillMaking   = "making"   // its topics are being written, and nobody sees them
	DrillReady    = "ready"    // its topics are there
	DrillDropping = "dropping" // its topics are gone for everybody; the controller deletes their records
)

var drillStates = []string{DrillMaking, DrillReady, DrillDropping}

// DrillRecord is the commit point of a drill: the topics that name its run are there
// while it is ready, all of them from one revision to another, however many they are.
type DrillRecord struct {
	V    int    `json:"v" level:"3"`
	Name string `json:"name"`
	// Mirror is the one whose topics were forked.
	Mirror string `json:"mirror"`
	// Run is fresh for each drill, so that a name used again never shows what an earlier drill left.
	Run string `json:"run"`
	// State is one of the Drill… constants.
	State string `json:"state"`
	// Broker makes it, in the registration BrokerEpoch: once that is over, nobody does.
	Broker      types.BrokerID    `json:"broker"`
	BrokerEpoch types.BrokerEpoch `json:"brokerEpoch"`
	At          types.Millis      `json:"at"` // when it began
}

// DrillMark says of which drill's run a topic is a part.
type DrillMark struct {
	Name string `json:"name"`
	Run  string `json:"run"`
}

// Drill is the entry of a drill.
type Drill = Entry[string, DrillRecord]

func (r *DrillRecord) check() error {
	switch {
	case r.Name == "" || r.Run == "" || r.Mirror == "":
		return fmt.Errorf("drill %q of mirror %q, run %q", r.Name, r.Mirror, r.Run)
	case !slices.Contains(drillStates, r.State):
		return fmt.Errorf("drill %q in state %q", r.Name, r.State)
	case r.Broker < 0:
		return fmt.Errorf("drill %q is made by broker %d", r.Name, r.Broker)
	}
	return nil
}

// Is reports whether a drill is the one that a topic is a part of.
func (r *DrillRecord) Is(m DrillMark) bool { return r.Name == m.Name && r.Run == m.Run }

// Mark is what the topics of the drill carry.
func (r *DrillRecord) Mark() DrillMark { return DrillMark{Name: r.Name, Run: r.Run} }

// Encode writes the record in its current version.
func (r DrillRecord) Encode() []byte { r.V = DrillVersion; return encode(r) }

// DecodeDrill reads the value of a drill key.
func DecodeDrill(key string, data []byte) (*DrillRecord, error) {
	rec, err := decode[DrillRecord](key, data, DrillVersion)
	if err == nil && !strings.HasSuffix(key, "/"+rec.Name) {
		return nil, &ValueError{Key: key, Err: fmt.Errorf("%w: it holds drill %s", ErrValue, rec.Name)}
	}
	return rec, err
}

// Drill is the key of a DrillRecord.
func (k Keys) Drill(name string) string { return k.root + "drills/" + name }

// Drill finds a drill by name.
func (i *Image) Drill(name string) (*Drill, bool) {
	d, ok := i.drills.get(name)
	return d, ok && d.Record != nil
}

// DrillEntry gives a drill's key whether or not its value can be read: its Record may be nil.
func (i *Image) DrillEntry(name string) (*Drill, bool) { return i.drills.get(name) }

// Drills walks the drills by name.
func (i *Image) Drills() iter.Seq[*Drill] { return readable(i.drills) }

// DrillState gives the state of the drill that a topic is a part of; empty if it is
// part of none, or if that drill is gone or can't be read.
func (i *Image) DrillState(m *DrillMark) string {
	if m == nil {
		return ""
	}
	if d, ok := i.Drill(m.Name); ok && d.Record.Is(*m) {
		return d.Record.State
	}
	return ""
}

// DrillTopics walks the topics that a drill's run has written, whether or not they can be seen.
func (i *Image) DrillTopics(m DrillMark) iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for _, t := range i.topics.all() {
			if t.Record != nil && t.Record.Drill != nil && *t.Record.Drill == m && !yield(t) {
				return
			}
		}
	}
}

// shows reports whether a topic exists: its key can be read, and if it is part of a
// drill, that is ready.
func (i *Image) shows(t *Topic) bool {
	return t.Record != nil && (t.Record.Drill == nil || i.DrillState(t.Record.Drill) == DrillReady)
}

// IsDropped reports whether the name is that of a topic which went with its drill, or
// never came to be: its key is still there, and its data may go.
func (i *Image) IsDropped(name string) bool {
	n, ok := i.names.get(name)
	if !ok || n.Record == nil {
		return false
	}
	t, ok := i.topics.get(n.Record.ID)
	if !ok || t.Record == nil || t.Record.Drill == nil {
		return false
	}
	if d, there := i.drills.get(t.Record.Drill.Name); there && d.Record == nil {
		return false // who knows what it says
	}
	return i.DrillState(t.Record.Drill) != DrillReady
}

// unveiled lists the topics that come or go with the drills that differ.
func unveiled(old, next *Image, drills []Change[Drill]) []types.TopicID {
	var ids []types.TopicID
	for _, c := range drills {
		for _, d := range []*Drill{c.Old, c.New} {
			if d == nil || d.Record.State != DrillReady {
				continue
			}
			for _, image := range []*Image{old, next} {
				for t := range image.DrillTopics(d.Record.Mark()) {
					ids = append(ids, t.ID)
				}
			}
		}
	}
	return ids
}

func summarizeDrill(r *DrillRecord) string {
	return fmt.Sprintf("%s, of mirror %s, run %s, made by broker %d, epoch %d", r.State, r.Mirror, r.Run, r.Broker, r.BrokerEpoch)
}
