package programs

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ackrail/ackrail/hack/cluster/internal/progress"
)

// newStore returns a store for a module with one file.
func newStore(t *testing.T) *Store {
	t.Helper()
	s := &Store{Source: t.TempDir(), Folder: filepath.Join(t.TempDir(), "programs"), Report: progress.New(io.Discard)}
	write(t, filepath.Join(s.Source, "main.go"), "one", 0o644)
	return s
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// counted is a recipe that counts how often it is followed.
func counted(builds *atomic.Int32) recipe {
	return recipe{name: "thing", inputs: []string{"."}, build: func(_ context.Context, dir string) error {
		builds.Add(1)
		return os.WriteFile(filepath.Join(dir, "made"), nil, 0o644)
	}}
}

func TestOneOfSeveralBuilds(t *testing.T) {
	s := newStore(t)
	var builds atomic.Int32
	dirs := make([]string, 4)
	var all sync.WaitGroup
	for i := range dirs {
		all.Go(func() {
			var err error
			if dirs[i], err = s.get(t.Context(), counted(&builds)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := builds.Load(); got != 1 {
		t.Errorf("%d builds, want 1", got)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
			t.Error(err)
		}
	}
}

func TestInputsDecideWhatIsBuilt(t *testing.T) {
	s := newStore(t)
	var builds atomic.Int32
	get := func() string {
		t.Helper()
		dir, err := s.get(t.Context(), counted(&builds))
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	first := get()
	write(t, filepath.Join(s.Source, "main_test.go"), "a test", 0o644)
	if dir := get(); dir != first {
		t.Errorf("a test changed the folder to %s", dir)
	}
	write(t, filepath.Join(s.Source, "main.go"), "two", 0o644)
	if dir := get(); dir == first {
		t.Error("another source has the same folder")
	}
	if got := builds.Load(); got != 2 {
		t.Errorf("%d builds, want 2", got)
	}
}

func TestBrokenBuildLeavesNothing(t *testing.T) {
	s := newStore(t)
	broken := errors.New("broken")
	_, err := s.get(t.Context(), recipe{name: "thing", inputs: []string{"."}, build: func(_ context.Context, dir string) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "half"), nil, 0o644), broken)
	}})
	if !errors.Is(err, broken) {
		t.Fatalf("error is %v, want %v", err, broken)
	}
	// What a killed build leaves.
	write(t, filepath.Join(s.Folder, "thing-123"+temporary, "half"), "", 0o644)

	var builds atomic.Int32
	dir, err := s.get(t.Context(), counted(&builds))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(s.Folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != filepath.Base(dir) {
		t.Errorf("the store holds %v, want only %s", entries, filepath.Base(dir))
	}
	if _, err := os.Stat(filepath.Join(dir, "half")); err == nil {
		t.Error("the result has a file of the broken build")
	}
}

func TestWaitingForALockEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	report := progress.New(io.Discard)
	unlock, err := Lock(t.Context(), file, report, "the test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Lock(ctx, file, report, "the test"); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want %v", err, context.Canceled)
	}
	unlock()
	unlock, err = Lock(t.Context(), file, report, "the test")
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
