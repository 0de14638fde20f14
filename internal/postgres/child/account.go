package child

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// Account is the operating-system user that a child runs as. A nil *Account means the user of this process; its
// methods then have nothing to do.
type Account struct {
	Name     string
	uid, gid uint32
}

// unprivileged lists the users that a server may run as when this process is root, best first.
var unprivileged = []string{"postgres", "nobody"}

// Unprivileged returns the user that servers which refuse to run as root should run as: nil when this process is not
// root, else the user postgres or, where that does not exist, nobody.
func Unprivileged() (*Account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range unprivileged {
		if u, err := user.Lookup(name); err == nil {
			return account(u)
		}
	}
	return nil, fmt.Errorf("no unprivileged user to run the server as: root may not, and neither of the users %v exists", unprivileged)
}

// Owner returns the user that owns path if this process is root and path belongs to somebody else, otherwise nil.
func Owner(path string) (*Account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	uid, err := ownerID(path)
	if err != nil {
		return nil, fmt.Errorf("finding the owner of a folder: %w", err)
	}
	if uid == 0 {
		return nil, nil
	}
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return nil, fmt.Errorf("finding the owner of %s: %w", path, err)
	}
	return account(u)
}

func account(u *user.User) (*Account, error) {
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("reading the user id of %s: %w", u.Username, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("reading the group id of %s: %w", u.Username, err)
	}
	return &Account{Name: u.Username, uid: uint32(uid), gid: uint32(gid)}, nil
}

// Own gives the folder path and everything below it to the account. Symbolic links are not followed.
func (a *Account) Own(path string) error {
	if a == nil {
		return nil
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return fmt.Errorf("giving a folder to the user %s: %w", a.Name, err)
	}
	defer func() { _ = root.Close() }()
	err = fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(name, int(a.uid), int(a.gid))
	})
	if err != nil {
		return fmt.Errorf("giving %s to the user %s: %w", path, a.Name, err)
	}
	return nil
}

// Reach reports whether the account can get to folder, an absolute path without symbolic links. The error names the
// first folder on the way that shuts the account out, and what to do.
func (a *Account) Reach(folder string) error {
	if a == nil {
		return nil
	}
	for _, step := range ancestry(folder) {
		if a.mayEnter(step) {
			continue
		}
		return fmt.Errorf("the user %s, which the server runs as because root may not, cannot enter %s: "+
			"choose a folder elsewhere, or allow it with 'chmod o+x %s'", a.Name, step, step)
	}
	return nil
}

// ancestry returns folder and the folders above it, from the root down.
func ancestry(folder string) []string {
	parent := filepath.Dir(folder)
	if parent == folder {
		return []string{folder}
	}
	return append(ancestry(parent), folder)
}
