package child

import "syscall"

func attributes(as *Account, onParentDeath syscall.Signal) (*syscall.SysProcAttr, error) {
	return &syscall.SysProcAttr{Credential: as.credential(), Setpgid: true, Pdeathsig: onParentDeath}, nil
}
