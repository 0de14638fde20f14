package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
	"github.com/ackrail/ackrail/internal/testenv/apiserver"
)

// cluster is an API server for managers to work with.
type cluster struct {
	t          *testing.T
	client     client.Client
	config     *rest.Config
	kubeconfig string // of an administrator
}

// startManager starts a manager on free ports. What args say takes precedence.
func (c *cluster) startManager(args ...string) *managerProcess {
	c.t.Helper()
	m := &managerProcess{cluster: c, probes: rig.FreePort(c.t), metrics: rig.FreePort(c.t)}
	m.Process = rig.Start(c.t, append([]string{
		"manager", "--image", "ackrail:test", "--kubeconfig", c.kubeconfig, "--leader-elect=false",
		"--health-probe-bind-address", fmt.Sprintf("127.0.0.1:%d", m.probes), "--metrics-bind-address", fmt.Sprintf("127.0.0.1:%d", m.metrics),
	}, args...)...)
	return m
}

// managerProcess is a running manager.
type managerProcess struct {
	*rig.Process
	cluster         *cluster
	probes, metrics int
}

// until waits for what the manager does.
func (m *managerProcess) until(condition func() error) {
	m.T.Helper()
	testenv.Eventually(m.T, time.Minute, func() error {
		if !m.Running() {
			return errors.New("it ended")
		}
		return condition()
	})
}

// probe asks a probe for its status.
func (m *managerProcess) probe(path string) error {
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", m.probes, path))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

func (m *managerProcess) waitUntilReady() {
	m.T.Helper()
	m.until(func() error { return m.probe("/readyz") })
}

// leads reports an error unless the manager has become the leader.
func (m *managerProcess) leads() error {
	if !strings.Contains(m.Output(), "Successfully acquired lease") {
		return errNotYet
	}
	return nil
}

// works reports an error unless somebody has looked at a replay.
func (c *cluster) works(r *v1alpha1.EventReplay) error {
	if err := c.client.Get(c.t.Context(), client.ObjectKeyFromObject(r), r); err != nil {
		return err
	}
	if meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionPlanned) == nil {
		return errNotYet
	}
	return nil
}

func (c *cluster) create(objects ...client.Object) {
	c.t.Helper()
	for _, o := range objects {
		if err := c.client.Create(c.t.Context(), o); err != nil {
			c.t.Fatal(err)
		}
	}
}

// namespace makes a namespace with a replay of an endpoint that is not there.
func (c *cluster) namespace(name string) *v1alpha1.EventReplay {
	c.t.Helper()
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return c.replay(name, "first")
}

func (c *cluster) replay(namespace, name string) *v1alpha1.EventReplay {
	c.t.Helper()
	r := &v1alpha1.EventReplay{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.EventReplaySpec{
			EndpointRef: v1alpha1.EndpointRef{Name: "nothing"},
			Selector:    v1alpha1.ReplaySelector{Match: v1alpha1.ReplayMatchAll},
		},
	}
	c.create(r)
	return r
}

// token makes a service account and returns a token of it.
func (c *cluster) token(namespace, name string) string {
	c.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	c.create(account)
	request := &authenticationv1.TokenRequest{}
	if err := c.client.SubResource("token").Create(c.t.Context(), account, request); err != nil {
		c.t.Fatal(err)
	}
	return request.Status.Token
}

// scrape asks for the metrics with a token, or with none, of a server with
// any certificate.
func (m *managerProcess) scrape(token string) (status int, text string, err error) {
	return m.scrapeFrom(&tls.Config{InsecureSkipVerify: true}, token)
}

func (m *managerProcess) scrapeFrom(server *tls.Config, token string) (status int, text string, err error) {
	transport := &http.Transport{TLSClientConfig: server}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequest(http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/metrics", m.metrics), nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

func TestManager(t *testing.T) {
	server, err := apiserver.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	known := newScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := client.New(server.Config, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, client: admin, config: server.Config}
	for name, test := range map[string]func(*cluster){
		"metrics":            (*cluster).metrics,
		"certificate":        (*cluster).certificate,
		"namespaces":         (*cluster).namespaces,
		"hand-over":          (*cluster).handOver,
		"take-over":          (*cluster).takeOver,
		"interrupted":        (*cluster).interrupted,
		"no API server":      (*cluster).noAPIServer,
		"rights are missing": (*cluster).withoutRights,
		"secrets":            (*cluster).secretsAreNotWatched,
		"replay create":      (*cluster).replayCreate,
		"database":           (*cluster).database,
	} {
		t.Run(name, func(t *testing.T) { test(c.in(t)) })
	}
	t.Run("without CRDs", func(t *testing.T) { c.in(t).withoutCRDs() })
}

// in returns the cluster for a test of its own.
func (c *cluster) in(t *testing.T) *cluster {
	in := &cluster{t: t, client: c.client, config: c.config}
	in.kubeconfig = in.writeKubeconfig(&clientcmdapi.AuthInfo{
		ClientCertificateData: c.config.CertData, ClientKeyData: c.config.KeyData,
	})
	return in
}

// writeKubeconfig writes a kubeconfig for somebody.
func (c *cluster) writeKubeconfig(who *clientcmdapi.AuthInfo) string {
	c.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	config.AuthInfos["test"] = who
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	file := filepath.Join(c.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		c.t.Fatal(err)
	}
	return file
}

// Whoever forgot the CRDs is told so.
func (c *cluster) withoutCRDs() {
	for _, name := range []string{"webhookendpoints.ackrail.io", "eventreplays.ackrail.io"} {
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := c.client.Delete(c.t.Context(), definition); err != nil {
			c.t.Fatal(err)
		}
		testenv.Eventually(c.t, time.Minute, func() error {
			if err := c.client.Get(c.t.Context(), client.ObjectKey{Name: name}, definition); err == nil {
				return errNotYet
			}
			return nil
		})
	}
	f := rig.Run(c.t, "", "manager", "--image", "ackrail:test", "--kubeconfig", c.kubeconfig, "--leader-elect=false",
		"--health-probe-bind-address", "0", "--metrics-bind-address", "0", "--log-level", "error")
	if f := rig.Run(c.t, "", "replay", "create", "a", "--endpoint", "github", "--all", "--kubeconfig", c.kubeconfig); f.Code != 1 ||
		f.Stderr != "Error: the cluster does not know EventReplays: install Ackrail there first, or choose another --context\n" {
		c.t.Errorf("replay create ended with code %d and said %s", f.Code, f.Stderr)
	}
	const want = ` in version "ackrail.io/v1alpha1": install the CRDs of config/crd first` + "\n"
	if f.Code != 1 || !strings.HasPrefix(f.Stderr, "Error: ") || !strings.HasSuffix(f.Stderr, want) || strings.Count(f.Stderr, "\n") != 1 {
		c.t.Errorf("it ended with code %d and said %s", f.Code, f.Stderr)
	}
}

// Metrics are for those whom the cluster allows to have them.
func (c *cluster) metrics() {
	m := c.startManager()
	m.waitUntilReady()
	if err := m.probe("/healthz"); err != nil {
		c.t.Error(err)
	}
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "metrics"}})
	nobody, reader := c.token("metrics", "nobody"), c.token("metrics", "reader")
	c.create(
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "metrics"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "metrics"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "metrics"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "metrics", Name: "reader"}},
		})
	for _, tc := range []struct {
		token string
		want  int
	}{
		{"", http.StatusUnauthorized},
		{"forged", http.StatusInternalServerError}, // controller-runtime's word for it
		{nobody, http.StatusForbidden},
	} {
		m.until(func() error { // the server may not be listening yet
			status, text, err := m.scrape(tc.token)
			if err == nil && (status != tc.want || strings.Contains(text, "go_goroutines")) {
				c.t.Errorf("answered with %d, want %d", status, tc.want)
			}
			return err
		})
	}
	m.until(func() error { // the API server takes a moment to know of the role
		status, text, err := m.scrape(reader)
		if status != http.StatusOK {
			return fmt.Errorf("answered with %d, %w", status, err)
		}
		for _, series := range []string{`ackrail_build_info{goversion="go1.`, "controller_runtime_reconcile_total{", "go_goroutines "} {
			if !strings.Contains(text, "\n"+series) {
				return fmt.Errorf("no series %s", series)
			}
		}
		return nil
	})
	c.ends(m)
}

// ends stops a manager, which must leave in good order.
func (c *cluster) ends(m *managerProcess) {
	c.t.Helper()
	began := time.Now()
	if code := m.Stop(); code != 0 {
		c.t.Errorf("it ended with code %d", code)
	}
	if took := time.Since(began); took > 15*time.Second {
		c.t.Errorf("it took %s to end", took)
	}
	if !strings.Contains(m.Output(), "Manager stopped") {
		c.t.Error("it did not end in good order")
	}
}

// What is served is said by the files in a folder, and by nothing else where
// there is one.
func (c *cluster) certificate() {
	dir := c.t.TempDir()
	f := rig.Run(c.t, "", "manager", "--image", "ackrail:test", "--kubeconfig", c.kubeconfig, "--leader-elect=false", "--metrics-cert-dir", dir)
	if want := "Error: --metrics-cert-dir: open " + dir + "/tls.crt: no such file or directory\n"; f.Code != 1 || f.Stderr != want {
		c.t.Errorf("it ended with code %d and said %s", f.Code, f.Stderr)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	writeFile(c.t, dir, "tls.crt", string(certificate))
	writeFile(c.t, dir, "tls.key", string(key))
	m := c.startManager("--metrics-cert-dir", dir)
	m.waitUntilReady()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	m.until(func() error {
		status, _, err := m.scrapeFrom(&tls.Config{RootCAs: roots}, "")
		if err == nil && status != http.StatusUnauthorized {
			err = fmt.Errorf("answered with %d, want 401", status)
		}
		return err
	})
}

// Objects in other namespaces are left alone.
func (c *cluster) namespaces() {
	one, two, other := c.namespace("watched-one"), c.namespace("watched-two"), c.namespace("unwatched")
	m := c.startManager("--watch-namespaces", "watched-one,watched-two")
	m.waitUntilReady()
	m.until(func() error { return errors.Join(c.works(one), c.works(two)) })
	second := c.replay("watched-one", "second") // younger than the other one
	m.until(func() error { return c.works(second) })
	if err := c.works(other); !errors.Is(err, errNotYet) {
		c.t.Errorf("an object in a namespace that is not watched: %v", err)
	}
	c.ends(m)
}

// A leader that is told to end hands over at once; nobody works meanwhile.
func (c *cluster) handOver() {
	c.namespace("hand-over")
	first := c.startManager("--leader-elect", "--leader-election-namespace", "hand-over", "--lease-duration", "1m")
	first.until(first.leads)
	second := c.startManager("--leader-elect", "--leader-election-namespace", "hand-over", "--lease-duration", "1m")
	second.waitUntilReady() // it stands by
	if second.leads() == nil {
		c.t.Error("there are two leaders")
	}
	began := time.Now()
	c.ends(first)
	second.until(second.leads)
	if took := time.Since(began); took > 40*time.Second {
		c.t.Errorf("the lease was not given back: it took %s", took)
	}
	second.until(func() error { return c.works(c.get("hand-over", "first")) })
	c.ends(second)
	lease := &coordinationv1.Lease{}
	if err := c.client.Get(c.t.Context(), client.ObjectKey{Namespace: "hand-over", Name: leaseName}, lease); err != nil {
		c.t.Fatal(err)
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		c.t.Errorf("%s has kept the lease", *holder)
	}
}

// A leader that vanishes is replaced when its lease is over.
func (c *cluster) takeOver() {
	c.namespace("take-over")
	flags := []string{"--leader-elect", "--leader-election-namespace", "take-over", "--lease-duration", "3s"}
	first := c.startManager(flags...)
	first.until(first.leads)
	first.until(func() error { return c.works(c.get("take-over", "first")) })
	second := c.startManager(flags...)
	second.waitUntilReady()
	first.Kill()
	later := c.replay("take-over", "later")
	second.until(second.leads)
	second.until(func() error { return c.works(later) })
	c.ends(second)
}

func (c *cluster) get(namespace, name string) *v1alpha1.EventReplay {
	return &v1alpha1.EventReplay{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// A second signal ends a manager that takes its time.
func (c *cluster) interrupted() {
	m := c.startManager()
	m.waitUntilReady()
	m.Signal(syscall.SIGTERM)
	m.Signal(syscall.SIGTERM)
	select {
	case <-m.Ended():
	case <-time.After(15 * time.Second):
		c.t.Error("it has not ended")
	}
}

func (c *cluster) noAPIServer() {
	config := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
		"clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:%d"}}], "users": [{"name": "a", "user": {"token": "geheim"}}]}`, rig.FreePort(c.t))
	f := rig.Run(c.t, "", "manager", "--image", "ackrail:test", "--kubeconfig", writeFile(c.t, c.t.TempDir(), "kubeconfig", config), "--leader-elect=false",
		"--health-probe-bind-address", "0", "--metrics-bind-address", "0")
	last := f.Stderr[strings.LastIndex(strings.TrimSuffix(f.Stderr, "\n"), "\n")+1:]
	if f.Code != 1 || !strings.HasPrefix(last, "Error: ") || !strings.Contains(last, "connection refused") || strings.Contains(f.Stderr, "geheim") {
		c.t.Errorf("it ended with code %d and said %s", f.Code, f.Stderr)
	}
}

// A manager that may not see its objects is not ready, and says why.
func (c *cluster) withoutRights() {
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rights"}})
	weak := c.writeKubeconfig(&clientcmdapi.AuthInfo{Token: c.token("rights", "manager")})
	m := c.startManager("--kubeconfig", weak)
	m.until(func() error {
		if !strings.Contains(m.Output(), `cannot list resource \"webhookendpoints\"`) {
			return errNotYet
		}
		return nil
	})
	if err := m.probe("/readyz"); err == nil {
		c.t.Error("it is ready")
	}
	if err := m.probe("/healthz"); err != nil {
		c.t.Error(err)
	}
	if code := m.Stop(); code != 0 {
		c.t.Errorf("it ended with code %d", code)
	}
}

// Secrets are read one by one, when one is needed: they are no business of the
// manager's otherwise, and it needs no right to list them.
func (c *cluster) secretsAreNotWatched() {
	replay := c.namespace("secrets")
	c.create(endpoint("secrets", "nothing"))
	m := c.startManager("--watch-namespaces", "secrets")
	m.until(func() error { return c.works(replay) })
	m.until(func() error {
		e := &v1alpha1.WebhookEndpoint{}
		if err := c.client.Get(c.t.Context(), client.ObjectKey{Namespace: "secrets", Name: "nothing"}, e); err != nil {
			return err
		}
		if s := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionSecretsResolved); s == nil || s.Reason != v1alpha1.ReasonSecretNotFound {
			return errNotYet
		}
		return nil
	})
	if out := m.Output(); strings.Contains(out, "*v1.Secret") {
		c.t.Errorf("it watches Secrets:\n%s", out)
	}
	c.ends(m)
}

// The database that an endpoint's Secret names is migrated and counted in.
func (c *cluster) database() {
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "database"}})
	url := testenv.Schema(c.t)
	c.create(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "database", Name: "ackrail-database"}, StringData: map[string]string{"uri": url + "\n"}},
		endpoint("database", "github"))
	m := c.startManager("--watch-namespaces", "database")
	m.until(func() error {
		e := &v1alpha1.WebhookEndpoint{}
		if err := c.client.Get(c.t.Context(), client.ObjectKey{Namespace: "database", Name: "github"}, e); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(e.Status.Conditions, v1alpha1.ConditionStoreReady) || e.Status.Deliveries == nil {
			return fmt.Errorf("not yet: %+v", e.Status)
		}
		return nil
	})
	db, err := store.Open(url, store.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	defer db.Close()
	if err := db.Ping(c.t.Context()); err != nil {
		c.t.Error(err)
	}
	if strings.Contains(m.Output(), url) {
		c.t.Error("the log has the database's URL")
	}
	c.ends(m)
}

// endpoint is one that names Secrets which are not there.
func endpoint(namespace, name string) *v1alpha1.WebhookEndpoint {
	return &v1alpha1.WebhookEndpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.WebhookEndpointSpec{
			Source:       v1alpha1.Source{Provider: v1alpha1.ProviderGitHub, SecretRefs: []v1alpha1.SecretKeyRef{{Name: "webhook", Key: "secret"}}},
			Destinations: []v1alpha1.Destination{{Name: "handler", HTTP: v1alpha1.HTTPDestination{URL: "http://handler/"}}},
		},
	}
}
