package vault

import "tidemark/internal/vfs"

// crasher takes the disk as a power loss before its n-th changing operation
// leaves it, and lets the process go on unharmed.
type crasher struct {
	vfs.FS
	mem  *vfs.Mem
	left int
	cfg  vfs.CrashConfig
	disk *vfs.Mem // nil until then
}

func (c *crasher) tick() {
	if c.left == 0 {
		c.disk = c.mem.CrashClone(c.cfg)
	}
	c.left--
}

func (c *crasher) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &crasherFile{f, c}, nil
}

func (c *crasher) Create(name string) (vfs.File, error) { c.tick(); return c.wrap(c.FS.Create(name)) }
func (c *crasher) Open(name string) (vfs.File, error)   { return c.wrap(c.FS.Open(name)) }
func (c *crasher) OpenReadWrite(name string) (vfs.File, error) {
	return c.wrap(c.FS.OpenReadWrite(name))
}
func (c *crasher) MkdirAll(d string) error      { c.tick(); return c.FS.MkdirAll(d) }
func (c *crasher) Link(from, to string) error   { c.tick(); return c.FS.Link(from, to) }
func (c *crasher) Rename(from, to string) error { c.tick(); return c.FS.Rename(from, to) }
func (c *crasher) SyncDir(d string) error       { c.tick(); return c.FS.SyncDir(d) }
func (c *crasher) Remove(name string) error     { c.tick(); return c.FS.Remove(name) }
func (c *crasher) RemoveAll(name string) error  { c.tick(); return c.FS.RemoveAll(name) }

type crasherFile struct {
	vfs.File
	c *crasher
}

func (f *crasherFile) WriteAt(b []byte, off int64) (int, error) {
	f.c.tick()
	return f.File.WriteAt(b, off)
}
func (f *crasherFile) Sync() error               { f.c.tick(); return f.File.Sync() }
func (f *crasherFile) SyncData() error           { f.c.tick(); return f.File.SyncData() }
func (f *crasherFile) Truncate(size int64) error { f.c.tick(); return f.File.Truncate(size) }
