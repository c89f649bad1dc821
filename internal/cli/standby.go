package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"tidemark/internal/broker/mirror"
)

// Pace of what a standby says of its first copy.
const (
	copyEveryTerminal = 500 * time.Millisecond
	copyEveryLine     = 30 * time.Second
)

// liveLine is standard error with one line at its end that is drawn again and
// again: what others write goes above it.
type liveLine struct {
	mu sync.Mutex
	// guards the following
	w    io.Writer
	line string
}

// Write implements io.Writer.
func (l *liveLine) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line == "" {
		return l.w.Write(p)
	}
	if _, err := io.WriteString(l.w, "\r\x1b[K"); err != nil {
		return 0, err
	}
	n, err := l.w.Write(p)
	if err == nil {
		_, err = io.WriteString(l.w, l.line)
	}
	return n, err
}

// draw replaces the line; an empty one takes it away.
func (l *liveLine) draw(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line == "" && l.line == "" {
		return
	}
	l.line = line
	_, _ = io.WriteString(l.w, "\r\x1b[K"+line) // a terminal that is gone needs no line
}

// copyState is how far a mirror's first copy has come.
type copyState struct {
	bytes, left           int64 // here, and an estimate of what is missing
	records               int64 // missing
	partitions, copied    int
	failed                int
	state, reason         string
	isComplete, isStarted bool
}

func copyStateOf(st mirror.Status) copyState {
	c := copyState{partitions: len(st.Partitions), state: st.State, reason: st.Reason, isStarted: len(st.Partitions) > 0}
	for _, p := range st.Partitions {
		c.bytes += max(p.Bytes, 0)
		c.left += max(p.LagBytes, 0)
		c.records += max(p.LagRecords, 0)
		switch {
		case p.State == "FAILED":
			c.failed++
		case p.LagRecords == 0 && p.Loss != nil && p.Loss.Known, p.Promotion != nil:
			c.copied++
		}
	}
	c.isComplete = c.isStarted && c.copied+c.failed == c.partitions
	return c
}

// rate is a smoothed speed in bytes per second.
type rate struct {
	at    time.Time
	bytes int64
	speed float64
}

func (r *rate) seen(now time.Time, bytes int64) {
	if took := now.Sub(r.at).Seconds(); !r.at.IsZero() && took > 0 {
		const share = 0.3
		r.speed += share * (max(float64(bytes-r.bytes), 0)/took - r.speed)
	}
	r.at, r.bytes = now, bytes
}

// eta is how long the rest takes at the present speed; 0 if that can't be said.
func (r *rate) eta(left int64) time.Duration {
	if r.speed < 1 || left <= 0 {
		return 0
	}
	return time.Duration(float64(left) / r.speed * float64(time.Second)).Round(time.Second)
}

// text says a copy's progress in one line.
func (c copyState) text(r *rate) string {
	if !c.isStarted {
		line := "first copy: " + c.state
		if c.reason != "" {
			line += ": " + c.reason
		}
		return line
	}
	line := fmt.Sprintf("first copy: %s here, %d of %d partitions complete, %s/s", bytesText(c.bytes), c.copied, c.partitions, bytesText(int64(r.speed)))
	if c.records > 0 {
		line += fmt.Sprintf(", about %s (%d records) left", bytesText(c.left), c.records)
	}
	if eta := r.eta(c.left); eta > 0 {
		line += ", " + eta.String() + " to go"
	}
	if c.failed > 0 {
		line += fmt.Sprintf(", %d partitions failed", c.failed)
	}
	return line
}

// copyWatch tells of a mirror's first copy until it is complete.
type copyWatch struct {
	status func(context.Context) (mirror.Status, error)
	log    *slog.Logger
	line   *liveLine // nil: structured lines, rarely
}

// run tells until everything that the source had is here, or ctx ends. A mirror
// that was complete at the first look is passed over in silence.
func (w *copyWatch) run(ctx context.Context) {
	every := copyEveryLine
	if w.line != nil {
		every = copyEveryTerminal
		defer w.line.draw("")
	}
	began, r, told := time.Now(), &rate{}, false
	next := began.Add(every)
	_ = watch(ctx, min(every, copyEveryTerminal), func() (bool, error) { // the error is f's own, which has none
		st, err := w.status(ctx)
		if err != nil {
			return true, nil
		}
		c := copyStateOf(st)
		r.seen(time.Now(), c.bytes)
		switch {
		case c.isComplete && (told || c.bytes > 0):
			w.log.Info("first copy is complete", "mirror", st.Mirror, "partitions", c.copied, "failed", c.failed, "bytes", c.bytes, "took", time.Since(began).Round(time.Millisecond).String())
			return true, nil
		case c.isComplete || st.State == "STOPPED" || st.State == "STOPPING":
			return true, nil
		case w.line != nil:
			told = true
			w.line.draw(c.text(r))
		case st.FailingMs > 0:
			next = time.Now().Add(every) // the mirror says it itself, and less often
		case !time.Now().Before(next):
			told, next = true, next.Add(every)
			w.log.Info("first copy", "mirror", st.Mirror, "state", st.State, "bytes", c.bytes, "bytesLeft", c.left, "recordsLeft", c.records,
				"partitions", c.partitions, "complete", c.copied, "failed", c.failed, "bytesPerSecond", int64(r.speed), "eta", r.eta(c.left).String())
		}
		return false, nil
	})
}
