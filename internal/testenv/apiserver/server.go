package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/ackrail/ackrail/config/crd"
)

// AssetsEnv names the environment variable with the folder of the programs
// etcd and kube-apiserver. Where it is not set, hack/cluster/assets is asked
// for them, which builds them the first time: that takes minutes.
const AssetsEnv = "KUBEBUILDER_ASSETS"

const (
	startTimeout = time.Minute
	stopTimeout  = 30 * time.Second
)

// Server is a running API server.
type Server struct {
	// Config is for an administrator's client, without a limit of requests.
	Config *rest.Config

	env *envtest.Environment
}

// Start starts an API server with an empty etcd, and installs the definitions.
// Stop must be called in the end.
func Start() (*Server, error) {
	assets, err := assetsDir()
	if err != nil {
		return nil, err
	}
	definitions, err := readDefinitions()
	if err != nil {
		return nil, err
	}
	own := false
	env := &envtest.Environment{
		BinaryAssetsDirectory:    assets,
		CRDs:                     definitions,
		UseExistingCluster:       &own,
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  stopTimeout,
	}
	config, err := env.Start()
	if err != nil {
		// What has started already goes too.
		return nil, errors.Join(fmt.Errorf("starting an API server with the programs in %s: %w", assets, err), env.Stop())
	}
	return &Server{Config: config, env: env}, nil
}

// Stop ends the server's processes and removes what they stored.
func (s *Server) Stop() error { return s.env.Stop() }

// Namespace makes a namespace of a name of its own.
func Namespace(ctx context.Context, c client.Client) (string, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}}
	if err := c.Create(ctx, namespace); err != nil {
		return "", fmt.Errorf("making a namespace: %w", err)
	}
	return namespace.Name, nil
}

func assetsDir() (string, error) {
	if dir := os.Getenv(AssetsEnv); dir != "" {
		return dir, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(root, "hack", "cluster", "assets"))
	cmd.Stderr = os.Stderr // its progress
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("hack/cluster/assets: %w (or set %s to a folder with etcd and kube-apiserver)", err, AssetsEnv)
	}
	return string(bytes.TrimSpace(out)), nil
}

// moduleRoot finds go.mod upwards of the folder that go test runs in.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("there is no go.mod in the folder of the test or above")
		}
		dir = parent
	}
}

func readDefinitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := fs.Glob(crd.Bases, "bases/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		text, err := fs.ReadFile(crd.Bases, file)
		if err != nil {
			return nil, err
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, definition); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, definition)
	}
	return all, nil
}
