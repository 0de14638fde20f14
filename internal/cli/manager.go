package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/controllers/eventreplay"
	"github.com/ackrail/ackrail/controllers/webhookendpoint"
	"github.com/ackrail/ackrail/internal/databases"
	"github.com/ackrail/ackrail/internal/ops"
)

const (
	// imageEnv may hold the image of the pods.
	imageEnv = "ACKRAIL_IMAGE"
	// leaseName is the Lease by which managers agree on a leader.
	leaseName = "ackrail-manager.ackrail.io"
	// namespaceFile holds a pod's own namespace.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	// shutdownTimeout bounds how long reconciliations under way may take to
	// end, which is less than a pod's grace period.
	shutdownTimeout = 20 * time.Second
)

// managerFlags are the flags of ackrail manager.
type managerFlags struct {
	logs            logFlags
	image           string
	kubeconfig      string
	namespaces      []string
	leaderElect     bool
	leaderNamespace string
	leaseDuration   time.Duration
	metricsAddress  string
	metricsSecure   bool
	metricsCertDir  string
	healthAddress   string
	pprofAddress    string
	reconciles      int
	qps             float32
	burst           int
}

func newManager() *cobra.Command {
	var f managerFlags
	cmd := &cobra.Command{
		Use:   "manager --image IMAGE",
		Short: "Run the controllers of WebhookEndpoint and EventReplay",
		Long: `Run the controllers that turn WebhookEndpoint and EventReplay objects of a
Kubernetes cluster into running pipelines and replays. Of several managers one
leads and works, the others stand by.`,
		Example: `  ackrail manager --image docker.io/ackrail/ackrail:v1
  ackrail manager --image ackrail:dev --kubeconfig a.conf`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.register(cmd)
	return cmd
}

func (f *managerFlags) register(cmd *cobra.Command) {
	f.logs.register(cmd, "json")
	flags := cmd.Flags()
	flags.StringVar(&f.image, "image", "", "image that ingress and worker pods run (default: $"+imageEnv+")")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` that says how to reach the cluster (default: $KUBECONFIG, or the pod's own cluster)")
	flags.StringSliceVar(&f.namespaces, "watch-namespaces", nil, "namespaces whose objects are served, separated by commas (default: all)")
	flags.BoolVar(&f.leaderElect, "leader-elect", true, "work only while no other manager of this cluster does")
	flags.StringVar(&f.leaderNamespace, "leader-election-namespace", "", "namespace of the Lease "+leaseName+" (default: the pod's own)")
	flags.DurationVar(&f.leaseDuration, "lease-duration", 15*time.Second, "how long a leader that has vanished keeps the others waiting")
	flags.StringVar(&f.metricsAddress, "metrics-bind-address", ":8443", "address of /metrics, 0 for none")
	flags.BoolVar(&f.metricsSecure, "metrics-secure", true, "serve metrics over TLS to whom the cluster allows to get /metrics; false: to everybody, over HTTP")
	flags.StringVar(&f.metricsCertDir, "metrics-cert-dir", "", "`folder` with tls.crt and tls.key for metrics, read again when they change (default: a self-signed certificate)")
	flags.StringVar(&f.healthAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz, 0 for none")
	flags.StringVar(&f.pprofAddress, "pprof-bind-address", "0", "address of Go's profiles, 0 for none; they are not protected")
	flags.IntVar(&f.reconciles, "max-concurrent-reconciles", webhookendpoint.DefaultConcurrency, "how many endpoints are worked on at once")
	flags.Float32Var(&f.qps, "kube-api-qps", 50, "requests per second to the API server, on average; -1 for no bound")
	flags.IntVar(&f.burst, "kube-api-burst", 100, "requests to the API server at once")
}

func (f *managerFlags) run(cmd *cobra.Command) error {
	log, err := f.logs.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if err := f.complete(); err != nil {
		return err
	}
	restConfig, err := f.restConfig()
	if err != nil {
		return err
	}
	useLogger(log)
	limitMemory(managerMemory, 0)
	mgr, err := ctrl.NewManager(restConfig, f.options(log))
	if err != nil {
		return fmt.Errorf("preparing the manager: %w", err)
	}
	if err := metrics.Registry.Register(ops.BuildInfo(version)); err != nil {
		return fmt.Errorf("registering the build's metric: %w", err)
	}
	stores := databases.New(log)
	defer stores.Close()
	synced, err := f.setUp(cmd.Context(), mgr, stores)
	if err != nil {
		if meta.IsNoMatchError(err) {
			return fmt.Errorf("%w: install the CRDs of config/crd first", err)
		}
		return err
	}
	log.Info("Manager started", "version", version, "namespaces", describeNamespaces(f.namespaces))
	if err := runManager(cmd.Context(), mgr, synced); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	log.Info("Manager stopped")
	return nil
}

// runManager runs a manager until the context ends. While the caches are not
// synced the manager would not notice that, but it does nothing yet either.
func runManager(ctx context.Context, mgr ctrl.Manager, synced syncedSignal) error {
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case <-synced:
		return <-ended
	default:
		return nil
	}
}

// syncedSignal is closed when the caches have synced, which is when a manager
// starts what does not need to lead.
type syncedSignal chan struct{}

// Start implements manager.Runnable.
func (s syncedSignal) Start(context.Context) error {
	close(s)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (syncedSignal) NeedLeaderElection() bool { return false }

// complete takes defaults from the environment and checks what the flags
// cannot check by themselves.
func (f *managerFlags) complete() error {
	if f.image == "" {
		f.image = os.Getenv(imageEnv)
	}
	if f.image == "" {
		return fmt.Errorf("no image: set --image or $%s to the image that pods run", imageEnv)
	}
	for _, name := range f.namespaces {
		if faults := validation.IsDNS1123Label(name); len(faults) > 0 {
			return fmt.Errorf("--watch-namespaces: %q is not the name of a namespace", name)
		}
	}
	if f.reconciles < 1 {
		return fmt.Errorf("--max-concurrent-reconciles: must be at least 1, is %d", f.reconciles)
	}
	if f.burst < 1 {
		return fmt.Errorf("--kube-api-burst: must be at least 1, is %d", f.burst)
	}
	if f.qps == 0 {
		return errors.New("--kube-api-qps: must be greater than 0, or -1 for no bound")
	}
	if f.leaseDuration < 3*time.Second {
		return fmt.Errorf("--lease-duration: must be at least 3s, is %s", f.leaseDuration)
	}
	if err := f.checkCertificate(); err != nil {
		return err
	}
	return f.completeLeaderNamespace()
}

// checkCertificate refuses a folder without a certificate, for which a
// self-signed one would be made.
func (f *managerFlags) checkCertificate() error {
	if f.metricsCertDir == "" {
		return nil
	}
	if !f.metricsSecure {
		return errors.New("--metrics-cert-dir: has no use with --metrics-secure=false")
	}
	_, err := tls.LoadX509KeyPair(filepath.Join(f.metricsCertDir, "tls.crt"), filepath.Join(f.metricsCertDir, "tls.key"))
	if err != nil {
		return fmt.Errorf("--metrics-cert-dir: %w", err)
	}
	return nil
}

func (f *managerFlags) completeLeaderNamespace() error {
	if !f.leaderElect || f.leaderNamespace != "" {
		return nil
	}
	own, err := os.ReadFile(namespaceFile)
	f.leaderNamespace = strings.TrimSpace(string(own))
	if err != nil || f.leaderNamespace == "" {
		return errors.New("--leader-election-namespace: is required outside a cluster, or set --leader-elect=false")
	}
	return nil
}

// restConfig says how to reach the cluster.
func (f *managerFlags) restConfig() (*rest.Config, error) {
	var c *rest.Config
	var err error
	if f.kubeconfig != "" {
		c, err = clientcmd.BuildConfigFromFlags("", f.kubeconfig)
		if clientcmd.IsEmptyConfig(err) {
			err = errors.New("has no cluster in it")
		}
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
	} else if c, err = config.GetConfig(); err != nil {
		if clientcmd.IsEmptyConfig(err) {
			return nil, errors.New("no cluster: set --kubeconfig or $KUBECONFIG, or run the manager in a pod")
		}
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	c.QPS, c.Burst = f.qps, f.burst
	c.UserAgent = "ackrail-manager/" + version
	return c, nil
}

// useLogger has the libraries log as this program does.
func useLogger(log *slog.Logger) {
	l := logr.FromSlogHandler(log.Handler())
	ctrl.SetLogger(l)
	klog.SetLogger(l)
}

// newScheme knows the kinds that the controllers use, and no others.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, networkingv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // two types of one name: a mistake of this program
		}
	}
	return scheme
}

func (f *managerFlags) options(log *slog.Logger) ctrl.Options {
	grace := shutdownTimeout
	// The defaults' proportions: a leader gives up well before the others
	// take over.
	renew, retry := f.leaseDuration*2/3, f.leaseDuration*2/15
	return ctrl.Options{
		Scheme:  newScheme(),
		Logger:  logr.FromSlogHandler(log.Handler()),
		Cache:   f.cacheOptions(),
		Metrics: f.metricsOptions(),
		Client: client.Options{Cache: &client.CacheOptions{
			// Reading them through a cache would list and watch them all.
			DisableFor: []client.Object{&corev1.Secret{}},
		}},
		HealthProbeBindAddress:  f.healthAddress,
		PprofBindAddress:        f.pprofAddress,
		GracefulShutdownTimeout: &grace,

		LeaderElection:          f.leaderElect,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: f.leaderNamespace,
		LeaseDuration:           &f.leaseDuration,
		RenewDeadline:           &renew,
		RetryPeriod:             &retry,
		// The process ends when the manager does.
		LeaderElectionReleaseOnCancel: true,
	}
}

func (f *managerFlags) cacheOptions() cache.Options {
	o := cache.Options{ByObject: webhookendpoint.ByObject()}
	for _, name := range f.namespaces {
		if o.DefaultNamespaces == nil {
			o.DefaultNamespaces = map[string]cache.Config{}
		}
		o.DefaultNamespaces[name] = cache.Config{}
	}
	return o
}

func (f *managerFlags) metricsOptions() metricsserver.Options {
	o := metricsserver.Options{BindAddress: f.metricsAddress, SecureServing: f.metricsSecure, CertDir: f.metricsCertDir}
	if f.metricsSecure {
		o.FilterProvider = filters.WithAuthenticationAndAuthorization
		// HTTP/2 has been the way into more than one denial of service, and a
		// scrape has no use for it.
		o.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}
	}
	return o
}

// setUp adds the controllers and probes to a manager.
func (f *managerFlags) setUp(ctx context.Context, mgr ctrl.Manager, stores *databases.Stores) (syncedSignal, error) {
	recorder := mgr.GetEventRecorder("ackrail")
	endpoints := &webhookendpoint.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Stores: stores, Recorder: recorder, Image: f.image,
	}
	if err := endpoints.SetupWithManager(mgr, webhookendpoint.Options{MaxConcurrentReconciles: f.reconciles}); err != nil {
		return nil, err
	}
	replays := eventreplay.New(mgr.GetClient(), mgr.GetAPIReader(), stores, recorder)
	if err := replays.SetupWithManager(ctx, mgr); err != nil {
		return nil, err
	}
	synced := make(syncedSignal)
	return synced, addProbes(ctx, mgr, synced)
}

// addProbes adds liveness and readiness: a manager is ready when it knows the
// objects that it is there for, whether it leads or not.
func addProbes(ctx context.Context, mgr ctrl.Manager, synced syncedSignal) error {
	for _, kind := range []client.Object{&v1alpha1.WebhookEndpoint{}, &v1alpha1.EventReplay{}} {
		if _, err := mgr.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching objects: %w", err)
		}
	}
	if err := mgr.Add(synced); err != nil {
		return fmt.Errorf("adding the readiness probe: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the liveness probe: %w", err)
	}
	if err := mgr.AddReadyzCheck("caches", func(*http.Request) error {
		select {
		case <-synced:
			return nil
		default:
			return errors.New("the caches are not synced yet")
		}
	}); err != nil {
		return fmt.Errorf("adding the readiness probe: %w", err)
	}
	return nil
}

func describeNamespaces(names []string) string {
	if len(names) == 0 {
		return "all"
	}
	return strings.Join(names, ",")
}
