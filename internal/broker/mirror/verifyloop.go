package mirror

import (
	"fmt"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/types"
)

// verifyLook is how often the loop looks whether a comparison is due.
const verifyLook = time.Second

// verifyLoop compares the partitions led here with the source again and again
// (mirror.verify.interval.ms), at a bounded rate. The time of the last one is in
// its report, so that a restart begins no new one early.
func (r *run) verifyLoop() {
	var failedAt time.Time
	for pause(r.ctx, min(verifyLook, millis(max(r.settings.Load().VerifyIntervalMs, 50)))) {
		s := r.settings.Load()
		if s.VerifyIntervalMs < 0 || !r.isRunning() || r.client == nil {
			continue
		}
		if _, met := r.health.last(syncTopics); !met {
			continue // the source has not been reached yet
		}
		ended := types.Millis(0)
		if last := r.m.reports.latest(r.name); last != nil {
			ended = last.Ended
		}
		if r.m.o.Node.Now()-ended < s.VerifyIntervalMs || clock.Since(r.ctx, failedAt) < verifyRetry {
			continue
		}
		if err := r.verifyOnce(); err != nil {
			failedAt = clock.Now(r.ctx)
			r.noteFault(syncVerify, err)
		} else {
			r.health.ok(syncVerify)
		}
	}
}

// verifyRetry is the pause after a comparison that came to nothing.
const verifyRetry = 30 * time.Second

// syncVerify names the comparison among the syncs whose health is told.
const syncVerify = "verify"

func (r *run) verifyOnce() error {
	v, err := r.m.newVerification(r.name)
	if err != nil {
		return err
	}
	defer v.client.Close()
	v.background = true
	v.throttle = newThrottle(r.ctx, r.settings.Load().VerifyBytesPerSec)
	v.report = func(Verify) { v.throttle.set(r.settings.Load().VerifyBytesPerSec) }
	began := r.m.o.Node.Now()
	if err := v.run(r.ctx, r.name); err != nil {
		return err
	}
	r.m.keepReport(v, r.name, began)
	return nil
}

// keepReport keeps a comparison that has ended, and tells of it.
func (m *Mirrors) keepReport(v *verification, name string, began types.Millis) {
	r := &VerifyReport{
		Format: 1, Software: m.o.Version, ClusterID: m.o.Node.ClusterID(), Node: m.o.Node.NodeID(),
		Began: began, Ended: m.o.Node.Now(), Background: v.background, Result: v.result,
	}
	if e, ok := m.o.Node.Image().Mirror(name); ok {
		r.SourceClusterID, r.Source = e.Record.SourceClusterID, e.Record.Bootstrap
	}
	m.reports.keep(r)
	s := r.summary()
	mt := m.o.Metrics.Mirror
	mt.VerifyEnd.WithLabelValues(name).Set(float64(r.Ended) / 1000)
	mt.VerifyDifferent.WithLabelValues(name).Set(float64(s.Different))
	mt.VerifyUnproved.WithLabelValues(name).Set(float64(s.Unproved))
	mt.VerifyBytes.WithLabelValues(name).Add(float64(s.Bytes))
	for _, p := range r.Result.Partitions {
		if p.Difference != "" {
			m.events.add(m.log, Event{
				At: r.Ended, Mirror: name, Kind: VerifyDiffers, Topic: p.Topic, Partition: p.Partition, From: p.VerifiedTo, To: types.NoOffset,
				Message: fmt.Sprintf("%s-%d: differs from the source at offset %d: %s; report %s", p.Topic, p.Partition, p.VerifiedTo, p.Difference, orNone(r.File)),
			})
		}
	}
	if s.Different == 0 {
		m.events.add(m.log, Event{
			At: r.Ended, Mirror: name, Kind: VerifyDone, Partition: -1, From: types.NoOffset, To: types.NoOffset,
			Message: fmt.Sprintf("mirror %s: %d partitions compared with the source, %d bytes, no difference, %d not finished; report %s", name, s.Partitions, s.Bytes, s.Unproved, orNone(r.File)),
		})
	}
}
