package cli

import (
	"fmt"
	"time"
)

// Pace of progress reports: often where a person watches, rarely where lines pile up.
const (
	progressEveryTerminal = 250 * time.Millisecond
	progressEveryLine     = 10 * time.Second
)

// progress tells on standard error how far long work has come: one line that
// is drawn again on a terminal, and plain lines elsewhere.
type progress struct {
	s     Streams
	what  string
	begin time.Time
	told  time.Time
	drawn bool
}

func newProgress(s Streams, what string) *progress {
	now := time.Now()
	return &progress{s: s, what: what, begin: now, told: now}
}

// at reports done of total bytes; total 0 means unknown.
func (p *progress) at(done, total int64) {
	now := time.Now()
	every := progressEveryLine
	if p.s.OutTerminal {
		every = progressEveryTerminal
	}
	if now.Sub(p.told) < every {
		return
	}
	p.told = now
	line := progressText(p.what, done, total, now.Sub(p.begin))
	if p.s.OutTerminal {
		fmt.Fprintf(p.s.Err, "\r\x1b[K%s", line)
		p.drawn = true
		return
	}
	fmt.Fprintln(p.s.Err, line)
}

// end leaves the line that was drawn.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprintln(p.s.Err)
	}
}

// progressText says how far, how fast and how long to go.
func progressText(what string, done, total int64, took time.Duration) string {
	rate := float64(done) / max(took.Seconds(), 0.001)
	line := fmt.Sprintf("%s: %s, %s/s", what, bytesText(done), bytesText(int64(rate)))
	if total <= 0 {
		return line
	}
	line = fmt.Sprintf("%s: %s of %s (%.0f%%), %s/s", what, bytesText(done), bytesText(total), 100*float64(done)/float64(total), bytesText(int64(rate)))
	if rate > 0 && done < total {
		line += ", " + time.Duration(float64(total-done)/rate*float64(time.Second)).Round(time.Second).String() + " to go"
	}
	return line
}
