//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// secret is what the pipelines' senders sign with.
const secret = "It's a Secret to Everybody"

// readyIn is how long an endpoint may take from kubectl apply to Ready.
const readyIn = time.Minute

// A pipeline is a namespace with a database, a handler and an endpoint that
// delivers to it.
type pipeline struct {
	ns, name string
	handler  *handler
	sender   *sender
}

// newPipeline makes one and waits until it is ready. Its namespace goes with
// the container or spec.
func newPipeline(ctx context.Context, name string, changes ...func(*v1alpha1.WebhookEndpoint)) *pipeline {
	GinkgoHelper()
	ns := newNamespace(ctx, name)
	p := &pipeline{ns: ns, name: "github", handler: newHandler(ctx, ns)}
	apply(ctx, databaseSecret(ns), webhookSecret(ns, "github-webhook", secret), p.endpoint(changes...))
	p.waitReady(ctx)
	p.sender = newSender(ctx, p.url(ctx), secret)
	return p
}

// endpoint is an endpoint as a user would write it, with short waits.
func (p *pipeline) endpoint(changes ...func(*v1alpha1.WebhookEndpoint)) *v1alpha1.WebhookEndpoint {
	e := &v1alpha1.WebhookEndpoint{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WebhookEndpoint"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.ns, Name: p.name},
		Spec: v1alpha1.WebhookEndpointSpec{
			Source: v1alpha1.Source{
				Provider:   v1alpha1.ProviderGitHub,
				SecretRefs: []v1alpha1.SecretKeyRef{{Name: "github-webhook", Key: "secret"}},
			},
			Destinations: []v1alpha1.Destination{{
				Name:  "handler",
				HTTP:  v1alpha1.HTTPDestination{URL: handlerURL(p.ns, p.path()), TimeoutSeconds: 5},
				Retry: v1alpha1.Retry{MaxAttempts: 20, MinBackoffSeconds: 1, MaxBackoffSeconds: 2},
			}},
			Worker: v1alpha1.Worker{LeaseSeconds: 10},
		},
	}
	for _, change := range changes {
		change(e)
	}
	return e
}

// path is where the handler gets the endpoint's events.
func (p *pipeline) path() string { return "/events/" + p.name }

func named(name string) func(*v1alpha1.WebhookEndpoint) {
	return func(e *v1alpha1.WebhookEndpoint) { e.Name = name }
}

// attempts makes deliveries dead after so many attempts.
func attempts(n int32) func(*v1alpha1.WebhookEndpoint) {
	return func(e *v1alpha1.WebhookEndpoint) { e.Spec.Destinations[0].Retry.MaxAttempts = n }
}

func (p *pipeline) get(ctx context.Context) *v1alpha1.WebhookEndpoint {
	GinkgoHelper()
	e, err := get[v1alpha1.WebhookEndpoint](ctx, "whe", "-n", p.ns, p.name)
	Expect(err).NotTo(HaveOccurred())
	return &e
}

// url is where the endpoint takes requests, as its status says.
func (p *pipeline) url(ctx context.Context) *url.URL {
	GinkgoHelper()
	u, err := url.Parse(p.get(ctx).Status.URL)
	Expect(err).NotTo(HaveOccurred())
	Expect(u.Host).NotTo(BeEmpty(), "status.url")
	return u
}

// waitReady waits until the endpoint is what its present spec says.
func (p *pipeline) waitReady(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		e, err := get[v1alpha1.WebhookEndpoint](ctx, "whe", "-n", p.ns, p.name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(e.Status.ObservedGeneration).To(Equal(e.Generation))
		g.Expect(e.Status.Conditions).To(haveCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, ""))
		g.Expect(meta.IsStatusConditionTrue(e.Status.Conditions, v1alpha1.ConditionReconciling)).To(BeFalse())
	}).WithTimeout(readyIn).WithPolling(500 * time.Millisecond).Should(Succeed())
}

// selector selects the pods of a component, ingress or worker.
func (p *pipeline) selector(component string) string {
	return "app.kubernetes.io/instance=" + p.name + ",app.kubernetes.io/component=" + component
}

func (p *pipeline) pods(ctx context.Context, component string) []corev1.Pod {
	GinkgoHelper()
	return podsOf(ctx, p.ns, p.selector(component))
}

// waitRolledOut waits until all pods of the endpoint are there, of which Ready
// lets one be missing, and none is on its way out.
func (p *pipeline) waitRolledOut(ctx context.Context) {
	GinkgoHelper()
	for _, component := range []string{"ingress", "worker"} {
		kubectl(ctx, "rollout", "status", "-n", p.ns, "deployment/"+p.deployment(ctx, component).Name, "--timeout=60s")
	}
	Eventually(ctx, func(g Gomega) {
		list, err := api.CoreV1().Pods(p.ns).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + p.name})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(list.Items).To(HaveEach(HaveField("DeletionTimestamp", BeNil())))
	}).WithTimeout(90 * time.Second).Should(Succeed())
}

// deployment returns the Deployment of a component.
func (p *pipeline) deployment(ctx context.Context, component string) *appsv1.Deployment {
	GinkgoHelper()
	list, err := api.AppsV1().Deployments(p.ns).List(ctx, metav1.ListOptions{LabelSelector: p.selector(component)})
	Expect(err).NotTo(HaveOccurred())
	Expect(list.Items).To(HaveLen(1), "Deployments of the %s", component)
	return &list.Items[0]
}

// accept sends a body and expects it to be accepted as a new event.
func (p *pipeline) accept(ctx context.Context, key string, body []byte) (eventID string) {
	GinkgoHelper()
	a, err := p.sender.send(ctx, key, body)
	Expect(err).NotTo(HaveOccurred())
	Expect(a.status).To(Equal(202), a.text)
	return a.EventID
}

// acceptMany sends n small bodies with keys of their own and returns their
// ids.
func (p *pipeline) acceptMany(ctx context.Context, key string, n int) (ids []string) {
	GinkgoHelper()
	for i := range n {
		ids = append(ids, p.accept(ctx, fmt.Sprintf("%s-%d", key, i), fmt.Appendf(nil, `{"n":%d}`, i)))
	}
	return ids
}

// waitDead waits until so many deliveries are dead, as kubectl get shows it.
func (p *pipeline) waitDead(ctx context.Context, n int64) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		e, err := get[v1alpha1.WebhookEndpoint](ctx, "whe", "-n", p.ns, p.name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(e.Status.Deliveries).To(HaveField("Dead", n))
	}).WithTimeout(90 * time.Second).WithPolling(time.Second).Should(Succeed())
}

// databaseSecret holds the database's URL as CloudNativePG writes it.
func databaseSecret(ns string) *corev1.Secret {
	GinkgoHelper()
	return newSecret(ns, "ackrail-database", "uri", databaseURL(ns))
}

// databaseURL is that of the database with a schema of the namespace's own.
func databaseURL(ns string) string {
	GinkgoHelper()
	u, err := url.Parse(env.databaseURL)
	Expect(err).NotTo(HaveOccurred())
	query := u.Query()
	query.Set("search_path", strings.ReplaceAll(ns, "-", "_"))
	u.RawQuery = query.Encode()
	return u.String()
}

func webhookSecret(ns, name, value string) *corev1.Secret {
	return newSecret(ns, name, "secret", value)
}

func newSecret(ns, name, key, value string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		StringData: map[string]string{key: value},
	}
}

// restricted is what the strictest of the Pod Security Standards asks of a
// pod and of a container.
func restricted() (*corev1.PodSecurityContext, *corev1.SecurityContext) {
	return &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}, &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			ReadOnlyRootFilesystem:   ptr.To(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
}

// handlerURL is the handler's address for the workers.
func handlerURL(ns, path string) string { return "http://handler." + ns + ".svc:8080" + path }

// handlerObjects are the Deployment and Service of the handler, which is the
// image sink.
func handlerObjects(ns string) []any {
	labels := map[string]string{"app": "handler"}
	pod, container := restricted()
	return []any{
		&appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "handler", Labels: labels},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{
						AutomountServiceAccountToken: ptr.To(false),
						SecurityContext:              pod,
						Containers: []corev1.Container{{
							Name: "sink", Image: env.sink, ImagePullPolicy: corev1.PullIfNotPresent, SecurityContext: container,
							Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
							ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
								HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")},
							}},
						}},
					},
				},
			},
		},
		&corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "handler"},
			Spec: corev1.ServiceSpec{
				Selector: labels,
				Ports:    []corev1.ServicePort{{Name: "http", Port: 8080, TargetPort: intstr.FromString("http")}},
			},
		},
	}
}

// haveCondition expects a condition of a type and status among others, and of
// a reason unless that is empty.
func haveCondition(kind string, status metav1.ConditionStatus, reason string) types.GomegaMatcher {
	want := HaveField("Status", status)
	if reason != "" {
		want = And(want, HaveField("Reason", reason))
	}
	return ContainElement(And(HaveField("Type", kind), want))
}
