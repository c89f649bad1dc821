//go:build !linux

package vfs

import (
	"math"
	"os"
)

// Other systems serve development only: no lock between processes, no
// preallocation, a full fsync for SyncData.

func flock(*os.File) error                     { return nil }
func syncData(f *os.File) error                { return f.Sync() }
func preallocate(*os.File, int64, int64) error { return nil }
func freeBytes(string) (int64, error)          { return math.MaxInt64, nil }
func totalBytes(string) (int64, error)         { return math.MaxInt64, nil }

// groupOf: only Linux can sync a whole file system by one of its files.
func groupOf(*os.File) *syncGroup { return nil }
