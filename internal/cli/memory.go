package cli

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryFiles are where the limit of this process' container stands, by
// cgroup v2 and v1.
var memoryFiles = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// The shares of a container's memory that its process may use before the
// collector works harder, in percent. What is left is for what the collector
// does not see, and for garbage that it is too late for.
const (
	podMemory     = 80
	managerMemory = 90
)

// limitMemory has the garbage collector keep to a share, in percent, of the
// container's memory; without a container's limit, to so many bytes, 0 for no
// limit. GOMEMLIMIT takes precedence.
func limitMemory(share, otherwise int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit := containerMemory() / 100 * share
	if limit == 0 {
		limit = otherwise
	}
	if limit > 0 {
		debug.SetMemoryLimit(limit)
	}
}

// containerMemory returns the memory limit of this process' container in
// bytes, 0 if there is none.
func containerMemory() int64 {
	for _, file := range memoryFiles {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// Version 2 says "max" for none, version 1 a number beyond any memory.
		limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && limit < 1<<50 {
			return limit
		}
	}
	return 0
}
