package programs

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestAssets(t *testing.T) {
	programs := func(t *testing.T, dir string, names ...string) string {
		t.Helper()
		for _, name := range names {
			write(t, filepath.Join(dir, name), "", 0o755)
		}
		return dir
	}
	all := []string{"etcd", "kube-apiserver", "kubectl"}
	tests := map[string]func(t *testing.T, s *Store, data string) (want string){
		"KUBEBUILDER_ASSETS": func(t *testing.T, _ *Store, data string) string {
			programs(t, filepath.Join(data, "kubebuilder-envtest", "k8s", "1.36.0-linux-"+runtime.GOARCH), all...)
			dir := programs(t, t.TempDir(), all...)
			t.Setenv("KUBEBUILDER_ASSETS", dir)
			return dir
		},
		"KUBEBUILDER_ASSETS without etcd, then the newest download": func(t *testing.T, _ *Store, data string) string {
			t.Setenv("KUBEBUILDER_ASSETS", programs(t, t.TempDir(), "kube-apiserver", "kubectl"))
			store := filepath.Join(data, "kubebuilder-envtest", "k8s")
			programs(t, filepath.Join(store, "1.9.0-linux-"+runtime.GOARCH), all...)
			programs(t, filepath.Join(store, "1.36.2-linux-"+runtime.GOARCH), all...)
			programs(t, filepath.Join(store, "1.37.0-linux-"+runtime.GOARCH), "etcd")
			return programs(t, filepath.Join(store, "1.36.10-linux-"+runtime.GOARCH), all...)
		},
		"an earlier build before a download": func(t *testing.T, s *Store, data string) string {
			programs(t, filepath.Join(data, "kubebuilder-envtest", "k8s", "1.36.0-linux-"+runtime.GOARCH), all...)
			dir, _, err := s.find(s.kube())
			if err != nil {
				t.Fatal(err)
			}
			return programs(t, dir, all...)
		},
	}
	for name, arrange := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			for _, input := range s.kube().inputs {
				write(t, filepath.Join(s.Source, input, "file"), "", 0o644)
			}
			data := t.TempDir()
			t.Setenv("XDG_DATA_HOME", data)
			t.Setenv("KUBEBUILDER_ASSETS", "")
			want := arrange(t, s, data)
			got, err := s.Assets(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("Assets() = %s, want %s", got, want)
			}
		})
	}
}

func TestNoBuildWithoutKubernetes(t *testing.T) {
	s := newStore(t)
	for _, input := range s.kube().inputs {
		write(t, filepath.Join(s.Source, input, "file"), "", 0o644)
	}
	if err := os.RemoveAll(filepath.Join(s.Source, "go.mod")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.Source, "go.mod"), "module example.com/m\n", 0o644)
	if _, err := s.Kube(t.Context()); err == nil {
		t.Error("no error without a version of Kubernetes in go.mod")
	}
}
