//go:build unix

package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock keeps other processes from creating, starting or adopting the server until the returned function is called.
// The system releases it when this process dies.
func lock(ctx context.Context, path string) (func(), error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the folder for PostgreSQL: %w", err)
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
			err = wait(ctx, pollInterval)
		}
		if err != nil {
			_ = file.Close()
			return nil, fmt.Errorf("locking %s, which another process is starting a server in: %w", path, err)
		}
	}
}
