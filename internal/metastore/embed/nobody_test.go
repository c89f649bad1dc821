package embed_test

import "syscall"

// nobody runs a process as the user who owns nothing.
func nobody() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}
