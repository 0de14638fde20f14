package resources

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// Args are what an endpoint's children depend on.
type Args struct {
	// Endpoint is complete with its defaults, and has its UID.
	Endpoint *v1alpha1.WebhookEndpoint
	// Image that the pods run.
	Image string
	// DatabasePorts are where the database listens, as DatabasePorts returns
	// them. Empty: on any port.
	DatabasePorts []int32
}

// Children are what serves an endpoint.
type Children struct {
	ServiceAccount *corev1ac.ServiceAccountApplyConfiguration
	ConfigMap      *corev1ac.ConfigMapApplyConfiguration
	Service        *corev1ac.ServiceApplyConfiguration
	Ingress        Workload
	Worker         Workload
}

// Workload is the pods of one component, and what protects them.
type Workload struct {
	NetworkPolicy       *networkingv1ac.NetworkPolicyApplyConfiguration
	PodDisruptionBudget *policyv1ac.PodDisruptionBudgetApplyConfiguration
	Deployment          *appsv1ac.DeploymentApplyConfiguration
}

// Build renders the children of an endpoint. It fails only for an endpoint
// that the rules of its definition would have refused.
func Build(a *Args) (*Children, error) {
	config, err := pipelineJSON(a.Endpoint)
	if err != nil {
		return nil, err
	}
	return &Children{
		ServiceAccount: serviceAccount(a.Endpoint),
		ConfigMap:      configMap(a.Endpoint, config),
		Service:        service(a.Endpoint),
		Ingress: Workload{
			NetworkPolicy:       ingressNetworkPolicy(a.Endpoint, a.DatabasePorts),
			PodDisruptionBudget: podDisruptionBudget(a.Endpoint, ComponentIngress),
			Deployment:          ingressDeployment(a, hash(config)),
		},
		Worker: Workload{
			NetworkPolicy:       workerNetworkPolicy(a.Endpoint),
			PodDisruptionBudget: podDisruptionBudget(a.Endpoint, ComponentWorker),
			Deployment:          workerDeployment(a, hash(config)),
		},
	}, nil
}

func pipelineJSON(e *v1alpha1.WebhookEndpoint) (string, error) {
	config := Pipeline([]v1alpha1.WebhookEndpoint{*e})
	if err := config.Validate(); err != nil {
		return "", fmt.Errorf("rendering the pipeline: %w", err)
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // people read it, with the '&' of URLs
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(config); err != nil {
		return "", fmt.Errorf("rendering the pipeline: %w", err)
	}
	return text.String(), nil
}

// hash is short, since it only has to differ from the previous one.
func hash(config string) string {
	sum := sha256.Sum256([]byte(config))
	return hex.EncodeToString(sum[:8])
}

func owner(e *v1alpha1.WebhookEndpoint) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(v1alpha1.GroupVersion.String()).
		WithKind(v1alpha1.KindWebhookEndpoint).
		WithName(e.Name).
		WithUID(e.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
}

// serviceAccount gives the pods an identity without rights and without a
// token. Users may annotate it, for a database that takes such identities.
func serviceAccount(e *v1alpha1.WebhookEndpoint) *corev1ac.ServiceAccountApplyConfiguration {
	return corev1ac.ServiceAccount(PipelineName(e.Name), e.Namespace).
		WithLabels(labels(e)).
		WithOwnerReferences(owner(e)).
		WithAutomountServiceAccountToken(false)
}

func configMap(e *v1alpha1.WebhookEndpoint, config string) *corev1ac.ConfigMapApplyConfiguration {
	return corev1ac.ConfigMap(PipelineName(e.Name), e.Namespace).
		WithLabels(labels(e)).
		WithOwnerReferences(owner(e)).
		WithData(map[string]string{configFile: config})
}

func service(e *v1alpha1.WebhookEndpoint) *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service(Name(e.Name, ComponentIngress), e.Namespace).
		WithLabels(componentLabels(e, ComponentIngress)).
		WithOwnerReferences(owner(e)).
		WithSpec(corev1ac.ServiceSpec().
			WithSelector(selector(e, ComponentIngress)).
			WithPorts(corev1ac.ServicePort().
				WithName(portHTTP).
				WithProtocol("TCP").
				WithAppProtocol("http").
				WithPort(80).
				WithTargetPort(intstr.FromString(portHTTP))))
}

// podDisruptionBudget lets one pod at a time be evicted: a node can always be
// drained, also where there is a single pod, or one that does not start.
func podDisruptionBudget(e *v1alpha1.WebhookEndpoint, component Component) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	return policyv1ac.PodDisruptionBudget(Name(e.Name, component), e.Namespace).
		WithLabels(componentLabels(e, component)).
		WithOwnerReferences(owner(e)).
		WithSpec(policyv1ac.PodDisruptionBudgetSpec().
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(selector(e, component))).
			WithMaxUnavailable(intstr.FromInt32(1)).
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow))
}
