package mirror

import (
	"context"
	"errors"
	"fmt"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/source"
)

// Create writes a new mirror; it doesn't start it. What the spec says is checked
// as far as that is possible without the source.
func (m *Mirrors) Create(ctx context.Context, spec Spec) error {
	rec := meta.MirrorRecord{
		Name: spec.Name, Bootstrap: spec.Bootstrap, ClientConfig: spec.ClientConfig, Topics: spec.Topics, Exclude: spec.Exclude,
		Groups: spec.Groups, Settings: spec.Settings, Want: meta.WantCreated, CreatedAt: m.o.Node.Now(),
	}
	s, err := settingsOf(m.o.Config.Mirror, spec.Settings)
	if err == nil {
		_, err = newFilter(&rec)
	}
	if err != nil {
		return fmt.Errorf("mirror %s: %w", spec.Name, err)
	}
	cfg, err := clientConfig(&rec, s)
	if err != nil {
		return fmt.Errorf("mirror %s: %w: %w", spec.Name, ErrSpec, err)
	}
	rec.Bootstrap = cfg.Bootstrap
	err = m.commitAll(ctx, func(image *meta.Image) ([]meta.Plan, error) {
		plan, err := control.CreateMirror(image, rec, m.o.Node.Me())
		return []meta.Plan{plan}, err
	})
	switch {
	case errors.Is(err, control.ErrMirrorExists):
		return fmt.Errorf("%w: %s; choose another name, or delete it first", ErrExists, spec.Name)
	case errors.Is(err, control.ErrInvalidRequest):
		return fmt.Errorf("%w: %w", ErrSpec, err)
	}
	return err
}

// Start begins the mirroring. On a mirror that runs it changes nothing.
func (m *Mirrors) Start(ctx context.Context, name string) error {
	return m.update(ctx, name, func(rec *meta.MirrorRecord) error {
		switch rec.Want {
		case meta.WantCreated:
			rec.Want, rec.StartID = meta.WantRunning, freshID()
		case meta.WantPaused:
			return fmt.Errorf("mirror %s is paused: %w; resume it", name, ErrState)
		case meta.WantStopped:
			return fmt.Errorf("mirror %s has been failed over: %w; its topics are writable here. To copy the other way, make a mirror on the other cluster", name, ErrState)
		}
		return nil
	})
}

// Pause stops the copying; everything stays as it is and stays read-only.
func (m *Mirrors) Pause(ctx context.Context, name string) error {
	err := m.update(ctx, name, func(rec *meta.MirrorRecord) error {
		switch rec.Want {
		case meta.WantRunning:
			rec.Want = meta.WantPaused
		case meta.WantPaused:
		default:
			return fmt.Errorf("mirror %s is %s: %w; only a running mirror can be paused", name, rec.Want, ErrState)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return m.changePartitions(ctx, name, func(rec *meta.PartitionRecord) (meta.PartitionRecord, error) { return core.Pause(rec) })
}

// Resume goes on after a pause, and tries again at once what has failed.
func (m *Mirrors) Resume(ctx context.Context, name string) error {
	err := m.update(ctx, name, func(rec *meta.MirrorRecord) error {
		switch rec.Want {
		case meta.WantPaused:
			rec.Want = meta.WantRunning
		case meta.WantRunning:
		default:
			return fmt.Errorf("mirror %s is %s: %w; only a paused or failed mirror can be resumed", name, rec.Want, ErrState)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = m.changePartitions(ctx, name, func(rec *meta.PartitionRecord) (meta.PartitionRecord, error) {
		if rec.Mirror.State != meta.MirrorPaused {
			return *rec, nil // a failed one tries again, and leaves FAILED once its cause is gone
		}
		return core.Resume(rec)
	})
	if r := m.run(name); r != nil {
		for _, c := range r.all() {
			c.send(core.RetryNow{})
		}
	}
	return err
}

// changePartitions writes the records of all partitions that follow a mirror and
// are led here, and tries again those that somebody else wrote meanwhile.
func (m *Mirrors) changePartitions(ctx context.Context, name string, change func(*meta.PartitionRecord) (meta.PartitionRecord, error)) error {
	for try := 1; ; try++ {
		refused, err := m.changeOnce(ctx, name, change)
		switch {
		case err != nil:
			return err
		case refused == 0:
			return nil
		case try == commitTries:
			return fmt.Errorf("mirror %s: %d partitions can't be written; try again", name, refused)
		}
	}
}

func (m *Mirrors) changeOnce(ctx context.Context, name string, change func(*meta.PartitionRecord) (meta.PartitionRecord, error)) (refused int, err error) {
	image, me := m.o.Node.Image(), m.o.Node.Me()
	var changes []*awaited
	for p := range image.Partitions() {
		if p.Record == nil || p.Record.Mirror == nil || p.Record.Mirror.Name != name || p.Record.Writable || p.Record.Leader != me.ID {
			continue
		}
		next, err := change(p.Record)
		if err != nil {
			return 0, fmt.Errorf("mirror %s: %w: %w", name, ErrState, err)
		}
		if next.Mirror.State == p.Record.Mirror.State {
			continue
		}
		changes = append(changes, newAwaited(p.ID, p.ModRevision, next))
	}
	return m.writeAll(ctx, changes)
}

// awaited is a change whose outcome is waited for.
type awaited struct {
	change
	outcome chan bool
}

func newAwaited(id meta.PartitionID, from meta.Revision, rec meta.PartitionRecord) *awaited {
	c := &awaited{outcome: make(chan bool, 1)}
	c.change = change{id: id, from: from, record: rec, done: func(applied bool) { c.outcome <- applied }}
	return c
}

// writeAll commits changes and waits for all outcomes; it gives the number of those that came too late.
func (m *Mirrors) writeAll(ctx context.Context, changes []*awaited) (refused int, err error) {
	list := make([]*change, len(changes))
	for i, c := range changes {
		list[i] = &c.change
	}
	m.writer.put(list...)
	for _, c := range changes {
		select {
		case applied := <-c.outcome:
			if !applied {
				refused++
			}
		case <-ctx.Done():
			return refused, ctx.Err()
		case <-m.ctx.Done():
			return refused, errors.New("the node is shutting down")
		}
	}
	return refused, nil
}

// Delete forgets a mirror that was never started or has been failed over.
func (m *Mirrors) Delete(ctx context.Context, name string) error {
	err := m.commitAll(ctx, func(image *meta.Image) ([]meta.Plan, error) {
		plan, err := control.DeleteMirror(image, name, m.o.Node.Me())
		return []meta.Plan{plan}, err
	})
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
