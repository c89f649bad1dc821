package control

import (
	"errors"
	"fmt"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/acl"
	"tidemark/internal/core/meta"
)

// Refusals of changes to ACLs and credentials, with the Kafka error that a client gets.
var (
	ErrUnknownCredential = errors.New("there is no such credential")           // RESOURCE_NOT_FOUND
	ErrBadCredential     = errors.New("the credential can't be used")          // UNACCEPTABLE_CREDENTIAL
	ErrSecurityLevel     = errors.New("the cluster's level holds no security") // UNSUPPORTED_VERSION
)

// securityWriter refuses writers that may not write ACLs and credentials: every
// broker must know them, else one would leave open what another closes.
func securityWriter(image *meta.Image, me Me) error {
	if err := me.registered(image); err != nil {
		return err
	}
	if level := image.FeatureLevel(meta.FeatureMetadata); level < meta.LevelSecurity {
		return fmt.Errorf("%w: %s is at level %d; level %d has ACLs and credentials: raise it once every node runs this version (tidemark cluster upgrade)",
			ErrSecurityLevel, meta.FeatureMetadata, level, meta.LevelSecurity)
	}
	return nil
}

// ACLChange adds and removes access control entries.
type ACLChange struct {
	Add, Remove []acl.Binding
	// Mirror is whose change it is: a mirror's entries carry its name, and it touches
	// no others. Empty: somebody's here, whose entry takes over what a mirror had copied.
	Mirror string
}

// ChangeACLs adds and removes entries; what is so already costs nothing. Each plan
// stands for itself, so that a change that stops half-way is finished by asking again.
func ChangeACLs(image *meta.Image, change ACLChange, me Me, limits Limits) ([]meta.Plan, error) {
	if err := securityWriter(image, me); err != nil {
		return nil, err
	}
	var plans []meta.Plan
	seen := make(map[acl.Binding]bool, len(change.Add)+len(change.Remove))
	for _, b := range change.Add {
		if err := b.Validate(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalidRequest, err)
		}
		old, exists := image.ACLs().Entry(b)
		isSo := exists && old.Record != nil && (change.Mirror != "" || old.Record.Mirror == "")
		if !seen[b] && !isSo {
			seen[b] = true
			plans = append(plans, putACL(image, b, change.Mirror, old, me))
		}
	}
	for _, b := range change.Remove {
		old, exists := image.ACLs().Entry(b)
		if seen[b] || !exists || change.Mirror != "" && (old.Record == nil || old.Record.Mirror != change.Mirror) {
			continue
		}
		seen[b] = true
		plans = append(plans, deleteACL(image, old, change.Mirror, me))
	}
	return Split(plans, limits), nil
}

func putACL(image *meta.Image, b acl.Binding, mirror string, old *meta.ACL, me Me) meta.Plan {
	key, revision := image.Keys().ACL(b), meta.Revision(0)
	if old != nil {
		revision = old.ModRevision
	}
	// Invariant I-325: a mirror neither takes over nor takes away an entry that isn't its own.
	assert.That(mirror == "" || old == nil || old.Record == nil, "I-325: mirror %s takes over ACL %s", mirror, b)
	return checked(meta.Plan{
		Why:  "write ACL " + b.ID(),
		If:   []meta.Compare{me.compare(image), meta.ModRevisionIs(key, revision)},
		Then: []meta.Op{meta.Put(key, meta.NewACLRecord(b, mirror).Encode())},
	})
}

func deleteACL(image *meta.Image, old *meta.ACL, mirror string, me Me) meta.Plan {
	assert.That(mirror == "" || old.Record.Mirror == mirror, "I-325: mirror %s takes away ACL %s", mirror, old.ID)
	key := image.Keys().ACLByID(old.ID)
	return checked(meta.Plan{
		Why:  "delete ACL " + old.ID,
		If:   []meta.Compare{me.compare(image), meta.ModRevisionIs(key, old.ModRevision)},
		Then: []meta.Op{meta.Delete(key)},
	})
}

// CredentialChange sets or deletes SCRAM credentials of users.
type CredentialChange struct {
	// Set are written whole; their Mirror is whose they are.
	Set    []meta.ScramRecord
	Delete []meta.ScramID
	// Mirror, if not empty, bounds the change to what this mirror has copied, and to what nobody has.
	Mirror string
}

// ChangeCredentials makes all of a change or none of it. Deleting what isn't there is ErrUnknownCredential.
func ChangeCredentials(image *meta.Image, change CredentialChange, me Me) (meta.Plan, error) {
	if err := securityWriter(image, me); err != nil {
		return meta.Plan{}, err
	}
	plan := meta.Plan{Why: fmt.Sprintf("change %d SCRAM credentials", len(change.Set)+len(change.Delete)), If: []meta.Compare{me.compare(image)}}
	for _, r := range change.Set {
		if err := r.Check(); err != nil {
			return plan, fmt.Errorf("%w: %w", ErrBadCredential, err)
		}
		key, revision := image.Keys().Scram(r.ID()), meta.Revision(0)
		if old, ok := image.ScramEntry(r.ID()); ok {
			if isForeign(change.Mirror, old) {
				continue
			}
			revision = old.ModRevision
		}
		// Invariant I-326: what a mirror writes carries its name, and it overwrites nothing else.
		assert.That(change.Mirror == "" || r.Mirror == change.Mirror, "I-326: mirror %s writes a credential of %q", change.Mirror, r.Mirror)
		plan.If = append(plan.If, meta.ModRevisionIs(key, revision))
		plan.Then = append(plan.Then, meta.Put(key, r.Encode()))
	}
	for _, id := range change.Delete {
		key := image.Keys().Scram(id)
		old, ok := image.ScramEntry(id)
		if !ok {
			return plan, fmt.Errorf("user %q, %s: %w", id.User, id.Mechanism, ErrUnknownCredential)
		}
		if isForeign(change.Mirror, old) {
			continue
		}
		plan.If = append(plan.If, meta.ModRevisionIs(key, old.ModRevision))
		plan.Then = append(plan.Then, meta.Delete(key))
	}
	return checked(plan), nil
}

// isForeign reports whether a mirror must leave a credential alone: it isn't its own.
func isForeign(mirror string, old *meta.Scram) bool {
	return mirror != "" && (old.Record == nil || old.Record.Mirror != mirror)
}

// credentialsPerPlan bounds the credentials of one of Disown's plans: each takes a comparison and a write.
const credentialsPerPlan = 50

// Disown makes what a mirror has copied the cluster's own: its entries and credentials stay,
// and nobody takes them away but who may here. It is due before another mirror takes the name
// of one that was deleted: what that one's source lacks is no deletion at its own.
func Disown(image *meta.Image, mirror string, me Me, limits Limits) ([]meta.Plan, error) {
	var entries ACLChange
	for e := range image.ACLs().All() {
		if e.Record.Mirror == mirror {
			entries.Add = append(entries.Add, e.Record.Binding())
		}
	}
	var credentials []meta.ScramRecord
	for e := range image.Scrams() {
		if e.Record.Mirror == mirror {
			own := *e.Record
			own.Mirror = ""
			credentials = append(credentials, own)
		}
	}
	if len(entries.Add)+len(credentials) == 0 {
		return nil, nil // below their level, too
	}
	plans, err := ChangeACLs(image, entries, me, limits)
	for some := range slices.Chunk(credentials, credentialsPerPlan) {
		if err == nil {
			var plan meta.Plan
			plan, err = ChangeCredentials(image, CredentialChange{Set: some}, me)
			plans = append(plans, plan)
		}
	}
	return plans, err
}
