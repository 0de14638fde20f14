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
		most       []int64
		want       int64
	}{
		{"version 2", "268435400\n", nil, 201326550},
		{"none, version 2", "max\n", nil, before},
		{"none, version 1", "9223372036854771712\n", nil, before},
		{"nonsense", "", nil, before},
		{"a container that is larger", "1073741824\n", []int64{192 << 20}, 192 << 20},
		{"a container that is smaller", "100000000\n", []int64{192 << 20}, 75000000},
		{"no container", "max\n", []int64{192 << 20}, 192 << 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", "")
			debug.SetMemoryLimit(before)
			memoryFiles = []string{missing, writeFile(t, dir, "limit", tc.text)}
			limitMemory(podMemory, tc.most...)
			if got := debug.SetMemoryLimit(-1); got != tc.want {
				t.Errorf("limit %d, want %d", got, tc.want)
			}
			debug.SetMemoryLimit(before)
			t.Setenv("GOMEMLIMIT", "1GiB")
			limitMemory(podMemory, tc.most...)
			if got := debug.SetMemoryLimit(-1); got != before {
				t.Errorf("limit %d in spite of GOMEMLIMIT", got)
			}
		})
	}
}
