package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// client asks the cluster's servers how they are.
type client struct {
	layout Layout
	// api talks to the API server as administrator, health to the others.
	api, health *http.Client
}

// patience is how long a single question may take.
const patience = 5 * time.Second

func (l Layout) client() (*client, error) {
	authority, err := os.ReadFile(l.key("ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, errors.New("ca.crt holds no certificate")
	}
	pair, err := tls.LoadX509KeyPair(l.key("admin.crt"), l.key("admin.key"))
	if err != nil {
		return nil, err
	}
	api := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}
	// These make a certificate of their own at each start. All that is asked
	// is whether they are well.
	health := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	return &client{
		layout: l,
		api:    &http.Client{Transport: api, Timeout: patience},
		health: &http.Client{Transport: health, Timeout: patience},
	}, nil
}

// check returns nil if a component works.
func (c *client) check(ctx context.Context, component string) error {
	local := func(scheme string, port int, path string) error {
		_, err := get(ctx, c.health, fmt.Sprintf("%s://127.0.0.1:%d%s", scheme, port, path))
		return err
	}
	switch component {
	case "etcd":
		return local("http", etcdPort, "/readyz")
	case "containerd":
		connection, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "unix", c.layout.ContainerdSocket())
		if err != nil {
			return err
		}
		return connection.Close()
	case "kube-apiserver":
		_, err := get(ctx, c.api, apiURL+"/readyz")
		return err
	case "kube-controller-manager":
		return local("https", managerPort, "/healthz")
	case "kube-scheduler":
		return local("https", schedulerPort, "/healthz")
	case "kubelet":
		return local("http", kubeletHealth, "/healthz")
	case "kube-proxy":
		return local("http", proxyHealth, "/healthz")
	}
	return fmt.Errorf("no component is called %s", component)
}

// node returns nil if the node takes pods.
func (c *client) node(ctx context.Context) error {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := c.read(ctx, "/api/v1/nodes/"+name, &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" && condition.Status == "True" {
			return nil
		} else if condition.Type == "Ready" {
			return errors.New(condition.Message)
		}
	}
	return errors.New("the node has not reported yet")
}

// nameServer returns nil if the DNS server runs and answers at its Service's
// address: the proof that pods, Services and DNS work.
func (c *client) nameServer(ctx context.Context) error {
	var deployment struct {
		Status struct{ AvailableReplicas int }
	}
	if err := c.read(ctx, "/apis/apps/v1/namespaces/kube-system/deployments/coredns", &deployment); err != nil {
		return err
	}
	if deployment.Status.AvailableReplicas == 0 {
		return errors.New("no pod of the Deployment kube-system/coredns is available")
	}
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(dnsIP, "53"))
	}}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	addresses, err := resolver.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
	if err != nil {
		return err
	}
	if len(addresses) != 1 || addresses[0] != firstIP {
		return fmt.Errorf("kubernetes.default is %v, not %s", addresses, firstIP)
	}
	return nil
}

func (c *client) read(ctx context.Context, path string, into any) error {
	body, err := get(ctx, c.api, apiURL+path)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return body, nil
}
