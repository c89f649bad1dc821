package scenario

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"tidemark/internal/log"
	"tidemark/internal/vault"
	"tidemark/internal/vfs"
)

// crashNow is what ends a node in the middle of an operation.
type crashNow struct{ at string }

// disk is a node's file system with places at which the node can die.
type disk struct {
	vfs.FS
	// dieAt is where: "truncate" after a log file was cut and before it is synced,
	// "sync" before the timeline checkpoint of a synced cut is written; "" nowhere.
	dieAt string
	// forgetsStart: log starts don't reach the disk (R13.start off).
	forgetsStart bool
}

func (d *disk) OpenReadWrite(name string) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name)
	if err != nil {
		return nil, err
	}
	return &diskFile{File: f, d: d}, nil
}

func (d *disk) Create(name string) (vfs.File, error) {
	f, err := d.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return &diskFile{File: f, d: d}, nil
}

func (d *disk) Rename(from, to string) error {
	if d.forgetsStart && path.Base(to) == "log-start-offset-checkpoint" {
		return d.FS.Remove(from)
	}
	if d.dieAt == "sync" && path.Base(to) == "timeline-checkpoint" {
		panic(crashNow{d.dieAt})
	}
	return d.FS.Rename(from, to)
}

type diskFile struct {
	vfs.File
	d *disk
}

func (f *diskFile) Truncate(size int64) error {
	err := f.File.Truncate(size)
	if err == nil && f.d.dieAt == "truncate" && strings.HasSuffix(f.Name(), ".log") {
		panic(crashNow{f.d.dieAt})
	}
	return err
}

// keeper is a node's vault, with what the stories and the mutations do to it.
type keeper struct {
	n     *node
	vault *vault.Vault
	made  []string // entries since the last operation began
}

var _ log.Keeper = (*keeper)(nil)

func (k *keeper) Keep(r log.Removal) (string, error) {
	mut := k.n.c.w.mutation
	if mut == "R28.vault" && (r.Cause == log.CauseLogStart || r.Cause == log.CauseRestart) {
		return "", nil
	}
	before := k.vault.Usage().DroppedRecords
	id, err := k.vault.Keep(r)
	var full *vault.ErrFull
	if errors.As(err, &full) && mut == "R29" && r.From >= r.HighWatermark {
		return "", nil
	}
	if errors.As(err, &full) && !k.n.c.w.toldNow(k.n.c, "VAULT_FULL") {
		k.n.c.tell("VAULT_FULL", "replica", k.n.name, "need", full.Needed/recordBytes, "room", (full.Limit-full.Used)/recordBytes)
	}
	if err != nil {
		return "", err
	}
	if k.vault.Usage().DroppedRecords > before {
		k.n.toldDrop(r)
	}
	if id != "" {
		k.made = append(k.made, id)
	}
	if mut == "R1.order" && r.TimelinesAfter != nil {
		name := path.Join(logDir, topicName+"-0", "timeline-checkpoint")
		if err := vfs.WriteAtomic(k.n.mem, name, r.TimelinesAfter); err != nil {
			return "", err
		}
	}
	if k.n.dieInVault {
		panic(crashNow{"vault"})
	}
	return id, nil
}

// open opens the vault with room for a number of records, or, below 0, any.
func (k *keeper) open(records int) error {
	limit := int64(-1)
	if records >= 0 {
		limit = int64(records) * recordBytes
	}
	v, err := vault.Open(vault.Options{FS: k.n.disk, Dir: logDir + "/vault", MaxBytes: limit, MaxAge: -1, Now: k.n.c.w.clock, Logger: k.n.logger})
	if err != nil {
		return fmt.Errorf("vault of %s: %w", k.n.name, err)
	}
	k.vault = v
	return nil
}
