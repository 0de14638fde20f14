package webhookendpoint

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/databases"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/resources"
	"github.com/ackrail/ackrail/internal/testenv"
	"github.com/ackrail/ackrail/internal/testenv/apiserver"
)

const (
	patience = 20 * time.Second
	poll     = 20 * time.Millisecond
	image    = "registry.example.com/ackrail:v1"
)

// world is what a spec has to itself: a namespace, a database, a manager that
// sees only that namespace, and a record of what the manager writes.
type world struct {
	namespace string
	database  string
	writes    *writes
	passes    *passes
	stop      func()
}

var w *world

var _ = BeforeEach(func(ctx SpecContext) {
	namespace, err := apiserver.Namespace(ctx, admin)
	Expect(err).NotTo(HaveOccurred())
	w = &world{namespace: namespace, database: testenv.Schema(GinkgoTB()), writes: &writes{}}
	stores := databases.New(slog.New(slog.NewJSONHandler(GinkgoWriter, nil)))
	DeferCleanup(stores.Close)
	w.passes = &passes{Stores: stores}
	w.start(image)
	DeferCleanup(func() { w.stop() })
})

// After each spec, whatever it was about, every endpoint comes to rest with a
// status that keeps the contract.
var _ = AfterEach(func(ctx SpecContext) {
	if CurrentSpecReport().Failed() {
		return
	}
	Eventually(ctx, func() error {
		var list v1alpha1.WebhookEndpointList
		if err := admin.List(ctx, &list, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			e := &list.Items[i]
			if !e.DeletionTimestamp.IsZero() {
				continue
			}
			if err := contract.Check(e.Status.Conditions, e.Generation); err != nil {
				return fmt.Errorf("%s: %w", e.Name, err)
			}
			if e.Status.ObservedGeneration != e.Generation {
				return fmt.Errorf("%s: the status is of generation %d, the object of %d", e.Name, e.Status.ObservedGeneration, e.Generation)
			}
		}
		return nil
	}).WithTimeout(patience).WithPolling(poll).Should(Succeed())
})

// start starts a manager whose pods run an image, after the one before.
func (w *world) start(image string) {
	if w.stop != nil {
		w.stop()
	}
	restConfig := rest.CopyConfig(managerAccess)
	restConfig.Wrap(func(next http.RoundTripper) http.RoundTripper { return &recording{next, w.writes} })
	skip := true
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:     scheme,
		Logger:     logr.FromSlogHandler(slog.NewJSONHandler(GinkgoWriter, nil)),
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{ByObject: ByObject(), DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	Expect(err).NotTo(HaveOccurred())
	r := &Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Stores: w.passes,
		Recorder: mgr.GetEventRecorder("ackrail-test"), Image: image,
		refresh: 100 * time.Millisecond, recheck: 100 * time.Millisecond,
	}
	Expect(r.SetupWithManager(mgr, Options{})).To(Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		Eventually(done).WithTimeout(patience).Should(Receive(BeNil()))
	})
}

// passes counts how often the controller has looked at any endpoint.
type passes struct {
	Stores
	n atomic.Int64
}

func (p *passes) Check(url string) error {
	p.n.Add(1)
	return p.Stores.Check(url)
}

// writes are the requests of the manager that change something.
type writes struct {
	mu  sync.Mutex
	all []string
}

func (w *writes) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.all...)
}

type recording struct {
	next   http.RoundTripper
	writes *writes
}

func (r *recording) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		r.writes.mu.Lock()
		r.writes.all = append(r.writes.all, req.Method+" "+req.URL.Path)
		r.writes.mu.Unlock()
	}
	return r.next.RoundTrip(req)
}

// expectNoWrites expects that the controller, once it has come to rest, looks
// several times more and writes nothing.
func (w *world) expectNoWrites(ctx SpecContext) {
	GinkgoHelper()
	w.awaitPasses(ctx, 6)
	before := w.writes.list()
	w.awaitPasses(ctx, 5)
	Expect(w.writes.list()[len(before):]).To(BeEmpty())
}

func (w *world) awaitPasses(ctx SpecContext, n int64) {
	GinkgoHelper()
	from := w.passes.n.Load()
	Eventually(ctx, w.passes.n.Load).WithTimeout(patience).WithPolling(poll).Should(BeNumerically(">=", from+n))
}

// endpoint is one that says no more than it must, with changes.
func (w *world) endpoint(name string, change ...func(*v1alpha1.WebhookEndpoint)) *v1alpha1.WebhookEndpoint {
	e := &v1alpha1.WebhookEndpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: v1alpha1.WebhookEndpointSpec{
			Source: v1alpha1.Source{
				Provider:   v1alpha1.ProviderGitHub,
				SecretRefs: []v1alpha1.SecretKeyRef{{Name: "github-webhook", Key: "secret"}},
			},
			Destinations: []v1alpha1.Destination{{Name: "handler", HTTP: v1alpha1.HTTPDestination{URL: "http://handler:8080/events"}}},
		},
	}
	for _, f := range change {
		f(e)
	}
	return e
}

func (w *world) apply(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, obj := range objects {
		Expect(admin.Create(ctx, obj)).To(Succeed())
	}
}

func (w *world) secret(name, key, value string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		StringData: map[string]string{key: value},
	}
}

// secrets are the ones that the minimal endpoint needs.
func (w *world) secrets() []client.Object {
	return []client.Object{
		w.secret("ackrail-database", "uri", w.database),
		w.secret("github-webhook", "secret", "s3cr3t"),
	}
}

// update changes an object as a user would, with what it is at the moment.
func update[T client.Object](ctx context.Context, obj T, change func(T)) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		change(obj)
		return admin.Update(ctx, obj, client.FieldOwner("kubectl-edit"))
	}).WithTimeout(patience).WithPolling(poll).Should(Succeed())
}

func (w *world) get(ctx context.Context, name string, obj client.Object) error {
	return admin.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, obj)
}

func (w *world) deployment(ctx context.Context, endpoint string, c resources.Component) *appsv1.Deployment {
	GinkgoHelper()
	d := &appsv1.Deployment{}
	Eventually(ctx, func() error { return w.get(ctx, resources.Name(endpoint, c), d) }).
		WithTimeout(patience).WithPolling(poll).Should(Succeed())
	return d
}

// rollOut does for both Deployments of an endpoint what the controllers of
// Kubernetes and the kubelets do.
func (w *world) rollOut(ctx context.Context, endpoint string) {
	GinkgoHelper()
	for _, c := range []resources.Component{resources.ComponentIngress, resources.ComponentWorker} {
		w.report(ctx, endpoint, c, func(d *appsv1.Deployment) {
			n := *d.Spec.Replicas
			d.Status = appsv1.DeploymentStatus{
				ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
				Conditions: []appsv1.DeploymentCondition{{
					Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable",
				}},
			}
		})
	}
}

// report changes the status of a Deployment.
func (w *world) report(ctx context.Context, endpoint string, c resources.Component, change func(*appsv1.Deployment)) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		d := &appsv1.Deployment{}
		if err := w.get(ctx, resources.Name(endpoint, c), d); err != nil {
			return err
		}
		change(d)
		return admin.Status().Update(ctx, d)
	}).WithTimeout(patience).WithPolling(poll).Should(Succeed())
}

// conditionOf waits for a condition with a status and a reason, as text.
func (w *world) conditionOf(ctx context.Context, endpoint, kind string) AsyncAssertion {
	GinkgoHelper()
	return Eventually(ctx, func() string {
		e := &v1alpha1.WebhookEndpoint{}
		if err := w.get(ctx, endpoint, e); err != nil {
			return err.Error()
		}
		c := meta.FindStatusCondition(e.Status.Conditions, kind)
		if c == nil || c.ObservedGeneration != e.Generation {
			return "none"
		}
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}).WithTimeout(patience).WithPolling(poll)
}

// expectReady brings an endpoint up.
func (w *world) expectReady(ctx context.Context, endpoint string) {
	GinkgoHelper()
	// Not before the spec as it is now has been applied.
	w.conditionOf(ctx, endpoint, v1alpha1.ConditionReady).Should(Or(HavePrefix("False RollingOut"), HavePrefix("True")))
	w.rollOut(ctx, endpoint)
	w.conditionOf(ctx, endpoint, v1alpha1.ConditionReady).Should(HavePrefix("True"))
}

// events returns the events of an endpoint, as "Type Reason: note".
func (w *world) events(ctx context.Context, endpoint string) func() []string {
	return func() []string {
		var list eventsv1.EventList
		if err := admin.List(ctx, &list, client.InNamespace(w.namespace)); err != nil {
			return []string{err.Error()}
		}
		all := []string{}
		for _, e := range list.Items {
			if e.Regarding.Name == endpoint && e.Regarding.Kind == v1alpha1.KindWebhookEndpoint {
				all = append(all, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Note))
			}
		}
		return all
	}
}

// closedPort is where nothing listens.
func closedPort() int {
	GinkgoHelper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	Expect(l.Close()).To(Succeed())
	return l.Addr().(*net.TCPAddr).Port
}

func submission(namespace, endpoint, key string) *event.Event {
	GinkgoHelper()
	id, err := event.NewID()
	Expect(err).NotTo(HaveOccurred())
	return &event.Event{
		ID: id, Endpoint: event.EndpointRef{Namespace: namespace, Name: endpoint}, Key: key,
		ContentType: "application/json", Body: []byte("{}"),
	}
}
