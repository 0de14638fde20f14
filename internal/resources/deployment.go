package resources

import (
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

const (
	portHTTP    = "http"
	portOps     = "ops"
	httpPort    = 8080
	metricsPort = 9090

	// nonRoot is the user and group that the image runs as.
	nonRoot = 65532

	// progressDeadline is how long new pods may take to become available,
	// pulling the image included, before the rollout counts as failed.
	progressDeadline = 5 * time.Minute

	// drainDelay is how long an ingress goes on taking requests after it was
	// told to end, until every proxy has noticed that it is not ready.
	drainDelay = 5 * time.Second
	// ingressDrain bounds how long requests under way may take to be answered.
	ingressDrain = 20 * time.Second
	// workerDrainMin and workerDrainMax bound how long a worker waits for
	// exchanges under way. What takes longer is cut off and made again by
	// another worker, so that a node can be drained in a foreseeable time.
	workerDrainMin = 10 * time.Second
	workerDrainMax = 5 * time.Minute
	// drainMargin is for recording the last outcomes and for closing the
	// connections to a database that may be away.
	drainMargin = 15 * time.Second
)

// workload is in what the components' Deployments differ.
type workload struct {
	component Component
	replicas  int32
	resources v1alpha1.Resources
	args      []string
	// refs are the Secrets that the component reads.
	refs  []v1alpha1.SecretKeyRef
	ports []*corev1ac.ContainerPortApplyConfiguration
	// grace is the time from SIGTERM to SIGKILL.
	grace time.Duration
}

func ingressDeployment(a *Args, configHash string) *appsv1ac.DeploymentApplyConfiguration {
	e := a.Endpoint
	return deployment(a, configHash, &workload{
		component: ComponentIngress,
		replicas:  e.Spec.Ingress.Replicas,
		resources: e.Spec.Ingress.Resources,
		args: []string{
			"--listen=:" + strconv.Itoa(httpPort),
			"--drain-delay=" + drainDelay.String(),
			"--drain-timeout=" + ingressDrain.String(),
			"--max-inflight-bytes=" + strconv.FormatInt(maxInflightBytes(e), 10),
		},
		refs:  e.Spec.Source.SecretRefs,
		ports: []*corev1ac.ContainerPortApplyConfiguration{containerPort(portHTTP, httpPort), containerPort(portOps, metricsPort)},
		grace: drainDelay + ingressDrain + drainMargin,
	})
}

func workerDeployment(a *Args, configHash string) *appsv1ac.DeploymentApplyConfiguration {
	e := a.Endpoint
	drain := workerDrain(e)
	return deployment(a, configHash, &workload{
		component: ComponentWorker,
		replicas:  e.Spec.Worker.Replicas,
		resources: e.Spec.Worker.Resources,
		args:      []string{"--drain-timeout=" + drain.String()},
		refs:      signingSecretRefs(e),
		ports:     []*corev1ac.ContainerPortApplyConfiguration{containerPort(portOps, metricsPort)},
		grace:     drain + drainMargin,
	})
}

// workerDrain lets the longest exchange finish, within bounds.
func workerDrain(e *v1alpha1.WebhookEndpoint) time.Duration {
	longest := workerDrainMin
	for i := range e.Spec.Destinations {
		longest = max(longest, time.Duration(e.Spec.Destinations[i].HTTP.TimeoutSeconds)*time.Second)
	}
	return min(longest, workerDrainMax)
}

// maxInflightBytes keeps the bodies that an ingress holds at once to a quarter
// of its memory, as it needs as much again to store them. One body always
// fits, whatever the limit.
func maxInflightBytes(e *v1alpha1.WebhookEndpoint) int64 {
	bytes := int64(64 << 20)
	requirements := e.Spec.Ingress.Resources.Requirements()
	if limit := requirements.Limits.Memory(); !limit.IsZero() {
		bytes = min(bytes, limit.Value()/4)
	}
	return max(bytes, int64(e.Spec.Source.MaxBodyBytes))
}

func deployment(a *Args, configHash string, w *workload) *appsv1ac.DeploymentApplyConfiguration {
	e := a.Endpoint
	return appsv1ac.Deployment(Name(e.Name, w.component), e.Namespace).
		WithLabels(componentLabels(e, w.component)).
		WithOwnerReferences(owner(e)).
		WithSpec(appsv1ac.DeploymentSpec().
			WithReplicas(w.replicas).
			WithRevisionHistoryLimit(3).
			WithProgressDeadlineSeconds(int32(progressDeadline / time.Second)).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(selector(e, w.component))).
			// The new pod first, then the old one goes: at no time are
			// there fewer than the spec says.
			WithStrategy(appsv1ac.DeploymentStrategy().
				WithType(appsv1.RollingUpdateDeploymentStrategyType).
				WithRollingUpdate(appsv1ac.RollingUpdateDeployment().
					WithMaxUnavailable(intstr.FromInt32(0)).
					WithMaxSurge(intstr.FromInt32(1)))).
			WithTemplate(corev1ac.PodTemplateSpec().
				WithLabels(componentLabels(e, w.component)).
				WithAnnotations(map[string]string{AnnotationConfigHash: configHash}).
				WithSpec(podSpec(a, w))))
}

func podSpec(a *Args, w *workload) *corev1ac.PodSpecApplyConfiguration {
	e := a.Endpoint
	return corev1ac.PodSpec().
		WithServiceAccountName(PipelineName(e.Name)).
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithNodeSelector(map[string]string{corev1.LabelOSStable: "linux"}).
		WithTerminationGracePeriodSeconds(int64(w.grace / time.Second)).
		WithSecurityContext(corev1ac.PodSecurityContext().
			WithRunAsNonRoot(true).
			WithRunAsUser(nonRoot).
			WithRunAsGroup(nonRoot).
			WithFSGroup(nonRoot).
			WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithTopologySpreadConstraints(corev1ac.TopologySpreadConstraint().
			WithMaxSkew(1).
			WithTopologyKey(corev1.LabelHostname).
			WithWhenUnsatisfiable(corev1.ScheduleAnyway).
			WithLabelSelector(metav1ac.LabelSelector().WithMatchLabels(selector(e, w.component))).
			WithMatchLabelKeys(appsv1.DefaultDeploymentUniqueLabelKey)).
		WithContainers(container(a, w)).
		WithVolumes(volumes(e, w.refs)...)
}

func container(a *Args, w *workload) *corev1ac.ContainerApplyConfiguration {
	requirements := w.resources.Requirements()
	args := []string{
		string(w.component),
		"--config=" + configDir + "/" + configFile,
		"--database-url-file=" + databaseDir + "/" + databaseFile,
		"--ops-listen=:" + strconv.Itoa(metricsPort),
	}
	if len(w.refs) > 0 {
		args = append(args, "--secrets-dir="+keysDir)
	}
	return corev1ac.Container().
		WithName(string(w.component)).
		WithImage(a.Image).
		WithArgs(append(args, w.args...)...).
		WithPorts(w.ports...).
		WithResources(corev1ac.ResourceRequirements().
			WithRequests(requirements.Requests).
			WithLimits(requirements.Limits)).
		WithSecurityContext(corev1ac.SecurityContext().
			WithAllowPrivilegeEscalation(false).
			WithReadOnlyRootFilesystem(true).
			WithCapabilities(corev1ac.Capabilities().WithDrop("ALL"))).
		WithStartupProbe(probe("/healthz", 1, 60)).
		WithReadinessProbe(probe("/readyz", 5, 2)).
		WithLivenessProbe(probe("/healthz", 10, 6)).
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError).
		WithVolumeMounts(volumeMounts(w.refs)...)
}

// probe asks every period (in seconds), and gives up after so many failures.
func probe(path string, period, failures int32) *corev1ac.ProbeApplyConfiguration {
	return corev1ac.Probe().
		WithHTTPGet(corev1ac.HTTPGetAction().WithPath(path).WithPort(intstr.FromString(portOps))).
		WithPeriodSeconds(period).
		WithTimeoutSeconds(5).
		WithFailureThreshold(failures)
}

func containerPort(name string, port int32) *corev1ac.ContainerPortApplyConfiguration {
	return corev1ac.ContainerPort().WithName(name).WithContainerPort(port).WithProtocol(corev1.ProtocolTCP)
}
