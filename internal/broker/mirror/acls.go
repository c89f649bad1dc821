package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidemark/internal/config"
	"tidemark/internal/core/acl"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
	"tidemark/internal/wire"
)

// securitySource is a source that can be asked for ACLs and users.
type securitySource interface {
	ACLs(ctx context.Context) ([]source.ACL, error)
	ScramUsers(ctx context.Context) ([]source.ScramUser, error)
	ScramKeys(ctx context.Context) ([]wire.ScramCredential, error)
}

var _ securitySource = (*source.Client)(nil)

// securityPatience is how often a sync that waits for its turn looks whether it has come.
const securityPatience = 250 * time.Millisecond

// syncEvery runs a sync at its interval (below 0: not at all) while the mirror
// runs and the source has been met. What it says of itself is in its health.
func (r *run) syncEvery(name string, interval func(*config.Mirror) types.Millis, sync func(context.Context, securitySource) (string, error)) {
	src, ok := r.client.(securitySource)
	if !ok {
		return // no client, or the simulator's
	}
	fails := 0
	for wait := securityPatience; pause(r.ctx, wait); {
		every := interval(r.settings.Load())
		if _, met := r.health.last(syncMetadata); every < 0 || !r.isRunning() || !met {
			wait = securityPatience
			continue
		}
		detail, err := sync(r.ctx, src)
		r.health.say(name, detail)
		if errors.Is(err, errElsewhere) {
			wait = securityPatience
			continue
		}
		if err != nil {
			fails++
			r.noteFault(name, err)
			wait = max(r.backoff(fails), securityPatience)
			continue
		}
		fails, wait = 0, millis(every)
		r.health.ok(name)
	}
}

// writesSecurity reports whether this node writes what a mirror copies for the whole
// cluster: the controller does, so that nodes don't undo each other's work. The
// others read and compare, so that their health is their own.
func (r *run) writesSecurity(image *meta.Image) bool {
	c, ok := image.Controller()
	return ok && c.Record.Broker == r.m.o.Node.NodeID()
}

// errElsewhere: what differs is the controller's to write.
var errElsewhere = errors.New("the controller has not copied everything yet")

// syncACLs copies the source's access control entries (DESIGN §6.3): what the mirror
// has copied is its own to take away, and nothing else. An answer that isn't whole
// changes nothing. Nothing is open in between: denials come before the permissions
// beside them, and go after them.
func (r *run) syncACLs(ctx context.Context, src securitySource) (string, error) {
	s := r.settings.Load()
	f, err := newACLFilter(s.ACLInclude, s.ACLExclude)
	if err != nil {
		return "", err
	}
	listed, err := src.ACLs(ctx)
	if err != nil {
		return "", err
	}
	image := r.m.o.Node.Image()
	d := r.compareACLs(image, f, listed)
	d.unenforced = d.copied > 0 && !r.m.o.Config.Security.Authorizes()
	if len(d.add)+len(d.remove) > 0 {
		if !r.writesSecurity(image) {
			return d.text(), errElsewhere
		}
		if err := r.writeACLs(ctx, d); err != nil {
			return d.text(), err
		}
		r.m.log.Info("ACLs copied from the source", "mirror", r.name, "added", len(d.add), "removed", len(d.remove))
		if d.unenforced {
			r.m.log.Warn("the source's ACLs are kept and not enforced here, nor after a failover: set authorizer=acl", "mirror", r.name, "node", r.m.o.Node.NodeID())
		}
	}
	if d.unknown > 0 {
		return d.text(), fmt.Errorf("%d ACLs of the source are of kinds that this version doesn't know, and aren't copied", d.unknown)
	}
	return d.text(), nil
}

// aclDifference is what the source's entries and the mirror's differ in.
type aclDifference struct {
	add, remove []acl.Binding
	// Of the source's entries: copied, here by somebody else's hand, left out by the filters, unknown.
	copied, foreign, leftOut, unknown int
	// unenforced: this node has no authorizer, so that the entries decide nothing.
	unenforced bool
}

func (r *run) compareACLs(image *meta.Image, f aclFilter, listed []source.ACL) aclDifference {
	var d aclDifference
	want := make(map[acl.Binding]bool, len(listed))
	for _, a := range listed {
		b := acl.Binding{Resource: acl.ResourceType(a.Resource), Pattern: acl.PatternType(a.Pattern), Name: a.Name,
			Principal: a.Principal, Host: a.Host, Operation: acl.Operation(a.Operation), Permission: acl.Permission(a.Permission)}
		switch {
		case b.Validate() != nil:
			d.unknown++
		case !f.copies(b):
			d.leftOut++
		default:
			want[b] = true
		}
	}
	for b := range want {
		e, ok := image.ACLs().Entry(b)
		switch {
		case !ok || e.Record == nil:
			d.add = append(d.add, b)
			d.copied++
		case e.Record.Mirror == r.name:
			d.copied++
		default:
			d.foreign++
		}
	}
	for e := range image.ACLs().All() {
		if b := e.Record.Binding(); e.Record.Mirror == r.name && !want[b] {
			d.remove = append(d.remove, b)
		}
	}
	slices.SortFunc(d.add, acl.Compare)
	return d
}

func (d aclDifference) text() string {
	parts := []string{fmt.Sprintf("%d copied", d.copied)}
	if d.foreign > 0 {
		parts = append(parts, fmt.Sprintf("%d written here by others", d.foreign))
	}
	if d.leftOut > 0 {
		parts = append(parts, fmt.Sprintf("%d left out by the filters", d.leftOut))
	}
	if d.unenforced {
		parts = append(parts, "not enforced by this node (authorizer=off)")
	}
	return strings.Join(parts, ", ")
}

// writeACLs makes the changes in an order that opens nothing on the way.
func (r *run) writeACLs(ctx context.Context, d aclDifference) error {
	of := func(list []acl.Binding, p acl.Permission) []acl.Binding {
		return slices.DeleteFunc(slices.Clone(list), func(b acl.Binding) bool { return b.Permission != p })
	}
	for _, c := range []control.ACLChange{
		{Mirror: r.name, Add: of(d.add, acl.Deny), Remove: of(d.remove, acl.Allow)},
		{Mirror: r.name, Add: of(d.add, acl.Allow)},
		{Mirror: r.name, Remove: of(d.remove, acl.Deny)},
	} {
		err := r.m.commitAll(ctx, func(image *meta.Image) ([]meta.Plan, error) {
			return control.ChangeACLs(image, c, r.m.o.Node.Me(), r.m.o.Node.Limits())
		})
		if err != nil {
			return err
		}
	}
	return nil
}
