//go:build !faults || !linux

package cli

import "tidemark/internal/broker"

// harm does nothing: disks and clocks of this build can't be harmed. Builds with the tag faults differ.
func harm(*broker.Options) error { return nil }
