package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// startProfiles has this process write into a folder what it spends its time
// on until stop is called, and what it has allocated by then: cpu.pprof and
// allocs.pprof. Nothing is offered over the network. Without a folder it does
// nothing.
func startProfiles(dir string) (stop func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}
	cpu, err := os.OpenFile(filepath.Join(dir, "cpu.pprof"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--profile-dir: %w", err)
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, errors.Join(fmt.Errorf("--profile-dir: %w", err), cpu.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		err := cpu.Close()
		allocs, created := os.OpenFile(filepath.Join(dir, "allocs.pprof"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if created != nil {
			return errors.Join(err, created)
		}
		runtime.GC() // a profile tells what was allocated up to the last collection
		return errors.Join(err, pprof.Lookup("allocs").WriteTo(allocs, 0), allocs.Close())
	}, nil
}
