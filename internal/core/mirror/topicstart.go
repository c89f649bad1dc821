package mirror

import (
	"fmt"
	"strconv"
	"strings"

	"tidemark/internal/core/meta"
)

// While a mirror runs on, single topics may be failed over and failed back, again and
// again, in one start of the mirror. Each of these begins is a start of the topic: it is
// named by the mirror's start and, from the second on, a number: s1, s1.1, s1.2. An order
// for a topic names it, so that one that comes late is not taken for a new one (ADR 0020).

// TopicStart names the start that a partition's topic follows, or has ended last.
func TopicStart(m *meta.MirrorState) string {
	if m.Begun == 0 {
		return m.StartID
	}
	return m.StartID + "." + strconv.Itoa(m.Begun)
}

// SplitStart takes a topic's start apart: the mirror's start, and how often the topic
// was begun anew in it.
func SplitStart(id string) (start string, begun int) {
	if at := strings.LastIndexByte(id, '.'); at >= 0 {
		if n, err := strconv.Atoi(id[at+1:]); err == nil && n > 0 {
			return id[:at], n
		}
	}
	return id, 0
}

// OfEarlierStart refuses an order for a topic's start that another one has followed since; an
// empty order is for whichever it is. An order for a later start than a partition's own
// is for that, too: the others of its topic were begun once more than it.
//
// Invariant I-370: no order ends or takes back a start of a topic that was begun after the one it names.
func OfEarlierStart(m *meta.MirrorState, order string) error {
	start, begun := SplitStart(order)
	if order == "" || m == nil || start == m.StartID && begun >= m.Begun {
		return nil
	}
	return &Refusal{StaleRequest, fmt.Sprintf("the order is for start %s, and it was started anew since: it follows start %s; look at mirror status, and order anew what is still wanted", order, TopicStart(m))}
}
