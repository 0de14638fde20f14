package postgres

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// serves tells whether the process is the server of the data folder, which is then its working directory. The id alone
// says little: after a crash, above all in a container, another program may have got it.
func serves(pid int, data string) bool {
	cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	if errors.Is(err, fs.ErrPermission) {
		return alive(pid)
	}
	return err == nil && cwd == data
}
