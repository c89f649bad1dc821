package broker

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"tidemark/internal/core/meta"
)

// notedOffices is how many registrations and offices a log dir notes, the newest.
const notedOffices = 6

// office is a registration of a broker, or the controller's office: who took it, at
// which revision. Its holder's name is fresh, so that two histories of the metadata
// that part at an earlier revision never hold the same one.
type office struct {
	taken  meta.Revision // the key's create revision
	holder uint32        // a digest of what the key is and of its holder
}

// offices are those in force at one revision, by when they were taken.
type offices struct {
	// above: all of those taken at later revisions are in list, and maybe not the others.
	above meta.Revision
	list  []office
}

// officesOf gives all that are in force in an image. Where one can't be read none
// is told: a later program may read it.
func officesOf(image *meta.Image) offices {
	keys := image.Keys()
	for f := range image.Faults() {
		if f.Key == keys.Controller() || strings.HasPrefix(f.Key, keys.Root()+"brokers/") {
			return offices{above: image.Revision()}
		}
	}
	var o offices
	for b := range image.Brokers() {
		o.list = append(o.list, office{b.CreateRevision, digest("broker", b.ID, b.Record.Incarnation)})
	}
	if c, ok := image.Controller(); ok {
		o.list = append(o.list, office{c.CreateRevision, digest("controller", c.Record.Broker, c.Record.BrokerEpoch)})
	}
	slices.SortFunc(o.list, func(a, b office) int {
		return cmp.Or(cmp.Compare(a.taken, b.taken), cmp.Compare(a.holder, b.holder))
	})
	return o
}

func digest(words ...any) uint32 {
	h := fnv.New32a()
	fmt.Fprintln(h, words...)
	return h.Sum32()
}

// newest leaves out all but the newest offices.
func (o offices) newest() offices {
	n := len(o.list) - notedOffices
	if n <= 0 {
		return o
	}
	return offices{above: o.list[n-1].taken, list: slices.DeleteFunc(slices.Clone(o.list), func(x office) bool { return x.taken <= o.list[n-1].taken })}
}

// stranger finds an office that is in force now and was taken at a revision that the
// dir had followed, and that was not in force then. An office is taken by the creation
// of its key and the key isn't created again while it is there: in one history, what
// is there since a revision was there at every one after it. Those that are gone tell
// nothing; they are looked for in the store's own past (partsBefore).
func (m seenMark) stranger(now offices) (office, bool) {
	for _, o := range now.list {
		if o.taken > max(m.offices.above, now.above) && o.taken <= m.revision && !slices.Contains(m.offices.list, o) {
			return o, true
		}
	}
	return office{}, false
}

// same reports whether two lists that were made at one revision are of one history,
// as far as both tell.
func (o offices) same(p offices) bool {
	above := max(o.above, p.above)
	told := func(o offices) []office {
		return slices.DeleteFunc(slices.Clone(o.list), func(x office) bool { return x.taken <= above })
	}
	return slices.Equal(told(o), told(p))
}

// lines writes offices as they stand in seenRevisionFile.
func (o offices) lines() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d\n", o.above)
	for _, x := range o.list {
		fmt.Fprintf(&text, "%d %08x\n", x.taken, x.holder)
	}
	return text.String()
}

func parseOffices(lines []string) (offices, bool) {
	if len(lines) == 0 {
		return offices{}, false
	}
	above, err := strconv.ParseInt(lines[0], 10, 64)
	if err != nil || above < 0 {
		return offices{}, false
	}
	o := offices{above: meta.Revision(above)}
	for _, line := range lines[1:] {
		at, who, _ := strings.Cut(line, " ")
		taken, err := strconv.ParseInt(at, 10, 64)
		holder, fault := strconv.ParseUint(who, 16, 32)
		if err != nil || fault != nil || taken < 0 {
			return offices{}, false
		}
		o.list = append(o.list, office{meta.Revision(taken), uint32(holder)})
	}
	return o, true
}
