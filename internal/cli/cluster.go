package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// requestTimeout bounds one request to an API server.
const requestTimeout = 30 * time.Second

// clusterFlags say which cluster and namespace, as kubectl's do.
type clusterFlags struct {
	kubeconfig, context, namespace string
}

func (f *clusterFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` that says how to reach the cluster (default: $KUBECONFIG, or ~/.kube/config)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig (default: its current one)")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace (default: the context's)")
}

// load reads the kubeconfig, which may be missing as long as only the
// namespace is asked for.
func (f *clusterFlags) load() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	rules.WarnIfAllMissing = false // what needs a cluster says so itself
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	overrides.Context.Namespace = f.namespace
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// explain says which flag an error of loading is about.
func (f *clusterFlags) explain(err error) error {
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	switch {
	case clientcmd.IsContextNotFound(err):
		return fmt.Errorf("--context: the kubeconfig has no context %q", f.context)
	case clientcmd.IsEmptyConfig(err) && f.kubeconfig != "":
		return errors.New("--kubeconfig: has no cluster in it")
	case clientcmd.IsEmptyConfig(err):
		return errors.New("no cluster: set --kubeconfig or $KUBECONFIG")
	case f.kubeconfig != "":
		return fmt.Errorf("--kubeconfig: %s", text)
	}
	return fmt.Errorf("finding the cluster: %s", text)
}

// resolveNamespace returns the namespace to work in.
func (f *clusterFlags) resolveNamespace() (string, error) {
	namespace, _, err := f.load().Namespace()
	if clientcmd.IsEmptyConfig(err) && f.kubeconfig == "" {
		return metav1.NamespaceDefault, nil
	}
	if err != nil {
		return "", f.explain(err)
	}
	return namespace, nil
}

// connect returns a client for EventReplays.
func (f *clusterFlags) connect(cmd *cobra.Command) (client.Client, error) {
	config, err := f.load().ClientConfig()
	if err != nil {
		return nil, f.explain(err)
	}
	config.UserAgent = "ackrail/" + version
	config.Timeout = requestTimeout
	config.QPS = -1 // what asks again and again takes a pause itself
	config.WarningHandler = rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{Deduplicate: true})
	// The libraries' own logs say nothing that errors do not.
	useLogger(slog.New(slog.DiscardHandler))
	// One kind needs no discovery.
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion})
	mapper.AddSpecific(v1alpha1.GroupVersion.WithKind(v1alpha1.KindEventReplay), v1alpha1.GroupVersion.WithResource("eventreplays"),
		v1alpha1.GroupVersion.WithResource("eventreplay"), meta.RESTScopeNamespace)
	c, err := client.New(config, client.Options{
		Scheme: newScheme(), Mapper: mapper,
		// A criterion that an older cluster does not know must not get lost:
		// the replay would take more than was asked for.
		FieldValidation: metav1.FieldValidationStrict,
	})
	if err != nil {
		return nil, f.explain(err)
	}
	return c, nil
}
