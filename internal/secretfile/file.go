package secretfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxBytes is the greatest size of a secret's file.
	MaxBytes = 64 << 10
	// DefaultInterval is how old a value may be before the file is looked at again.
	DefaultInterval = time.Second
)

// File is one secret in a file, decoded to a T. It is safe for concurrent use, and holds no file open.
type File[T any] struct {
	root, path string
	decode     func([]byte) (T, error)
	options    options

	last atomic.Pointer[look[T]]
	mu   sync.Mutex // held by the one who looks
}

// look is what was seen at one time. It is never changed once it is stored.
type look[T any] struct {
	at    time.Time
	raw   []byte
	value T
	err   error
}

// Option changes how a File is opened.
type Option func(*options)

type options struct {
	interval time.Duration
	now      func() time.Time
}

// WithInterval replaces [DefaultInterval].
func WithInterval(d time.Duration) Option { return func(o *options) { o.interval = d } }

// WithClock replaces time.Now.
func WithClock(now func() time.Time) Option { return func(o *options) { o.now = now } }

// Open prepares to read the file at path below the folder root. It reads nothing yet: the file may come later. The error is
// about the path alone, which must be local (see [filepath.IsLocal]). Relative symlinks are followed while they stay below
// root, as those of a Kubernetes volume do.
//
// decode gets the content, without one line end (\n or \r\n) at its end, since editors and echo add one; other white
// space is part of the secret. It owns the slice, must not keep state, and its error must not quote the content.
func Open[T any](root, path string, decode func(content []byte) (T, error), opts ...Option) (*File[T], error) {
	if root == "" {
		return nil, errors.New("no folder for secrets is set")
	}
	if !filepath.IsLocal(path) {
		return nil, fmt.Errorf("secret file %q: must be a relative path inside the secrets folder", path)
	}
	f := &File[T]{root: root, path: path, decode: decode, options: options{interval: DefaultInterval, now: time.Now}}
	for _, opt := range opts {
		opt(&f.options)
	}
	return f, nil
}

// Value returns the decoded secret as it was in the file at most one interval ago. While the file is missing or bad
// it returns an error (fs.ErrNotExist is found in it where that is the cause), looking again once an interval as well.
func (f *File[T]) Value() (T, error) {
	last := f.last.Load()
	if !f.fresh(last) {
		last = f.refresh()
	}
	return last.value, last.err
}

func (f *File[T]) fresh(last *look[T]) bool {
	if last == nil {
		return false
	}
	age := f.options.now().Sub(last.at)
	return age >= 0 && age < f.options.interval
}

// refresh looks at the file, unless somebody else did while this caller waited. Waiting for the one who looks, rather than
// serving the old value meanwhile, keeps the promise of Value even where the file system hangs.
func (f *File[T]) refresh() *look[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.last.Load()
	if f.fresh(before) {
		return before
	}
	after := &look[T]{at: f.options.now()}
	raw, err := f.read()
	switch {
	case err != nil:
		after.err = f.wrap(err)
	case before != nil && before.raw != nil && bytes.Equal(before.raw, raw):
		after.raw, after.value, after.err = before.raw, before.value, before.err
	default:
		after.raw = raw
		if after.value, err = f.decode(bytes.Clone(raw)); err != nil {
			after.value, after.err = *new(T), f.wrap(err)
		}
	}
	f.last.Store(after)
	return after
}

func (f *File[T]) wrap(err error) error {
	// os.Root's errors carry the path below the root; which folder that is helps as much.
	return fmt.Errorf("secret file %s: %w", filepath.Join(f.root, f.path), err)
}

// read returns the content without its line end. The root is opened each time, so that a folder that was replaced is noticed.
func (f *File[T]) read() ([]byte, error) {
	root, err := os.OpenRoot(f.root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// Asked before opening: opening a named pipe would wait for its writer.
	info, err := root.Stat(f.path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	file, err := root.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(content) > MaxBytes {
		return nil, fmt.Errorf("is larger than %d bytes", MaxBytes)
	}
	content = trimLineEnd(content)
	if len(content) == 0 {
		return nil, errors.New("is empty")
	}
	return content, nil
}

func trimLineEnd(content []byte) []byte {
	if trimmed, ok := bytes.CutSuffix(content, []byte("\n")); ok {
		return bytes.TrimSuffix(trimmed, []byte("\r"))
	}
	return content
}
