package mirror

import (
	"errors"
	"fmt"
	"strings"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
)

// SwitchoverStatus is the newest switchover of a mirror's present start, as its record
// has it (docs/adr/0032). A cluster below level 4, and a source that is no Tidemark, have none.
type SwitchoverStatus struct {
	// Attempt is its number: what fences at the source name.
	Attempt int64 `json:"attempt"`
	// State is working, ordered (the promotion is decided), returning (given up, its
	// fences at the source are taken back) or over (given up, and that is done).
	State string `json:"state"`
	// Broker works at it, or at its way back.
	Broker types.BrokerID `json:"broker"`
	// AtWork: the broker still has the registration in which it does so. Without it
	// another one takes over, and gives the switchover up.
	AtWork bool `json:"atWork"`
	// Since is when the switchover began.
	Since types.Millis `json:"since"`
	// Error is why its fences could not be taken back yet, as the broker at work knows it.
	Error string `json:"error,omitempty"`
	// Message says it in one sentence; empty where there is nothing left to be done or known.
	Message string `json:"message,omitempty"`
}

// overShown is for how long a switchover that went back is told of.
const overShown = types.Millis(24 * 60 * 60 * 1000)

// switchStatus gives the switchover of a mirror's present start, nil if there is none.
// What went wrong is known to the broker at work alone.
func (m *Mirrors) switchStatus(image *meta.Image, rec *meta.MirrorRecord) *SwitchoverStatus {
	s := rec.Switch
	if s == nil || s.StartID != rec.StartID {
		return nil
	}
	epoch, registered := image.BrokerEpoch(s.Broker)
	out := &SwitchoverStatus{Attempt: s.Attempt.Number, State: s.State, Broker: s.Broker, AtWork: registered && epoch == s.BrokerEpoch, Since: s.At}
	if r := m.run(rec.Name); r != nil && s.State == meta.SwitchReturning && s.Broker == m.holder().Broker {
		out.Error, _ = r.health.last(syncSwitch)
		out.Error = firstLines(out.Error)
	}
	var stays *core.Refusal
	if _, err := core.GiveUpSwitchover(rec, m.holder(), restoreOf(image), func(core.Holder) bool { return false }); !errors.As(err, &stays) {
		stays = &core.Refusal{}
	}
	out.Message = out.words(stays.Detail, m.o.Node.Now())
	if s.State == meta.SwitchOver && out.Message != "" {
		out.Message += m.stayClosedWords(rec.Name, s.StartID, s.At)
	}
	return out
}

// firstLines makes one line of a text that may have one for each partition.
func firstLines(text string) string {
	const shown = 3
	lines := strings.Split(text, "\n")
	if more := len(lines) - shown; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(lines[:shown], "; "), more)
	}
	return strings.Join(lines, "; ")
}

// words says how a switchover stands, at a time. stays says why nobody gives it up, where that is so.
func (s *SwitchoverStatus) words(stays string, now types.Millis) string {
	name := fmt.Sprintf("switchover %d, begun at %s (%s ago)", s.Attempt, utc(s.Since), spanText(max(int64(now-s.Since), 0)))
	switch {
	case s.State == meta.SwitchOrdered:
		return ""
	case s.State == meta.SwitchOver && now-s.Since >= overShown:
		return ""
	case s.State == meta.SwitchOver:
		return name + ", was given up; as far as the source could be asked, it is open to writes again (the events tell more)"
	case stays != "":
		return fmt.Sprintf("%s, is not taken back: %s. There, `tidemark mirror reopen` opens it, and a failback takes its place", name, stays)
	case s.State == meta.SwitchReturning && s.Error != "":
		return fmt.Sprintf("%s, was given up. Broker %d is to open the source again, and can't yet: %s. It goes on by itself once the source answers; `tidemark mirror reopen` at the source opens it at once", name, s.Broker, s.Error)
	case s.State == meta.SwitchReturning:
		return fmt.Sprintf("%s, was given up; broker %d opens the source again", name, s.Broker)
	case s.AtWork:
		return fmt.Sprintf("%s: broker %d is at work at it; the source is closed to writes meanwhile, and opened again if it fails", name, s.Broker)
	}
	return fmt.Sprintf("%s: broker %d was at work at it and is lost; another one gives it up and opens the source again", name, s.Broker)
}
