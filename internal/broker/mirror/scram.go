package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/wire"
)

// credentialsPerPlan bounds the credentials of one transaction.
const credentialsPerPlan = 50

// namesTold bounds the users that a sentence names.
const namesTold = 20

// syncScram copies the credentials of the source's users, where the source gives
// them: a Tidemark source does, to whom its ACLs allow it. Kafka tells names alone
// (KIP-554): then it is said who could not log in here after a failover.
func (r *run) syncScram(ctx context.Context, src securitySource) (string, error) {
	users, err := src.ScramUsers(ctx)
	if err != nil {
		return "", err
	}
	keys, refused := src.ScramKeys(ctx)
	if refused == nil && keys != nil {
		if err := r.copyCredentials(ctx, keys); err != nil {
			return "", err
		}
	}
	image := r.m.o.Node.Image()
	mechanisms := map[int8]string{1: meta.ScramSHA256, 2: meta.ScramSHA512}
	var missing []string
	copied, own := 0, 0
	for _, u := range users {
		e, ok := image.Scram(meta.ScramID{User: u.User, Mechanism: mechanisms[u.Mechanism]})
		switch {
		case !ok:
			missing = append(missing, fmt.Sprintf("%s (%s)", u.User, mechanisms[u.Mechanism]))
		case e.Record.Mirror == r.name:
			copied++
		default:
			own++
		}
	}
	detail := fmt.Sprintf("%d copied, %d set here", copied, own)
	if len(missing) > 0 {
		slices.Sort(missing)
		more := ""
		if len(missing) > namesTold {
			more = fmt.Sprintf(" and %d more", len(missing)-namesTold)
		}
		detail += fmt.Sprintf(", %d without a password here: %s%s; set them here (kafka-configs --alter --entity-type users)",
			len(missing), strings.Join(missing[:min(len(missing), namesTold)], ", "), more)
	}
	if refused != nil {
		return detail, fmt.Errorf("the source doesn't give its users' keys: %w", refused)
	}
	return detail, nil
}

// copyCredentials writes what the source gave, and takes away what it has no more.
func (r *run) copyCredentials(ctx context.Context, keys []wire.ScramCredential) error {
	image := r.m.o.Node.Image()
	wanted := make(map[meta.ScramID]bool, len(keys))
	var set []meta.ScramRecord
	var faults []error
	for _, k := range keys {
		rec := meta.ScramRecord{User: k.User, Mechanism: k.Mechanism, Salt: k.Salt, StoredKey: k.StoredKey, ServerKey: k.ServerKey,
			Iterations: k.Iterations, Mirror: r.name}
		if err := rec.Check(); err != nil {
			faults = append(faults, fmt.Errorf("the source's credential of user %q: %w", k.User, err))
			continue
		}
		wanted[rec.ID()] = true
		if old, ok := image.ScramEntry(rec.ID()); !ok || old.Record != nil && old.Record.Mirror == r.name && !old.Record.Equal(&rec) {
			set = append(set, rec)
		}
	}
	var gone []meta.ScramID
	for e := range image.Scrams() {
		if e.Record.Mirror == r.name && !wanted[e.ID] {
			gone = append(gone, e.ID)
		}
	}
	if len(set)+len(gone) > 0 {
		if !r.writesSecurity(image) {
			return errElsewhere
		}
		if err := r.writeCredentials(ctx, set, gone); err != nil {
			return err
		}
		r.m.log.Info("SCRAM credentials copied from the source", "mirror", r.name, "set", len(set), "deleted", len(gone))
	}
	return errors.Join(faults...)
}

func (r *run) writeCredentials(ctx context.Context, set []meta.ScramRecord, gone []meta.ScramID) error {
	write := func(c control.CredentialChange) error {
		return r.m.commitAll(ctx, func(image *meta.Image) ([]meta.Plan, error) {
			plan, err := control.ChangeCredentials(image, c, r.m.o.Node.Me())
			return []meta.Plan{plan}, err
		})
	}
	for chunk := range slices.Chunk(gone, credentialsPerPlan) {
		if err := write(control.CredentialChange{Delete: chunk, Mirror: r.name}); err != nil && !errors.Is(err, control.ErrUnknownCredential) {
			return err
		}
	}
	for chunk := range slices.Chunk(set, credentialsPerPlan) {
		if err := write(control.CredentialChange{Set: chunk, Mirror: r.name}); err != nil {
			return err
		}
	}
	return nil
}
