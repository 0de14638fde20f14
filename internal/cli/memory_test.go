package cli

import (
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestLimitMemory(t *testing.T) {
	files, before := memoryFiles, debug.SetMemoryLimit(-1)
	t.Cleanup(func() {
		memoryFiles = files
		debug.SetMemoryLimit(before)
	})
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	for _, tc := range []struct {
		name, text string
		otherwise  int64
		want       int64
	}{
		{"version 2", "268435400\n", 0, 214748320},
		{"none, version 2", "max\n", 0, before},
		{"none, version 1", "9223372036854771712\n", 0, before},
		{"nonsense", "", 0, before},
		{"a container", "1073741800\n", 192 << 20, 858993440},
		{"no container", "max\n", 192 << 20, 192 << 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", "")
			debug.SetMemoryLimit(before)
			memoryFiles = []string{missing, writeFile(t, dir, "limit", tc.text)}
			limitMemory(podMemory, tc.otherwise)
			if got := debug.SetMemoryLimit(-1); got != tc.want {
				t.Errorf("limit %d, want %d", got, tc.want)
			}
			debug.SetMemoryLimit(before)
			t.Setenv("GOMEMLIMIT", "1GiB")
			limitMemory(podMemory, tc.otherwise)
			if got := debug.SetMemoryLimit(-1); got != before {
				t.Errorf("limit %d in spite of GOMEMLIMIT", got)
			}
		})
	}
}
