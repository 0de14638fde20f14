//go:build !unix

package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

func lock(context.Context, string) (func(), error) {
	return nil, fmt.Errorf("running a private PostgreSQL server on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
