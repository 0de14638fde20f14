package node

import (
	"fmt"
	"path/filepath"
)

// Addresses of the cluster. Its servers listen on the bridge, where pods reach
// them, or on loopback; on no network that leads elsewhere.
const (
	name        = "ackrail" // of the node
	bridge      = "ackrail0"
	gateway     = "10.244.0.1" // of the pods; also the node's own address
	podSubnet   = "10.244.0.0/24"
	clusterCIDR = "10.244.0.0/16"
	serviceCIDR = "10.96.0.0/16"
	firstIP     = "10.96.0.1" // of the Service kubernetes
	dnsIP       = "10.96.0.10"

	apiPort       = 6443
	etcdPort      = 23790
	etcdPeerPort  = 23800
	proxyHealth   = 10256
	proxyMetrics  = 10249
	managerPort   = 10257
	schedulerPort = 10259
	kubeletPort   = 10250
	kubeletHealth = 10248
)

var (
	apiURL  = fmt.Sprintf("https://%s:%d", gateway, apiPort)
	etcdURL = fmt.Sprintf("http://127.0.0.1:%d", etcdPort)
)

// volatile holds what must not outlive a reboot, and the sockets, whose paths
// have to be short. A machine has one: it can run one such cluster at a time.
const volatile = "/run/ackrail-cluster"

// Layout says where a cluster's files are.
type Layout struct {
	// Run is the folder of all its data, which Down removes.
	Run string
}

// Kubeconfig is the file with the credentials of an administrator.
func (l Layout) Kubeconfig() string { return filepath.Join(l.Run, "kubeconfig") }

// AuditLog is the file with a line for each request to the API server that
// the audit policy records.
func (l Layout) AuditLog() string { return filepath.Join(l.Run, "audit.log") }

// Log is the file that a component's output goes to.
func (l Layout) Log(component string) string {
	return filepath.Join(l.Run, "log", component+".log")
}

// ContainerdSocket is where containerd listens.
func (l Layout) ContainerdSocket() string { return filepath.Join(volatile, "containerd.sock") }

func (l Layout) path(elements ...string) string {
	return filepath.Join(append([]string{l.Run}, elements...)...)
}

func (l Layout) key(name string) string { return l.path("keys", name) }

// private are folders outside of Run whose places are built into programs.
// In the cluster's mount namespace, each is an empty file system in memory.
var private = []string{
	"/run/containerd",     // the shims' sockets
	"/run/netns",          // the pods' network namespaces
	"/var/lib/cni",        // results of the network plugins
	"/var/lib/kubelet",    // sockets for device plugins
	"/var/log/containers", // links to the pods' logs
}
