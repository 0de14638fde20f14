//go:build unix

package child

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

func ownerID(path string) (uint32, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("no owner known for %s", path)
	}
	return stat.Uid, nil
}

// mayEnter decides by the mode bits and, because an access control list can allow what they forbid, asks the system
// itself where they say no.
func (a *Account) mayEnter(folder string) bool {
	info, err := os.Stat(folder)
	if err != nil {
		return false
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		mode := info.Mode().Perm()
		switch {
		case stat.Uid == a.uid:
			mode >>= 6
		case stat.Gid == a.gid:
			mode >>= 3
		}
		if mode&1 != 0 {
			return true
		}
	}
	cmd := exec.Command("true")
	cmd.Dir = folder
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential()}
	return cmd.Run() == nil
}

// credential has no supplementary groups: a server needs none of those that the user happens to be in.
func (a *Account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid}
}
