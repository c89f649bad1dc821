package sim

import (
	"fmt"
	"io"
	"time"
)

// story keeps a run's lines, the newest ones if there are too many. A nil story keeps none.
type story struct {
	lines []line
	max   int // 0: no bound
}

type line struct {
	at   time.Duration
	who  string
	text string
}

func (s *story) add(at time.Duration, who, text string) {
	if s == nil {
		return
	}
	if s.max > 0 && len(s.lines) >= 2*s.max {
		s.lines = append(s.lines[:0], s.lines[len(s.lines)-s.max:]...)
	}
	s.lines = append(s.lines, line{at, who, text})
}

// legend says what the first column of a story means.
const legend = `  time      virtual, minutes:seconds.milliseconds
  PLAN      what was ordered from outside: clients, operators, faults (with its number in the plan)
  source    the source cluster: elections, cuts, retention, its end as consumers see it
  standby   the node: start, registration, image, what its partition does and is told
  broker N  a broker of the cluster: its own log, start and end
  operator  what an operator's request came to
  disk      crashes and injected errors
  store     the metadata store: its faults; registrations and partition records as they are written
  CHECK     a checker's finding
  offsets   base-next@epoch is a batch; [start, end) hw n is a log
`

// write prints the story.
func (s *story) write(w io.Writer) error {
	if s == nil {
		return nil
	}
	lines := s.lines
	if s.max > 0 && len(lines) > s.max {
		lines = lines[len(lines)-s.max:]
	}
	if len(lines) < len(s.lines) || s.max > 0 && len(s.lines) >= s.max {
		if _, err := fmt.Fprintf(w, "… earlier lines left out\n"); err != nil {
			return err
		}
	}
	for _, l := range lines {
		m := l.at / time.Minute
		sec := (l.at % time.Minute) / time.Second
		ms := (l.at % time.Second) / time.Millisecond
		if _, err := fmt.Fprintf(w, "%02d:%02d.%03d %-8s %s\n", m, sec, ms, l.who, l.text); err != nil {
			return err
		}
	}
	return nil
}
