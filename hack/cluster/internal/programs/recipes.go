package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// names are the programs that kube is, see the command's table.
var names = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"}

// Image names of what the cluster itself runs in pods.
const (
	PauseImage   = "docker.io/ackrail/pause:dev"
	CoreDNSImage = "docker.io/ackrail/coredns:dev"
)

func (s *Store) kube() recipe {
	return recipe{name: "kube", inputs: []string{"go.mod", "go.sum", "kube"}, build: s.buildKube}
}

// Kube returns the folder with etcd, the Kubernetes servers and kubectl.
func (s *Store) Kube(ctx context.Context) (string, error) { return s.get(ctx, s.kube()) }

func (s *Store) buildKube(ctx context.Context, dir string) error {
	version, err := s.kubernetesVersion()
	if err != nil {
		return err
	}
	s.Report.Say("Building etcd and Kubernetes %s, once on this machine: about 15 minutes on 2 cores unless Go's build cache has them", version[0])
	// Without a version, clients refuse to talk to the API server.
	const variable = "k8s.io/component-base/version."
	ldflags := fmt.Sprintf("-X %[1]sgitVersion=%[2]s -X %[1]sgitMajor=%[3]s -X %[1]sgitMinor=%[4]s", variable, version[0], version[1], version[2])
	if err := s.compile(ctx, ".", "./kube", filepath.Join(dir, "kube"), ldflags); err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Symlink("kube", filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

var kubernetesModule = regexp.MustCompile(`(?m)^\tk8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)$`)

// kubernetesVersion returns the whole version, its major and its minor part.
func (s *Store) kubernetesVersion() ([3]string, error) {
	content, err := os.ReadFile(filepath.Join(s.Source, "go.mod"))
	if err != nil {
		return [3]string{}, err
	}
	match := kubernetesModule.FindSubmatch(content)
	if match == nil {
		return [3]string{}, errors.New("go.mod does not require k8s.io/kubernetes")
	}
	return [3]string{string(match[1]), string(match[2]), string(match[3])}, nil
}

// Images returns the files with the images that the cluster itself needs:
// tars of OCI layouts.
func (s *Store) Images(ctx context.Context) ([]string, error) {
	dir, err := s.get(ctx, recipe{
		name:   "images",
		inputs: []string{"pause", "coredns", "../image"},
		build:  s.buildImages,
	})
	if err != nil {
		return nil, err
	}
	return []string{filepath.Join(dir, "pause.tar"), filepath.Join(dir, "coredns.tar")}, nil
}

func (s *Store) buildImages(ctx context.Context, dir string) error {
	s.Report.Say("Building CoreDNS and the pause program, once on this machine: about 2 minutes")
	work, err := os.MkdirTemp("", "ackrail-images-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	packer := filepath.Join(work, "image")
	if err := s.compile(ctx, "../image", ".", packer, ""); err != nil {
		return err
	}
	for _, program := range []struct{ module, pkg, image string }{
		{".", "./pause", PauseImage},
		{"coredns", ".", CoreDNSImage},
	} {
		name := filepath.Base(filepath.Join(program.module, program.pkg))
		binary := filepath.Join(work, name)
		if err := s.compile(ctx, program.module, program.pkg, binary, ""); err != nil {
			return err
		}
		pack := exec.CommandContext(ctx, packer, "-o", filepath.Join(dir, name+".tar"), "-name", program.image, "-binary", binary)
		if output, err := pack.CombinedOutput(); err != nil {
			return fmt.Errorf("packing %s: %w: %s", name, err, output)
		}
	}
	return nil
}
