package embed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"tidemark/internal/metastore"
)

// Reset makes the member of a stopped node the only one of its cluster, with the
// metadata that it has: the way out when a quorum is lost for good. What the
// other members had committed and this one had not yet received is lost, and the
// others must never be started again on their folders. settle is given the store before
// anybody else, to say so in it.
func Reset(ctx context.Context, o Options, settle func(context.Context, metastore.Store) error) error {
	o = o.withDefaults()
	p, err := resettable(ctx, o)
	if err != nil {
		return err
	}
	o.Join = nil
	p.TLS = o.TLS != nil // it is the only one: nobody knows it otherwise
	lock, err := openFolder(o.Dir, o.Name)
	if err != nil {
		return err
	}
	s := newServer(o, lock)
	s.place = p
	cfg := s.config(p)
	cfg.ForceNewCluster = true
	err = s.launch(cfg)
	if err == nil {
		err = s.awaitReady(ctx, s.etcd)
	}
	if err == nil {
		store := s.own()
		err = errors.Join(settle(ctx, store), store.Close())
	}
	if err == nil {
		p.Joined, p.Members, p.Endpoints = true, nil, []string{s.clientURL()}
		err = p.write(o.Dir)
	}
	return errors.Join(err, s.Close())
}

// CanReset says why a member can't be made the only one; it changes nothing.
func CanReset(ctx context.Context, o Options) error {
	_, err := resettable(ctx, o.withDefaults())
	return err
}

// resettable gives what a folder's member knows of its cluster, if it may be reset.
func resettable(ctx context.Context, o Options) (*place, error) {
	if !exists(filepath.Join(o.Dir, etcdFolder, "member")) { // what the disk is mounted at may be there
		return nil, errNoMember(o.Dir)
	}
	p, err := readPlace(o.Dir)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, fmt.Errorf("%s holds a lone member: there is nothing to reset", o.Dir)
	}
	return p, refuseAlive(ctx, o, p)
}
