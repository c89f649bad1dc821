package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/config"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/source"
)

// Create writes a new mirror; it doesn't start it. What the spec says is checked
// as far as that is possible without the source.
func (m *Mirrors) Create(ctx context.Context, spec Spec) error {
	rec, err := spec.record(m.o.Config.Mirror)
	if err != nil {
		return err
	}
	rec.CreatedAt = m.o.Node.Now()
	err = m.commitAll(ctx, func(image *meta.Image) ([]meta.Plan, error) {
		plan, err := control.CreateMirror(image, rec, m.o.Node.Me())
		if err != nil {
			return nil, err
		}
		plans, err := control.Disown(image, rec.Name, m.o.Node.Me(), m.o.Node.Limits())
		return append(plans, plan), err
	})
	switch {
	case errors.Is(err, control.ErrMirrorExists):
		return fmt.Errorf("%w: %s; choose another name, or delete it first", ErrExists, spec.Name)
	case errors.Is(err, control.ErrInvalidRequest):
		return fmt.Errorf("%w: %w", ErrSpec, err)
	}
	return err
}

// Check says what is wrong with a spec, as far as that shows before a node
// runs: its expressions, settings and client properties.
func (s Spec) Check(node config.Mirror) error {
	_, err := s.record(node)
	return err
}

// record is the metadata record that the spec asks for, checked.
func (s Spec) record(node config.Mirror) (meta.MirrorRecord, error) {
	rec := meta.MirrorRecord{
		Name: s.Name, Bootstrap: s.Bootstrap, ClientConfig: s.ClientConfig, Topics: s.Topics, Exclude: s.Exclude,
		Groups: s.Groups, Settings: s.Settings, Want: meta.WantCreated,
	}
	settings, err := settingsOf(node, s.Settings)
	if err == nil {
		_, err = newFilter(&rec)
	}
	if err != nil {
		return rec, fmt.Errorf("mirror %s: %w", s.Name, err)
	}
	cfg, err := clientConfig(&rec, settings)
	if err != nil {
		return rec, fmt.Errorf("mirror %s: %w: %w", s.Name, ErrSpec, err)
	}
	rec.Bootstrap = cfg.Bootstrap
	return rec, nil
}

// Start begins the mirroring. On a mirror that runs it changes nothing.
func (m *Mirrors) Start(ctx context.Context, name string) error {
	return m.update(ctx, name, m.toStart)
}

// Reconnect gives an existing mirror the source addresses and client properties
// of spec, as after a change of its password, and tells what was done in words;
// nothing where they are as they were. What it mirrors stays: the names of
// selections that spec wants otherwise are in the words too.
func (m *Mirrors) Reconnect(ctx context.Context, s Spec) (words []string, err error) {
	want, err := s.record(m.o.Config.Mirror)
	if err != nil {
		return nil, err
	}
	err = m.update(ctx, s.Name, func(rec *meta.MirrorRecord) error {
		words = nil
		for _, sel := range []struct{ name, old, now string }{
			{"topics", rec.Topics, want.Topics}, {"exclude", rec.Exclude, want.Exclude}, {"groups", rec.Groups, want.Groups},
		} {
			if sel.old != sel.now {
				words = append(words, fmt.Sprintf("%s stays %q as at the mirror's creation, not %q", sel.name, sel.old, sel.now))
			}
		}
		if slices.Equal(rec.Bootstrap, want.Bootstrap) && maps.Equal(rec.ClientConfig, want.ClientConfig) {
			return nil
		}
		words = append(words, "the source's addresses or client properties are changed as asked")
		rec.Bootstrap, rec.ClientConfig = want.Bootstrap, want.ClientConfig
		return nil
	})
	return words, err
}

// Pause stops the copying; everything stays as it is and stays read-only.
func (m *Mirrors) Pause(ctx context.Context, name string) error {
	if err := m.update(ctx, name, toPause); err != nil {
		return err
	}
	return m.partitionsTo(ctx, name, meta.WantPaused)
}

// Resume goes on after a pause, and tries again at once what has failed.
func (m *Mirrors) Resume(ctx context.Context, name string) error {
	if err := m.update(ctx, name, toResume); err != nil {
		return err
	}
	return m.partitionsTo(ctx, name, meta.WantRunning)
}

// finishTurn has the partitions that are led here pause or go on as the mirror is to: the
// order may have found no leader, or its node may have ended in the middle, or a start
// may have ended after it. It is decided, so that whoever leads carries it out.
func (r *run) finishTurn(ctx context.Context) {
	for n := 1; ; n++ {
		p := part{Mirror: r.name, Want: r.record.Load().Want}
		left := r.m.ledHere(r.m.o.Node.Image(), func(t *meta.Topic, e *meta.Partition) bool {
			return p.isOf(t, e) && isUnturned(p.Want, e.Record)
		})
		if len(left) == 0 {
			return
		}
		if _, err := r.m.stateHere(ctx, p); err != nil {
			r.m.log.Warn("partitions can't be paused or resumed as their mirror was yet", "mirror", r.name, "want", p.Want, "partitions", len(left), "err", err)
		}
		if !pause(ctx, r.backoff(n)) {
			return
		}
	}
}

// isUnturned reports whether a mirrored partition has not paused, or not gone on, as its
// mirror wants. A start under way ends first, one way or the other (R25): its second look
// is still owed to the records that it closed the partition for.
func isUnturned(want string, rec *meta.PartitionRecord) bool {
	switch want {
	case meta.WantPaused:
		return rec.IsMirror() && rec.Mirror.State != meta.MirrorPaused && rec.Mirror.State != meta.MirrorStarting
	case meta.WantRunning:
		return rec.IsMirror() && rec.Mirror.State == meta.MirrorPaused
	}
	return false
}

// partitionsTo has the leaders of the mirror's partitions, wherever they are, pause or go on.
func (m *Mirrors) partitionsTo(ctx context.Context, name, want string) error {
	list, err := m.everywhere(ctx, partState, part{Mirror: name, Want: want}, peerPatience)
	if err != nil {
		return fmt.Errorf("mirror %s is to be %s; not all of its partitions are yet, and the rest follow by themselves: %w", name, want, err)
	}
	for _, o := range list {
		if o.Reason != "" {
			return fmt.Errorf("mirror %s: %w: %s", name, ErrState, o.sentence())
		}
	}
	return nil
}

// awaited is a change whose outcome is waited for.
type awaited struct {
	change
	ended   chan struct{} // closed once the outcome is certain
	applied bool          // valid then
	tell    func()        // says what was done, once it is; nil: there is nothing to say
}

func newAwaited(id meta.PartitionID, from meta.Revision, rec meta.PartitionRecord) *awaited {
	c := &awaited{ended: make(chan struct{})}
	c.change = change{id: id, from: from, record: rec, done: func(applied bool) { c.applied = applied; close(c.ended) }}
	return c
}

// writeAll commits changes and waits for all outcomes; it gives the number of those that came too late.
func (m *Mirrors) writeAll(ctx context.Context, changes []*awaited) (refused int, err error) {
	late, err := m.writeEachOf(ctx, changes)
	return len(late), err
}

// writeEachOf is writeAll that says which came too late, by place.
func (m *Mirrors) writeEachOf(ctx context.Context, changes []*awaited) (late []int, err error) {
	list := make([]*change, len(changes))
	for i, c := range changes {
		list[i] = &c.change
	}
	m.writer.put(list...)
	for i, c := range changes {
		applied, err := m.await(ctx, c)
		if err != nil {
			return late, err
		}
		switch {
		case !applied:
			late = append(late, i)
		case c.tell != nil:
			c.tell()
		}
	}
	return late, nil
}

// closeLook is how often a wait for a change looks whether the node shuts down:
// then nobody decides it any more.
const closeLook = 200 * time.Millisecond

// await waits for the outcome of a change that was put to the writer.
func (m *Mirrors) await(ctx context.Context, c *awaited) (applied bool, err error) {
	for {
		switch ended, err := clock.Wait(ctx, closeLook, c.ended); {
		case ended:
			return c.applied, nil
		case err != nil:
			return false, err
		case m.ctx.Err() != nil:
			return false, errors.New("the node is shutting down")
		}
	}
}

// Delete forgets a mirror that was never started or has been failed over.
func (m *Mirrors) Delete(ctx context.Context, name string) error {
	return deleteFault(name, m.commitAll(ctx, func(image *meta.Image) ([]meta.Plan, error) {
		plan, err := control.DeleteMirror(image, name, m.o.Node.Me())
		return []meta.Plan{plan}, err
	}))
}

// deleteFault says what is in the way of forgetting a mirror.
func deleteFault(name string, err error) error {
	switch {
	case errors.Is(err, control.ErrUnknownMirror):
		return fmt.Errorf("%w: %s", ErrUnknownMirror, name)
	case errors.Is(err, control.ErrMirrorInUse):
		return fmt.Errorf("mirror %s: %w: %w; fail it over first (a partition becomes writable only that way), or delete its topics", name, ErrState, err)
	}
	return err
}

// spec is what an operator may see of a mirror's settings.
func spec(rec *meta.MirrorRecord) Spec {
	return Spec{
		Name: rec.Name, Bootstrap: rec.Bootstrap, ClientConfig: source.Redact(rec.ClientConfig), Topics: rec.Topics,
		Exclude: rec.Exclude, Groups: rec.Groups, Settings: rec.Settings,
	}
}
