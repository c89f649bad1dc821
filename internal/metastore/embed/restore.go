package embed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tidemark/internal/metastore"
	"tidemark/internal/metastore/etcd"
)

// restoringFolder is where Replace works; a folder with it is between two states.
const restoringFolder = "restoring"

// errHalfRestored is a folder in which Replace stopped half-way.
func errHalfRestored(dir string) error {
	return fmt.Errorf("metadata folder %s: a restore into it stopped half-way; run tidemark cluster restore again, "+
		"or, to go back, move the content of its newest before-restore folder into it and remove the folder %s", dir, restoringFolder)
}

// Replace makes new metadata, which fill writes into an empty store, that of a
// stopped node: a lone member, to which others join anew. What was there before
// is kept in the folder that it gives, empty if there was nothing.
func Replace(ctx context.Context, o Options, fill func(context.Context, metastore.Store) error) (moved string, err error) {
	o = o.withDefaults()
	lock, err := openFolder(o.Dir, o.Name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	p, err := readPlace(o.Dir)
	if err == nil && p != nil {
		err = refuseAlive(ctx, o, p)
	}
	if err != nil {
		return "", err
	}
	fresh := filepath.Join(o.Dir, restoringFolder)
	if err := os.RemoveAll(fresh); err != nil {
		return "", folderError(o.Dir, err)
	}
	made := o
	made.Dir, made.Join = fresh, nil
	if err := with(ctx, made, fill); err != nil {
		return "", errors.Join(err, os.RemoveAll(fresh))
	}
	moved, err = moveAside(o.Dir)
	if err != nil {
		return moved, err
	}
	if err := os.Rename(filepath.Join(fresh, etcdFolder), filepath.Join(o.Dir, etcdFolder)); err != nil {
		return moved, folderError(o.Dir, err)
	}
	if err := errors.Join(syncFolder(o.Dir), os.RemoveAll(fresh), syncFolder(o.Dir)); err != nil {
		return moved, folderError(o.Dir, err)
	}
	return moved, nil
}

// with runs a lone member for as long as a call takes.
func with(ctx context.Context, o Options, call func(context.Context, metastore.Store) error) error {
	s, err := Start(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(call(ctx, s.Store()), s.Close())
}

// moveAside takes the present member out of the folder.
func moveAside(dir string) (string, error) {
	aside := ""
	for _, name := range []string{etcdFolder, placeFile} {
		from := filepath.Join(dir, name)
		if !exists(from) {
			continue
		}
		if aside == "" {
			aside = filepath.Join(dir, "before-restore-"+time.Now().UTC().Format("20060102T150405.000"))
			if err := os.Mkdir(aside, 0o700); err != nil {
				return "", folderError(dir, err)
			}
		}
		if err := os.Rename(from, filepath.Join(aside, name)); err != nil {
			return aside, folderError(dir, err)
		}
	}
	if aside == "" {
		return "", nil
	}
	return aside, errors.Join(syncFolder(aside), syncFolder(dir))
}

// Edit lets edit change the metadata of a stopped node's lone member.
func Edit(ctx context.Context, o Options, edit func(context.Context, metastore.Store) error) error {
	o.Join = nil
	if !exists(filepath.Join(o.Dir, etcdFolder, "member")) { // what the disk is mounted at may be there
		return errNoMember(o.Dir)
	}
	p, err := readPlace(o.Dir)
	if err != nil {
		return err
	}
	if p != nil {
		return fmt.Errorf("%s holds one member of several: tidemark cluster reset makes it the only one, and marks what it holds as gone back", o.Dir)
	}
	return with(ctx, o, edit)
}

func errNoMember(dir string) error {
	return fmt.Errorf("%s holds no metadata member; name the folder of a node that was one", dir)
}

// refuseAlive looks whether other members of a cluster answer, which is to be
// given up: they would go on as a second one.
func refuseAlive(ctx context.Context, o Options, p *place) error {
	cfg, err := o.clientTLS()
	if err != nil {
		return err
	}
	own := o.url(p.advertised(p.Client))
	var alive []string
	for _, endpoint := range p.Endpoints {
		if endpoint != own.String() && etcd.Probe(ctx, endpoint, cfg) == nil {
			alive = append(alive, endpoint)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	return fmt.Errorf("other members of this cluster's metadata answer at %s: stop all nodes first, or there would be two clusters with one id", strings.Join(alive, ", "))
}
