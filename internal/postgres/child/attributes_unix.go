//go:build unix && !linux

package child

import "syscall"

// attributes has no death signal to set: only Linux offers one.
func attributes(as *Account, _ syscall.Signal) (*syscall.SysProcAttr, error) {
	return &syscall.SysProcAttr{Credential: as.credential(), Setpgid: true}, nil
}
