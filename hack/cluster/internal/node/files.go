package node

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"text/template"

	"github.com/ackrail/ackrail/hack/cluster/internal/keys"
)

//go:embed files
var files embed.FS

// Config is what the cluster is made of besides its own files.
type Config struct {
	Layout
	// Programs is the folder with etcd, the Kubernetes servers and kubectl.
	Programs string
	// Images are the files with the images Pause and CoreDNS.
	Images         []string
	Pause, CoreDNS string
}

// pluginFolder is where Debian's containernetworking-plugins are.
const pluginFolder = "/usr/lib/cni"

// write makes the keys, the kubeconfigs and the configuration files.
func (c *Config) write() error {
	for _, dir := range []string{"keys", "log", "cni/conf", "cni/leases", "containerd", "etcd", "kubelet", "pods"} {
		if err := os.MkdirAll(c.path(dir), 0o700); err != nil {
			return err
		}
	}
	if err := c.writeKeys(); err != nil {
		return fmt.Errorf("making the keys: %w", err)
	}
	for _, file := range []struct {
		template, path string
		values         any
	}{
		{"containerd.toml", "containerd.toml", map[string]string{
			"Root": c.path("containerd"), "State": filepath.Join(volatile, "containerd"), "Socket": c.ContainerdSocket(),
			"Pause": c.Pause, "Snapshotter": snapshotter(c.Run), "Plugins": pluginFolder, "Network": c.path("cni", "conf"),
		}},
		{"network.conflist", "cni/conf/10-ackrail.conflist", map[string]string{
			"Bridge": bridge, "Subnet": podSubnet, "Gateway": gateway, "Leases": c.path("cni", "leases"),
		}},
		{"kubelet.yaml", "kubelet.yaml", map[string]any{
			"Gateway": gateway, "Port": kubeletPort, "HealthPort": kubeletHealth, "Key": c.key("kubelet"), "Authority": c.key("ca.crt"),
			"Socket": c.ContainerdSocket(), "DNS": dnsIP, "PodLogs": c.path("pods"), "VolumePlugins": c.path("kubelet", "volume-plugins"),
		}},
		{"audit.yaml", "audit.yaml", nil},
		{"coredns.yaml", "coredns.yaml", map[string]string{"Image": c.CoreDNS, "IP": dnsIP}},
	} {
		if err := render(file.template, c.path(file.path), file.values); err != nil {
			return err
		}
	}
	return nil
}

func render(name, path string, values any) error {
	parsed, err := template.New(name).Option("missingkey=error").ParseFS(files, "files/"+name)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, values); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o600)
}

// snapshotter returns how containerd keeps layers in a folder: an overlay
// cannot lie on another overlay, which is what containers have for a root.
func snapshotter(dir string) string {
	const overlay = 0x794c7630
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err == nil && int64(fs.Type) == overlay {
		return "native"
	}
	return "overlayfs"
}

func (c *Config) writeKeys() error {
	authority, err := keys.NewAuthority("ackrail-cluster")
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.key("ca.crt"), authority.PEM, 0o600); err != nil {
		return err
	}
	private, public, err := keys.NewSigningKey()
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.key("service-account.key"), private, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(c.key("service-account.pub"), public, 0o600); err != nil {
		return err
	}
	for server, names := range map[string][]string{
		"apiserver": {"127.0.0.1", "localhost", gateway, firstIP, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		"kubelet":   {name, gateway},
	} {
		pair, err := authority.Server(server, names...)
		if err != nil {
			return err
		}
		if err := pair.Write(c.key(server)); err != nil {
			return err
		}
	}
	kubeletClient, err := authority.Client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return err
	}
	if err := kubeletClient.Write(c.key("apiserver-kubelet")); err != nil {
		return err
	}
	return c.writeKubeconfigs(authority)
}

func (c *Config) writeKubeconfigs(authority *keys.Authority) error {
	for _, client := range []struct {
		path, user string
		groups     []string
	}{
		{c.Kubeconfig(), "admin", []string{"system:masters"}},
		{c.kubeconfig("kube-controller-manager"), "system:kube-controller-manager", nil},
		{c.kubeconfig("kube-scheduler"), "system:kube-scheduler", nil},
		{c.kubeconfig("kube-proxy"), "system:kube-proxy", nil},
		{c.kubeconfig("kubelet"), "system:node:" + name, []string{"system:nodes"}},
	} {
		pair, err := authority.Client(client.user, client.groups...)
		if err != nil {
			return err
		}
		if client.user == "admin" {
			if err := pair.Write(c.key("admin")); err != nil {
				return err
			}
		}
		content, err := keys.Kubeconfig(apiURL, authority, pair)
		if err != nil {
			return err
		}
		if err := os.WriteFile(client.path, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfig is the file with the credentials of one of the servers.
func (l Layout) kubeconfig(component string) string { return l.key(component + ".kubeconfig") }
