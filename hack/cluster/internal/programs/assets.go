package programs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Assets returns a folder with etcd, kube-apiserver and kubectl, as tests with
// envtest expect them. It takes the first of
//   - KUBEBUILDER_ASSETS,
//   - what was built before,
//   - the newest recent version that setup-envtest has downloaded before,
//   - what it builds now, as for a cluster.
func (s *Store) Assets(ctx context.Context) (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		missing := missingAsset(dir)
		if missing == "" {
			return dir, nil
		}
		s.Report.Say("KUBEBUILDER_ASSETS is of no use: %s is missing or no program", missing)
	}
	dir, ok, err := s.find(s.kube())
	if err != nil || ok {
		return dir, err
	}
	if dir := downloaded(); dir != "" {
		return dir, nil
	}
	return s.Kube(ctx)
}

func missingAsset(dir string) string {
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path) //nolint:gosec // KUBEBUILDER_ASSETS is the caller's
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return path
		}
	}
	return ""
}

// oldest is the minor version from which on API servers know everything that
// the CRDs use.
const oldest = 33

// downloaded returns the folder of the newest version in setup-envtest's
// store, see sigs.k8s.io/controller-runtime/tools/setup-envtest, or "".
func downloaded() string {
	data := os.Getenv("XDG_DATA_HOME")
	if data == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		data = filepath.Join(home, ".local", "share")
	}
	dirs, err := filepath.Glob(filepath.Join(data, "kubebuilder-envtest", "k8s", fmt.Sprintf("1.*-linux-%s", runtime.GOARCH)))
	if err != nil {
		return ""
	}
	newest, found := oldest-1, ""
	for _, dir := range dirs {
		minor, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), "1."), ".")
		if n, err := strconv.Atoi(minor); err == nil && n > newest && missingAsset(dir) == "" {
			newest, found = n, dir
		}
	}
	return found
}
