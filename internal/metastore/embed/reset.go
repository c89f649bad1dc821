package embed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// Reset makes the member of a stopped node the only one of its cluster, with the
// metadata that it has: the way out when a quorum is lost for good. What the
// other members had committed and this one had not yet received is lost, and the
// others must never be started again on their folders.
func Reset(ctx context.Context, o Options) error {
	if !exists(filepath.Join(o.Dir, etcdFolder)) {
		return fmt.Errorf("%s holds no metadata member; name the folder of a node that was one", o.Dir)
	}
	p, err := readPlace(o.Dir)
	if err != nil {
		return err
	}
	if p == nil {
		return fmt.Errorf("%s holds a lone member: there is nothing to reset", o.Dir)
	}
	o.Join = nil
	lock, err := openFolder(o.Dir, o.Name)
	if err != nil {
		return err
	}
	s := &Server{o: o.withDefaults(), lock: lock, store: newSwitched(), failed: make(chan error, 1), place: p}
	s.ctx, s.stop = context.WithCancel(context.Background())
	cfg := config(s.o, p)
	cfg.ForceNewCluster = true
	err = s.launch(cfg)
	if err == nil {
		err = s.awaitReady(ctx, s.etcd)
	}
	if err == nil {
		clientURL := s.o.url(p.advertised(p.Client))
		p.Joined, p.Members, p.Endpoints = true, nil, []string{clientURL.String()}
		err = p.write(o.Dir)
	}
	return errors.Join(err, s.Close())
}
