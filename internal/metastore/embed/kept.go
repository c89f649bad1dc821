package embed

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
)

// hasRun reports whether one member of several has run before. It refuses one of which nothing
// is left (a disk that isn't mounted, a folder that was removed). etcd would begin it anew under
// its old id: it would vote again where it has voted, and a majority could be made up that lacks
// what a majority had promised to keep; the first member would even begin a cluster of its own.
func (s *Server) hasRun(ctx context.Context) (bool, error) {
	if exists(filepath.Join(s.o.Dir, etcdFolder, "member", "wal")) {
		return true, nil
	}
	if len(s.place.Members) == 0 { // the first member had run alone before it had a place
		return false, s.errNotKept("")
	}
	remote, err := s.dial(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = remote.Close() }() // it was only for this question
	if err := s.awaitMembers(ctx, remote); err != nil {
		return false, err
	}
	all, err := remote.Members(ctx)
	if err != nil {
		return false, err
	}
	for _, m := range all {
		if m.Name != "" && slices.Contains(m.Peers, s.peerURL()) {
			return false, s.errNotKept(memberID(m.ID))
		}
	}
	return false, nil // it was taken in and stopped before it ran
}

func (s *Server) errNotKept(id string) error {
	folder := filepath.Join(s.o.Dir, etcdFolder)
	if id == "" {
		id = "ID"
	}
	return fmt.Errorf("metadata folder %s holds nothing, and this node's member had its data there: is the disk mounted? If it is lost for good, "+
		"take the member out through another node (tidemark cluster remove %s), move %s away and start with --join", folder, id, s.o.Dir)
}
