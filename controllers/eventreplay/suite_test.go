package eventreplay

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/databases"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
	"github.com/ackrail/ackrail/internal/testenv/apiserver"
)

func TestMain(m *testing.M) { apiserver.Main(m) }

func TestController(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	SetDefaultConsistentlyDuration(2500 * time.Millisecond)
	RunSpecs(t, "EventReplay controller")
}

// managerUser has the rights of config/rbac, which are generated from markers
// such as those of this package, and no others.
const managerUser = "system:serviceaccount:ackrail-system:manager"

var (
	scheme = runtime.NewScheme()
	// access is an administrator's, managerAccess a manager's.
	access, managerAccess *rest.Config
)

var _ = BeforeSuite(func(ctx SpecContext) {
	log.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(GinkgoWriter, nil)))
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	server, err := apiserver.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Stop)
	access = server.Config
	managerAccess, err = server.Grant(ctx, "../../config/rbac/role.yaml", managerUser)
	Expect(err).NotTo(HaveOccurred())
})

// world is what one spec has for itself: a namespace with an endpoint, its
// database, and a manager.
type world struct {
	client.Client
	namespace string
	// database is what the Secret leads to, store the way around it.
	database *testenv.Proxy
	store    *store.Store
	stop     func()
	// writes counts what the managers ask the API server to change of
	// EventReplays.
	writes atomic.Int64
}

// roundTripper is a function as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// counted is a manager's access whose writes the world counts.
func (w *world) counted() *rest.Config {
	c := rest.CopyConfig(managerAccess)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/eventreplays/") {
				w.writes.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	return c
}

const endpointName = "github"

func newWorld(ctx context.Context) *world {
	GinkgoHelper()
	url := testenv.Schema(GinkgoTB())
	Expect(store.Migrate(ctx, url, GinkgoTB().Logf)).To(Succeed())
	s, err := store.Open(url, store.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.Close)
	c, err := client.New(access, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	namespace, err := apiserver.Namespace(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	w := &world{Client: c, namespace: namespace, database: testenv.NewProxy(GinkgoTB(), url), store: s}
	w.create(ctx, w.secret(), w.endpoint())
	w.start()
	return w
}

// start starts a manager, like one that takes over from another.
func (w *world) start() { w.startWith(func(s Stores, _ func()) Stores { return s }) }

// startWith starts a manager whose databases are reached through what wrap
// makes of them. kill ends the manager at once: nothing is written any more.
func (w *world) startWith(wrap func(s Stores, kill func()) Stores) {
	GinkgoHelper()
	mgr, err := ctrl.NewManager(w.counted(), ctrl.Options{
		Scheme:     scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	Expect(err).NotTo(HaveOccurred())
	stores := databases.New(slog.New(slog.NewTextHandler(io.Discard, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	r := New(mgr.GetClient(), mgr.GetAPIReader(), wrap(stores, cancel), mgr.GetEventRecorder("ackrail"))
	Expect(r.SetupWithManager(ctx, mgr)).To(Succeed())
	var running sync.WaitGroup
	running.Go(func() {
		defer GinkgoRecover()
		Expect(mgr.Start(ctx)).To(Succeed())
	})
	w.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		stores.Close()
	})
	DeferCleanup(w.stop)
}

func (w *world) create(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, obj := range objects {
		Expect(w.Create(ctx, obj)).To(Succeed())
	}
}

func (w *world) secret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "ackrail-database"},
		StringData: map[string]string{"uri": w.database.URL() + "\n"},
	}
}

func (w *world) endpoint() *v1alpha1.WebhookEndpoint {
	url := "http://127.0.0.1:9/events"
	return &v1alpha1.WebhookEndpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: endpointName},
		Spec: v1alpha1.WebhookEndpointSpec{
			Source:       v1alpha1.Source{Provider: "GitHub", SecretRefs: []v1alpha1.SecretKeyRef{{Name: "github", Key: "secret"}}},
			Destinations: []v1alpha1.Destination{{Name: "handler", HTTP: v1alpha1.HTTPDestination{URL: url}}},
		},
	}
}

// destinations replaces the endpoint's destinations.
func (w *world) destinations(ctx context.Context, names ...string) {
	GinkgoHelper()
	endpoint := w.endpoint()
	Expect(w.Get(ctx, client.ObjectKeyFromObject(endpoint), endpoint)).To(Succeed())
	before := endpoint.DeepCopy()
	like := endpoint.Spec.Destinations[0]
	endpoint.Spec.Destinations = nil
	for _, name := range names {
		like.Name = name
		endpoint.Spec.Destinations = append(endpoint.Spec.Destinations, like)
	}
	Expect(w.Patch(ctx, endpoint, client.MergeFrom(before))).To(Succeed())
}

// replay makes an EventReplay of all that is dead, unless changed.
func (w *world) replay(ctx context.Context, name string, change func(*v1alpha1.EventReplaySpec)) *v1alpha1.EventReplay {
	GinkgoHelper()
	r := &v1alpha1.EventReplay{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: v1alpha1.EventReplaySpec{
			EndpointRef: v1alpha1.EndpointRef{Name: endpointName},
			Selector:    v1alpha1.ReplaySelector{Match: v1alpha1.ReplayMatchAll},
		},
	}
	if change != nil {
		change(&r.Spec)
	}
	w.create(ctx, r)
	return r
}

// suspend changes spec.suspend as kubectl patch does.
func (w *world) suspend(ctx context.Context, r *v1alpha1.EventReplay, value bool) {
	GinkgoHelper()
	patch := []byte(`{"spec":{"suspend":false}}`)
	if value {
		patch = []byte(`{"spec":{"suspend":true}}`)
	}
	Expect(w.Patch(ctx, r, client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
}

// now reads a replay and returns it, checked.
func (w *world) now(ctx context.Context, r *v1alpha1.EventReplay) *v1alpha1.EventReplay {
	GinkgoHelper()
	Expect(w.Get(ctx, client.ObjectKeyFromObject(r), r)).To(Succeed())
	if len(r.Status.Conditions) > 0 {
		checkInvariants(GinkgoTB().Errorf, r)
	}
	return r
}

// says matches a replay whose status has the lines among its conditions.
func (w *world) says(ctx context.Context, r *v1alpha1.EventReplay, lines ...any) {
	GinkgoHelper()
	Eventually(func() []string { return conditionLines(w.now(ctx, r)) }).Should(ContainElements(lines...))
	Expect(r.Status.ObservedGeneration).To(Equal(r.Generation))
}

// events returns the events of a replay, oldest first.
func (w *world) events(ctx context.Context, r *v1alpha1.EventReplay) []string {
	GinkgoHelper()
	var list corev1.EventList
	Expect(w.List(ctx, &list, client.InNamespace(w.namespace))).To(Succeed())
	var lines []string
	for _, e := range list.Items {
		if e.InvolvedObject.UID == r.UID {
			lines = append(lines, e.Type+" "+e.Reason+": "+e.Message)
		}
	}
	return lines
}

func (w *world) destination() event.DestinationRef {
	return event.DestinationRef{Endpoint: event.EndpointRef{Namespace: w.namespace, Name: endpointName}, Name: "handler"}
}

// dead makes n dead letters of a type and returns their events, oldest first.
func (w *world) dead(ctx context.Context, n int, kind string) []event.ID {
	GinkgoHelper()
	q := store.NewEnqueuer(w.store, store.EnqueuerOptions{})
	defer q.Close()
	ids, errs := make([]event.ID, n), make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		id, err := event.NewID()
		Expect(err).NotTo(HaveOccurred())
		ids[i] = id
		calls.Go(func() {
			_, errs[i] = q.Enqueue(ctx, store.Submission{
				Event:        &event.Event{ID: id, Endpoint: w.destination().Endpoint, Key: id.String(), Type: kind, Body: []byte("{}")},
				Destinations: []string{"handler"}, KeepEvent: time.Hour, KeepKey: time.Hour,
			})
		})
	}
	calls.Wait()
	for _, err := range errs {
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(w.deliver(ctx, event.VerdictDead)).To(HaveLen(n))
	return ids
}

// deliver ends all that is due with one verdict and returns the events.
func (w *world) deliver(ctx context.Context, v event.Verdict) []event.ID {
	GinkgoHelper()
	return w.deliverTo(ctx, w.destination(), v)
}

func (w *world) deliverTo(ctx context.Context, to event.DestinationRef, v event.Verdict) (delivered []event.ID) {
	GinkgoHelper()
	for {
		claims, err := w.store.Claim(ctx, "worker", []store.Want{{
			Destination: to, Most: 200, MostBytes: 1 << 20, Lease: time.Minute, MaxAttempts: 3, KeepLedger: time.Hour,
		}})
		Expect(err).NotTo(HaveOccurred())
		if len(claims) == 0 {
			return delivered
		}
		var outcomes []store.Outcome
		for _, c := range claims {
			o := store.Outcome{Claim: c, Verdict: v, Status: 200, KeepLedger: time.Hour, KeepEnded: time.Hour}
			if v == event.VerdictDead {
				o.Status, o.Reason = 410, event.ReasonPermanentStatus
			}
			outcomes = append(outcomes, o)
			delivered = append(delivered, c.Event.ID)
		}
		took, err := w.store.Complete(ctx, outcomes)
		Expect(err).NotTo(HaveOccurred())
		Expect(took).NotTo(ContainElement(false))
	}
}

// runs returns how many deliveries there are in each run.
func (w *world) runs(ctx context.Context) map[int]int {
	GinkgoHelper()
	records, err := w.store.ListDeliveries(ctx, store.Filter{Limit: 10_000})
	Expect(err).NotTo(HaveOccurred())
	n := map[int]int{}
	for _, r := range records {
		n[r.Key.Run]++
	}
	return n
}
