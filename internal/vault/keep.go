package vault

import (
	"errors"

	"tidemark/internal/log"
)

// Keep takes the records of a cut before they go (R1 step 1).
func (v *Vault) Keep(r log.Removal) (id string, err error) {
	return "", errors.ErrUnsupported
}
