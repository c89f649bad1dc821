package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/clock"
)

// The verbs of DESIGN §6.4, as an operator orders them at any broker of a cluster.
// Each is the node's own method, called as the admin API calls it.

// mirrorOf names the mirror of one cluster at another.
func mirrorOf(far farCluster) string { return "from-" + far.clusterID() }

// spec describes the mirror of a cluster.
func (w *mirrors) spec(far farCluster) mirror.Spec {
	var addresses []string
	for _, id := range far.brokers() {
		addresses = append(addresses, fmt.Sprintf("%s-%d:9092", far.clusterID(), id))
	}
	return mirror.Spec{Name: mirrorOf(far), Bootstrap: addresses, Topics: clusterTopic}
}

// anyFar picks a cluster that c may mirror.
func (w *mirrors) anyFar(d dice, c *cluster) farCluster {
	for {
		f := w.fars[d.IntN(len(w.fars))]
		if f.clusterID() != c.id {
			return f
		}
	}
}

// verb has a broker of a cluster do an operator's verb as a task, and tells what it came to.
func (w *mirrors) verb(d dice, c *cluster, what string, do func(ctx context.Context, m *mirror.Mirrors) error) bool {
	kind, _, _ := strings.Cut(what, " ")
	at := d.IntN(len(c.machines))
	for i := range c.machines {
		m := c.machines[(at+i)%len(c.machines)]
		if !m.serves() {
			continue
		}
		w.verbs[kind]++
		if name, ok := strings.CutPrefix(what, "accept-gap "); ok {
			w.check.accepted[c.id+name] = w.k.now
		}
		w.noteIssued(c, what)
		w.k.probe("verb: " + kind)
		if !w.healed && d.chance(w.o.LateVerbs) {
			w.k.after(d.between(100*time.Millisecond, 20*time.Second), "verb again", func() {
				if w.mutation.retriesAreOld {
					w.order(m, what+", asked again", do)
					return
				}
				w.noteIssued(c, what) // a verb names no start: asked again, it is a new order
				w.order(m, what+", asked again", w.underWay(c, what, do))
			})
		}
		w.order(m, what, w.underWay(c, what, do))
		return true
	}
	return false
}

// endedBy is the mirror at c that a verb promotes, "" for one that promotes nothing.
func endedBy(c *cluster, what string) string {
	if words := strings.Fields(what); len(words) > 1 && (words[0] == "failover" || words[0] == "switchover") {
		return c.id + words[1]
	}
	return ""
}

// noteIssued takes note of an order to promote.
func (w *mirrors) noteIssued(c *cluster, what string) {
	if name := endedBy(c, what); name != "" {
		w.check.issued[name] = w.k.now
	}
}

// underWay has the checkers know of an order to promote until it is answered, or its broker ends.
func (w *mirrors) underWay(c *cluster, what string, do func(ctx context.Context, m *mirror.Mirrors) error) func(ctx context.Context, m *mirror.Mirrors) error {
	name := endedBy(c, what)
	if name == "" {
		return do
	}
	return func(ctx context.Context, m *mirror.Mirrors) error {
		w.check.asking[name]++
		defer func() { w.check.asking[name]-- }()
		return do(ctx, m)
	}
}

func (w *mirrors) order(m *machine, what string, do func(ctx context.Context, m *mirror.Mirrors) error) {
	if !m.serves() {
		return
	}
	kind, _, _ := strings.Cut(what, " ")
	m.task(func() {
		ctx, cancel := m.p.WithTimeout(m.node.Context(), 90*time.Second)
		defer cancel()
		err := do(ctx, m.node.Mirrors())
		if err != nil {
			w.k.note(m.name, "%s: %v", what, err)
			return
		}
		w.k.probe("verb: " + kind + " done")
		w.k.note(m.name, "%s: done", what)
	})
}

// ask has a verb done that needs no more than the mirror's name.
func (w *mirrors) ask(c *cluster, kind, name string) bool {
	return w.verb(w.k.dice("operators"), c, strings.TrimSpace(kind+" "+name), func(ctx context.Context, m *mirror.Mirrors) (err error) {
		switch kind {
		case "pause":
			return m.Pause(ctx, name)
		case "resume":
			return m.Resume(ctx, name)
		case "failover":
			_, err = m.Failover(ctx, name, nil)
		case "abandon":
			_, err = m.Abandon(ctx, name, nil)
		case "accept-gap":
			_, err = m.AcceptGap(ctx, name, nil)
		case "delete":
			return m.Delete(ctx, name)
		case "reopen":
			_, err = m.Reopen(ctx, nil)
		}
		return err
	})
}

// site picks a cluster, and one that it may mirror.
func (w *mirrors) pair(d dice) (*cluster, farCluster) {
	c := w.sites[d.IntN(len(w.sites))]
	return c, w.anyFar(d, c)
}

// present picks a mirror that a cluster has; "" if it has none.
func (w *mirrors) present(d dice) (*cluster, string) {
	from := d.IntN(len(w.sites))
	for i := range w.sites {
		c := w.sites[(from+i)%len(w.sites)]
		if list := c.mirrorRecords(); len(list) > 0 {
			return c, list[d.IntN(len(list))].Name
		}
	}
	return nil, ""
}

// startMirror makes a cluster the mirror of another: as a new mirror where it has no
// topic, else as a failback by the plan of its preview.
func (w *mirrors) startMirror(d dice) string {
	c, far := w.pair(d)
	if c.topicID().IsZero() {
		what := "create " + mirrorOf(far)
		if !w.verb(d, c, what, func(ctx context.Context, m *mirror.Mirrors) error {
			_ = m.Create(ctx, w.spec(far)) // it may be there
			return m.Start(ctx, mirrorOf(far))
		}) {
			return ""
		}
		return c.prefix + what
	}
	return w.failBackTo(d, c, far)
}

// failback makes a cluster that has the topic a mirror of another one.
func (w *mirrors) failback(d dice) string {
	c, far := w.pair(d)
	if c.topicID().IsZero() {
		return ""
	}
	return w.failBackTo(d, c, far)
}

func (w *mirrors) failBackTo(d dice, c *cluster, far farCluster) string {
	think, quote, rollback := d.around(500*time.Millisecond), d.chance(0.85), d.chance(0.7)
	what := "failback " + mirrorOf(far)
	if !w.verb(d, c, what, w.failingBack(c, far, think, quote, rollback)) {
		return ""
	}
	return c.prefix + what
}

// failingBack is a failback by the plan of its preview, if it quotes one, after a while of thought.
func (w *mirrors) failingBack(c *cluster, far farCluster, think time.Duration, quote, rollback bool) func(ctx context.Context, m *mirror.Mirrors) error {
	name := mirrorOf(far)
	return func(ctx context.Context, m *mirror.Mirrors) error {
		_ = m.Create(ctx, w.spec(far))
		r := mirror.FailbackRequest{PreviewRequest: mirror.PreviewRequest{Rollback: rollback}}
		if quote {
			p, err := m.Preview(ctx, name, r.PreviewRequest)
			if err != nil {
				return err
			}
			w.check.previewed(c, &p)
			r.Plan = p.Plan
			if err := clock.Sleep(ctx, think); err != nil {
				return err
			}
		}
		_, err := m.Failback(ctx, name, r)
		return err
	}
}

func (w *mirrors) failover(d dice) string { return w.onPresent(d, "failover") }

func (w *mirrors) abandon(d dice) string { return w.onPresent(d, "abandon") }

func (w *mirrors) acceptGap(d dice) string { return w.onPresent(d, "accept-gap") }

func (w *mirrors) deleteMirror(d dice) string { return w.onPresent(d, "delete") }

func (w *mirrors) resume(d dice) string { return w.onPresent(d, "resume") }

func (w *mirrors) pause(d dice) string {
	c, name := w.present(d)
	if c == nil || !w.ask(c, "pause", name) {
		return ""
	}
	span := d.between(500*time.Millisecond, 20*time.Second)
	w.k.after(span, "resume", func() { w.ask(c, "resume", name) })
	return fmt.Sprintf("%spause %s for %v", c.prefix, name, span.Round(time.Millisecond))
}

func (w *mirrors) onPresent(d dice, kind string) string {
	c, name := w.present(d)
	if c == nil || !w.ask(c, kind, name) {
		return ""
	}
	return c.prefix + kind + " " + name
}

func (w *mirrors) reopen(d dice) string {
	c := w.sites[d.IntN(len(w.sites))]
	if !w.ask(c, "reopen", "") {
		return ""
	}
	return c.prefix + "reopen"
}

func (w *mirrors) switchover(d dice) string {
	c, name := w.present(d)
	reverse := d.chance(0.6)
	if c == nil {
		return ""
	}
	what := fmt.Sprintf("switchover %s reverse %v", name, reverse)
	if !w.verb(d, c, what, func(ctx context.Context, m *mirror.Mirrors) error {
		_, err := m.Switchover(ctx, name, mirror.SwitchoverRequest{TimeoutMs: 8000, SettleMs: 1000, Reverse: reverse})
		return err
	}) {
		return ""
	}
	return c.prefix + what
}

// alter changes a setting of a mirror, or where it copies from.
func (w *mirrors) alter(d dice) string {
	c, name := w.present(d)
	if c == nil {
		return ""
	}
	a := mirror.Alteration{Settings: map[string]string{"mirror.epoch.headroom": pick(d, "0", "3", "8")}}
	if d.chance(0.15) {
		a = mirror.Alteration{Bootstrap: w.spec(w.anyFar(d, c)).Bootstrap} // another cluster answers there (R26)
		w.k.probe("operator: a mirror is pointed at another cluster")
	}
	what := "alter " + name
	if !w.verb(d, c, what, func(ctx context.Context, m *mirror.Mirrors) error {
		_, err := m.Alter(ctx, name, a)
		return err
	}) {
		return ""
	}
	return c.prefix + what
}
