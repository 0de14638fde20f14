package secretfile_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ackrail/ackrail/internal/secretfile"
)

// clock is a time that only the test moves.
type clock struct{ nanos atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(1_700_000_000, c.nanos.Load()) }
func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

// text is the decoder of most tests, and counts its calls.
type text struct{ decoded atomic.Int64 }

func (d *text) decode(content []byte) (string, error) {
	d.decoded.Add(1)
	if strings.HasPrefix(string(content), "bad") {
		return "half", errors.New("is not decodable")
	}
	return string(content), nil
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, root, path string) (*secretfile.File[string], *text, *clock) {
	t.Helper()
	d, c := &text{}, &clock{}
	f, err := secretfile.Open(root, path, d.decode, secretfile.WithClock(c.now))
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return f, d, c
}

func wantValue(t *testing.T, f *secretfile.File[string], want string) {
	t.Helper()
	if got, err := f.Value(); got != want || err != nil {
		t.Errorf("Value = %q, %v; want %q", got, err, want)
	}
}

// wantError checks that there is an error, that it names the path, and that no value comes beside it.
func wantError(t *testing.T, f *secretfile.File[string], path string) error {
	t.Helper()
	got, err := f.Value()
	if err == nil || got != "" || !strings.Contains(err.Error(), path) {
		t.Errorf("Value = %q, %v; want an error that names %s", got, err, path)
	}
	return err
}

func TestContent(t *testing.T) {
	most := strings.Repeat("x", secretfile.MaxBytes)
	tests := map[string]struct {
		content, want string
		ok            bool
	}{
		"plain":               {"s3cret", "s3cret", true},
		"line end":            {"s3cret\n", "s3cret", true},
		"Windows line end":    {"s3cret\r\n", "s3cret", true},
		"two line ends":       {"s3cret\n\n", "s3cret\n", true},
		"carriage return":     {"s3cret\r", "s3cret\r", true},
		"spaces kept":         {" s3cret \n", " s3cret ", true},
		"any bytes":           {"\x00\xff\n", "\x00\xff", true},
		"the most":            {most, most, true},
		"one more":            {most + "x", "", false},
		"the most and a line": {most + "\n", "", false},
		"empty":               {"", "", false},
		"only a line end":     {"\n", "", false},
		"only a Windows one":  {"\r\n", "", false},
		"undecodable":         {"bad s3cret", "", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, "github", "secret")
			write(t, path, tc.content)
			f, _, _ := open(t, root, "github/secret")
			if tc.ok {
				wantValue(t, f, tc.want)
				return
			}
			if err := wantError(t, f, path); strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "xx") {
				t.Errorf("the error quotes the content: %v", err)
			}
		})
	}
}

func TestOpenRefusesPathsOutsideTheRoot(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"", "..", "../secret", "a/../../secret", "/etc/passwd", filepath.Join(root, "secret")} {
		if _, err := secretfile.Open(root, path, (&text{}).decode); err == nil {
			t.Errorf("Open(%q) succeeded", path)
		}
	}
	if _, err := secretfile.Open("", "secret", (&text{}).decode); err == nil {
		t.Error("Open without a root succeeded")
	}
}

func TestOnlyRegularFilesBelowTheRoot(t *testing.T) {
	tests := map[string]struct {
		path string // below the root, "secret" if empty
		make func(root, outside string) error
	}{
		"nothing":      {make: func(string, string) error { return nil }},
		"a folder":     {make: func(root, _ string) error { return os.Mkdir(filepath.Join(root, "secret"), 0o700) }},
		"a named pipe": {make: func(root, _ string) error { return syscall.Mkfifo(filepath.Join(root, "secret"), 0o600) }},
		"a file as its folder": {
			path: "file/secret",
			make: func(root, _ string) error { return os.WriteFile(filepath.Join(root, "file"), []byte("s3cret"), 0o600) },
		},
		"a dangling symlink":  {make: func(root, _ string) error { return os.Symlink("nowhere", filepath.Join(root, "secret")) }},
		"a symlink to itself": {make: func(root, _ string) error { return os.Symlink("secret", filepath.Join(root, "secret")) }},
		"a symlink out of it": {make: func(root, outside string) error { return os.Symlink(outside, filepath.Join(root, "secret")) }},
		"a symlink upwards": {make: func(root, outside string) error {
			return os.Symlink(filepath.Join("..", filepath.Base(outside)), filepath.Join(root, "secret"))
		}},
		"a folder's symlink upwards": {
			path: "up/outside",
			make: func(root, _ string) error { return os.Symlink("..", filepath.Join(root, "up")) },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			root, outside := filepath.Join(parent, "root"), filepath.Join(parent, "outside")
			write(t, outside, "s3cret")
			if err := os.Mkdir(root, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := tc.make(root, outside); err != nil {
				t.Fatal(err)
			}
			path := cmp.Or(tc.path, "secret")
			f, _, _ := open(t, root, path)
			_ = wantError(t, f, filepath.Join(root, path))
		})
	}
}

func TestValueIsKeptForAnInterval(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "secret")
	write(t, path, "first")
	f, decoder, clock := open(t, root, "secret")
	wantValue(t, f, "first")
	write(t, path, "second")
	clock.advance(secretfile.DefaultInterval - 1)
	wantValue(t, f, "first")
	clock.advance(1)
	wantValue(t, f, "second")
	clock.advance(secretfile.DefaultInterval)
	wantValue(t, f, "second")
	if n := decoder.decoded.Load(); n != 2 {
		t.Errorf("decoded %d times, want once for each content", n)
	}
	write(t, path, "third")
	clock.advance(-time.Hour)
	wantValue(t, f, "third") // a clock set back must not freeze the value
}

func TestIntervalCanBeChosen(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "secret")
	write(t, path, "first")
	clock := &clock{}
	f, err := secretfile.Open(root, "secret", (&text{}).decode, secretfile.WithClock(clock.now), secretfile.WithInterval(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, f, "first")
	write(t, path, "second")
	clock.advance(59 * time.Second)
	wantValue(t, f, "first")
	clock.advance(time.Second)
	wantValue(t, f, "second")
}

// The rewrite keeps length, inode and modification time; only the bytes tell.
func TestRewriteInPlaceIsNoticed(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "secret")
	at := time.Unix(1_600_000_000, 0)
	f, _, clock := open(t, root, "secret")
	for _, content := range []string{"first.", "second"} {
		write(t, path, content)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		wantValue(t, f, content)
		clock.advance(secretfile.DefaultInterval)
	}
}

// volume is a folder laid out and updated as the kubelet does it: the files are symlinks through ..data, which is swapped by
// a rename, after which the old folder is removed.
type volume struct{ root string }

func (v volume) swap(t *testing.T, generation, content string) {
	t.Helper()
	at := time.Unix(1_600_000_000, 0)
	file := filepath.Join(v.root, generation, "secret")
	write(t, file, content)
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
	old, _ := os.Readlink(filepath.Join(v.root, "..data"))
	if err := os.Symlink(generation, filepath.Join(v.root, "..data_tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(v.root, "..data_tmp"), filepath.Join(v.root, "..data")); err != nil {
		t.Fatal(err)
	}
	if old != "" {
		if err := os.RemoveAll(filepath.Join(v.root, old)); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.Symlink("..data/secret", filepath.Join(v.root, "secret")); err != nil {
		t.Fatal(err)
	}
}

func TestSymlinkSwapIsNoticedWithEqualTimeAndSize(t *testing.T) {
	v := volume{t.TempDir()}
	f, _, clock := open(t, v.root, "secret")
	for i := range 5 {
		content := fmt.Sprintf("generation %d", i)
		v.swap(t, fmt.Sprintf("..2026_03_04_%d", i), content)
		wantValue(t, f, content)
		clock.advance(secretfile.DefaultInterval)
	}
}

func TestGoneAndBack(t *testing.T) {
	root := filepath.Join(t.TempDir(), "mount")
	path := filepath.Join(root, "secret")
	f, decoder, clock := open(t, root, "secret")
	if err := wantError(t, f, path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Value without a folder = %v, want fs.ErrNotExist", err)
	}
	write(t, path, "first")
	clock.advance(secretfile.DefaultInterval)
	wantValue(t, f, "first")

	for name, spoil := range map[string]func() error{
		"the file is removed":     func() error { return os.Remove(path) },
		"the folder is removed":   func() error { return os.RemoveAll(root) },
		"the folder is renamed":   func() error { return os.Rename(root, filepath.Join(t.TempDir(), "other")) },
		"the file is emptied":     func() error { return os.Truncate(path, 0) },
		"the content is bad":      func() error { return os.WriteFile(path, []byte("bad"), 0o600) },
		"the file grows too much": func() error { return os.Truncate(path, secretfile.MaxBytes+1) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		clock.advance(secretfile.DefaultInterval)
		if _ = wantError(t, f, path); t.Failed() {
			t.Fatalf("after %s", name)
		}
		write(t, path, "first")
		_ = wantError(t, f, path) // errors, too, are kept for an interval
		clock.advance(secretfile.DefaultInterval)
		wantValue(t, f, "first")
	}

	before := decoder.decoded.Load()
	write(t, path, "bad")
	for range 3 {
		clock.advance(secretfile.DefaultInterval)
		_ = wantError(t, f, path)
	}
	if n := decoder.decoded.Load() - before; n != 1 {
		t.Errorf("undecodable content was decoded %d times, want once", n)
	}
}

func TestDecoderOwnsItsSlice(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "secret"), "s3cret")
	clock := &clock{}
	decoded := 0
	f, err := secretfile.Open(root, "secret", func(content []byte) (string, error) {
		decoded++
		value := string(content)
		clear(content)
		return value, nil
	}, secretfile.WithClock(clock.now))
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, f, "s3cret")
	clock.advance(secretfile.DefaultInterval)
	wantValue(t, f, "s3cret")
	if decoded != 1 {
		t.Errorf("decoded %d times, want 1: the kept content was changed by the decoder", decoded)
	}
}

// Readers race with each other and with swaps: each must see a whole generation, never an older one than before, and no error.
func TestConcurrentUse(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "secret")
	replace := func(i int) {
		tmp := filepath.Join(root, "tmp")
		write(t, tmp, fmt.Sprintf("%06d", i))
		if err := os.Rename(tmp, path); err != nil {
			t.Fatal(err)
		}
	}
	replace(0)
	f, _, clock := open(t, root, "secret")
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			last := ""
			for !done.Load() {
				got, err := f.Value()
				if err != nil || len(got) != 6 || got < last {
					t.Errorf("Value = %q, %v after %q", got, err, last)
					return
				}
				last = got
			}
		})
	}
	for i := range 300 {
		replace(i)
		clock.advance(secretfile.DefaultInterval)
	}
	done.Store(true)
	wg.Wait()
	clock.advance(secretfile.DefaultInterval)
	wantValue(t, f, "000299")
}

func BenchmarkValue(b *testing.B) {
	root := b.TempDir()
	if err := os.WriteFile(filepath.Join(root, "secret"), []byte("s3cret\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	for name, interval := range map[string]time.Duration{"kept": time.Hour, "looked at": 0} {
		f, err := secretfile.Open(root, "secret", (&text{}).decode, secretfile.WithInterval(interval))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.Value(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
