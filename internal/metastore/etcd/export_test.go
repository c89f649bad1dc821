package etcd

import (
	"context"
	"fmt"

	"tidemark/internal/metastore"
)

// AtLeast is atLeast, for its table of cases.
var AtLeast = atLeast

// Leader gives the client address of the member that leads.
func (s *Store) Leader(ctx context.Context) (string, error) {
	var found string
	err := s.attempt(ctx, func(ctx context.Context) error {
		members, err := s.cli.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, m := range members.Members {
			for _, endpoint := range m.ClientURLs {
				status, err := s.cli.Status(ctx, endpoint)
				if err == nil && status.Leader == m.ID {
					found = endpoint
				}
			}
		}
		return nil
	})
	if err != nil {
		return "", s.closedOr(readError(err))
	}
	if found == "" {
		return "", fmt.Errorf("no member of etcd leads: %w", metastore.ErrUnavailable)
	}
	return found, nil
}
