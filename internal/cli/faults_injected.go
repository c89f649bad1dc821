//go:build faults && linux

package cli

import (
	"fmt"
	"os"

	"tidemark/internal/broker"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
	"tidemark/internal/vfs/switchboard"
)

// boardVariable names the folder of the node's switchboard.
const boardVariable = "TIDEMARK_SWITCHBOARD"

// harm puts the node's disk and clock under a test's switches, in builds with the tag faults alone.
func harm(o *broker.Options) error {
	o.Version += "+faults"
	dir := os.Getenv(boardVariable)
	if dir == "" {
		return nil
	}
	b, err := switchboard.Open(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", boardVariable, err)
	}
	if o.FS, err = b.FS(vfs.OS()); err != nil {
		return fmt.Errorf("%s: %w", boardVariable, err)
	}
	o.Now = func() types.Millis { return types.Millis(b.Now().UnixMilli()) }
	o.Logger.Warn("a test build: disk and clock can be harmed through the switchboard", "dir", dir)
	return nil
}
