package node

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPopulated(t *testing.T) {
	// As the kernel shows control groups.
	group := t.TempDir()
	container := filepath.Join(group, "container")
	if err := os.Mkdir(container, 0o755); err != nil {
		t.Fatal(err)
	}
	set := func(dir, processes string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(processes), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set(group, "")
	set(container, "")
	if populated(group) {
		t.Error("empty groups are populated")
	}
	set(container, "4711\n")
	if !populated(group) {
		t.Error("a group with a process in a group in it is not populated")
	}
	if populated(filepath.Join(group, "gone")) {
		t.Error("a group that is gone is populated")
	}
}

func TestMissingFoldersFromTheInside(t *testing.T) {
	root := t.TempDir()
	got := missing(filepath.Join(root, "a", "b"))
	want := []string{filepath.Join(root, "a", "b"), filepath.Join(root, "a")}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("missing() = %v, want %v", got, want)
	}
	if got := missing(root); len(got) != 0 {
		t.Errorf("missing() = %v for a folder that exists", got)
	}
}
