package mirror

import (
	"errors"
	"fmt"
	"strings"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/source"
)

// sourceWayOut says what an operator can do about a source that can't be used; empty
// where the error isn't the source's, or says it itself.
func sourceWayOut(rec *meta.MirrorRecord, err error) string {
	var way string
	switch {
	case errors.Is(err, source.ErrOtherCluster):
		way = core.OtherCluster.WayOut()
	case errors.Is(err, source.ErrAuth), errors.Is(err, source.ErrTLS), errors.Is(err, source.ErrConfig):
		way = core.SourceAuth.WayOut()
	case errors.Is(err, source.ErrTooOld):
		way = core.SourceTooOld.WayOut()
	case errors.Is(err, source.ErrUnreachable), errors.Is(err, source.ErrTimeout):
		way = fmt.Sprintf("is it running, and are %s its addresses? `mirror alter NAME --source HOST:PORT` points at others", strings.Join(rec.Bootstrap, ","))
	}
	return strings.ReplaceAll(way, "NAME", rec.Name)
}

// needsSource adds to the error of a verb that asks the source, and changed nothing before
// it did, what can be done about it. Errors that aren't the source's stay as they are.
func (m *Mirrors) needsSource(name, verb string, err error) error {
	e, ok := m.o.Node.Image().Mirror(name)
	if err == nil || !ok {
		return err
	}
	way := sourceWayOut(e.Record, err)
	if way == "" {
		return err
	}
	return fmt.Errorf("mirror %s: %s needs the source, and can't use it: %w; %s. Nothing was changed: once that is put right, the same command again does it", name, verb, err, way)
}
