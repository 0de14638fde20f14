package node

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// component is a process that the supervisor keeps running.
type component struct {
	name string
	path string
	args []string
	// after are the components that must work before this one starts.
	after []string
}

func (l Layout) components(programs string) []component {
	program := func(name string) string { return filepath.Join(programs, name) }
	return []component{
		{name: "etcd", path: program("etcd"), args: l.etcdArgs()},
		{name: "containerd", path: "containerd", args: []string{"--config", l.path("containerd.toml")}},
		{name: "kube-apiserver", path: program("kube-apiserver"), args: l.apiserverArgs(), after: []string{"etcd"}},
		{name: "kube-controller-manager", path: program("kube-controller-manager"), args: l.controllerManagerArgs(), after: []string{"kube-apiserver"}},
		{name: "kube-scheduler", path: program("kube-scheduler"), args: l.schedulerArgs(), after: []string{"kube-apiserver"}},
		{name: "kubelet", path: program("kubelet"), args: l.kubeletArgs(), after: []string{"kube-apiserver", "containerd"}},
		{name: "kube-proxy", path: program("kube-proxy"), args: l.proxyArgs(), after: []string{"kube-apiserver"}},
	}
}

func (l Layout) etcdArgs() []string {
	peer := fmt.Sprintf("http://127.0.0.1:%d", etcdPeerPort)
	return []string{
		"--data-dir=" + l.path("etcd"),
		"--listen-client-urls=" + etcdURL,
		"--advertise-client-urls=" + etcdURL,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
		// The data is worth nothing after the machine has stopped.
		"--unsafe-no-fsync",
	}
}

func (l Layout) apiserverArgs() []string {
	return []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=" + gateway,
		"--advertise-address=" + gateway,
		"--secure-port=" + strconv.Itoa(apiPort),
		"--tls-cert-file=" + l.key("apiserver.crt"),
		"--tls-private-key-file=" + l.key("apiserver.key"),
		"--client-ca-file=" + l.key("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + l.key("service-account.pub"),
		"--service-account-signing-key-file=" + l.key("service-account.key"),
		"--service-cluster-ip-range=" + serviceCIDR,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--kubelet-certificate-authority=" + l.key("ca.crt"),
		"--kubelet-client-certificate=" + l.key("apiserver-kubelet.crt"),
		"--kubelet-client-key=" + l.key("apiserver-kubelet.key"),
		// Nothing resolves the node's name.
		"--kubelet-preferred-address-types=InternalIP",
		"--audit-policy-file=" + l.path("audit.yaml"),
		"--audit-log-path=" + l.AuditLog(),
		"--audit-log-maxsize=500", // MB; a test that counts must not lose lines
		"--audit-log-maxbackup=1",
	}
}

func (l Layout) controllerManagerArgs() []string {
	config := l.kubeconfig("kube-controller-manager")
	return []string{
		"--kubeconfig=" + config,
		"--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config,
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(managerPort),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + l.key("service-account.key"),
		"--root-ca-file=" + l.key("ca.crt"),
		"--allocate-node-cidrs=true",
		"--cluster-cidr=" + clusterCIDR,
		"--service-cluster-ip-range=" + serviceCIDR,
		// Would otherwise be made outside of the cluster's folders.
		"--flex-volume-plugin-dir=" + l.path("kubelet", "volume-plugins"),
	}
}

func (l Layout) schedulerArgs() []string {
	config := l.kubeconfig("kube-scheduler")
	return []string{
		"--kubeconfig=" + config,
		"--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config,
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(schedulerPort),
	}
}

func (l Layout) kubeletArgs() []string {
	return []string{
		"--config=" + l.path("kubelet.yaml"),
		"--kubeconfig=" + l.kubeconfig("kubelet"),
		"--hostname-override=" + name,
		"--node-ip=" + gateway,
		"--root-dir=" + l.path("kubelet"),
		"--cert-dir=" + l.path("kubelet", "pki"),
	}
}

func (l Layout) proxyArgs() []string {
	args := []string{
		"--kubeconfig=" + l.kubeconfig("kube-proxy"),
		"--proxy-mode=nftables",
		"--cluster-cidr=" + clusterCIDR,
		"--hostname-override=" + name,
		"--bind-address=" + gateway,
		"--healthz-bind-address=127.0.0.1:" + strconv.Itoa(proxyHealth),
		"--metrics-bind-address=127.0.0.1:" + strconv.Itoa(proxyMetrics),
		// Zero leaves the machine's settings as they are.
		"--conntrack-max-per-core=0",
		"--conntrack-tcp-timeout-established=0",
		"--conntrack-tcp-timeout-close-wait=0",
	}
	if !bridgeFiltered() {
		// Answers between pods would take the bridge past the address
		// translation. From outside of the pods' network they do not.
		args = append(args, "--masquerade-all")
	}
	return args
}
