package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/testenv"
)

// A process that was asked to leaves profiles when it ends, and only then.
func TestProfiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := rig.New(t, testenv.Schema(t), rig.Secrets(), rig.GitHub("github", "http://127.0.0.1:9"))
	w := r.Pod(r.URL, "worker", "--profile-dir", dir)
	w.Signal(syscall.SIGTERM)
	<-w.Ended()
	if code := w.ExitCode(); code != 0 {
		t.Errorf("it ended with code %d", code)
	}
	for _, name := range []string{"cpu.pprof", "allocs.pprof"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
			t.Errorf("%s is no profile, which is compressed by gzip", name)
		}
	}
}

func TestProfilesWithoutFolder(t *testing.T) {
	if _, err := startProfiles(filepath.Join(t.TempDir(), "missing")); err == nil || !strings.Contains(err.Error(), "--profile-dir") {
		t.Errorf("got %v, want an error that names the flag", err)
	}
}
