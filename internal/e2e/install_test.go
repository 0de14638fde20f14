//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The release, its namespace, and its custom resource definitions.
const (
	release = "ackrail"
	system  = "ackrail-e2e-system"

	endpointCRD = "webhookendpoints.ackrail.io"
	replayCRD   = "eventreplays.ackrail.io"
)

// refuseOthers stops the run where somebody else's Ackrail is installed, which
// it would take over and remove.
func refuseOthers(ctx context.Context) {
	GinkgoHelper()
	owner := kubectl(ctx, "get", "crd", endpointCRD, "--ignore-not-found",
		"-o", `jsonpath={.metadata.annotations.meta\.helm\.sh/release-namespace}`)
	exists := kubectl(ctx, "get", "crd", endpointCRD, "--ignore-not-found", "-o", "name") != ""
	if exists && owner != system {
		Fail(fmt.Sprintf("Ackrail is installed on this cluster (release in namespace %q): uninstall it and delete its "+
			"custom resource definitions first, or use another cluster", owner))
	}
	if exists { // left over from a run that was cut off
		removeProduct(ctx)
	}
}

// install installs the chart with further arguments of helm.
func install(ctx context.Context, args ...string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: system, Labels: map[string]string{policyLabel: "restricted"}},
	}
	apply(ctx, namespace)
	repository, tag, _ := strings.Cut(env.image, ":")
	helm(ctx, append([]string{
		"upgrade", "--install", release, env.chart, "--namespace", system,
		"--set", "image.repository=" + repository, "--set-string", "image.tag=" + tag, "--wait", "--timeout", "90s",
	}, args...)...)
}

// removeProduct takes everything away that install has made.
func removeProduct(ctx context.Context) {
	GinkgoHelper()
	// The operator's finalizers want the operator.
	for _, kind := range []string{"eventreplays", "webhookendpoints"} {
		if out, err := tryKubectl(ctx, "", "delete", kind, "--all", "--all-namespaces", "--timeout=60s"); err != nil {
			GinkgoWriter.Println(out, err)
		}
	}
	if out, err := command(ctx, "", env.helm, "uninstall", release, "--namespace", system, "--ignore-not-found", "--wait"); err != nil {
		GinkgoWriter.Println(out, err)
	}
	kubectl(ctx, "delete", "crd", endpointCRD, replayCRD, "--ignore-not-found", "--timeout=60s")
	kubectl(ctx, "delete", "namespace", system, "--ignore-not-found", "--timeout=60s")
}

// managerDeployment returns the manager's Deployment.
func managerDeployment(ctx context.Context) *appsv1.Deployment {
	GinkgoHelper()
	list, err := api.AppsV1().Deployments(system).List(ctx, metav1.ListOptions{LabelSelector: managerSelector})
	Expect(err).NotTo(HaveOccurred())
	Expect(list.Items).To(HaveLen(1), "Deployments of the manager")
	return &list.Items[0]
}

const managerSelector = "app.kubernetes.io/instance=" + release + ",app.kubernetes.io/component=manager"

// managerAccount is the user name of the manager's service account.
func managerAccount(ctx context.Context) string {
	GinkgoHelper()
	return "system:serviceaccount:" + system + ":" + managerDeployment(ctx).Spec.Template.Spec.ServiceAccountName
}

// waitManager waits until the manager is ready.
func waitManager(ctx context.Context) {
	GinkgoHelper()
	kubectl(ctx, "rollout", "status", "deployment/"+managerDeployment(ctx).Name, "-n", system, "--timeout=90s")
}

func scaleManager(ctx context.Context, replicas string) {
	GinkgoHelper()
	kubectl(ctx, "scale", "deployment/"+managerDeployment(ctx).Name, "-n", system, "--replicas="+replicas)
	if replicas == "0" {
		Eventually(ctx, func() []corev1.Pod { return podsOf(ctx, system, managerSelector) }).Should(BeEmpty())
		return
	}
	waitManager(ctx)
}

func installed() {
	It("runs the manager, which is ready", func(ctx SpecContext) {
		d := managerDeployment(ctx)
		Expect(d.Status.ReadyReplicas).To(BeNumerically(">=", 1))
		kubectl(ctx, "wait", "--for=condition=Available", "deployment/"+d.Name, "-n", system, "--timeout=30s")
	}, SpecTimeout(time.Minute))

	It("explains its resources", func(ctx SpecContext) {
		out := kubectl(ctx, "explain", "webhookendpoint.spec.source")
		for _, want := range []string{
			"KIND:       WebhookEndpoint", "FIELD: source <Object>", "Source says where events come from", "secretRefs\t<[]Object>",
			"provider\t<string> -required-", "enum: GitHub", "Default: /hooks/<namespace>/<name>",
		} {
			Expect(out).To(ContainSubstring(want))
		}
		Expect(kubectl(ctx, "explain", "replay.spec.selector")).To(ContainSubstring("At least one criterion"))
	}, SpecTimeout(time.Minute))

	It("makes the sample ready in under a minute, with a URL that answers", func(ctx SpecContext) {
		ns := newNamespace(ctx, "sample")
		newHandler(ctx, ns)
		apply(ctx, databaseSecret(ns))
		began := time.Now()
		for _, file := range []string{"secret_github.yaml", "webhookendpoint_github.yaml"} {
			_, err := tryKubectl(ctx, sample(file, ns), "apply", "-f", "-")
			Expect(err).NotTo(HaveOccurred())
		}
		kubectl(ctx, "wait", "--for=condition=Ready", "whe/github", "-n", ns, "--timeout=60s")
		Expect(time.Since(began)).To(BeNumerically("<", readyIn))
		AddReportEntry("From kubectl apply to Ready", time.Since(began).Round(100*time.Millisecond).String())

		p := &pipeline{ns: ns, name: "github"}
		u := p.url(ctx)
		Expect(u.Path).To(Equal("/hooks/" + ns + "/github"))
		p.sender = newSender(ctx, u, "replace-me-with-the-output-of-openssl-rand")
		p.accept(ctx, "sample-1", []byte(`{"zen":"Design for failure."}`))

		_, err := tryKubectl(ctx, sample("eventreplay.yaml", ns), "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		kubectl(ctx, "wait", "--for=condition=Complete", "replay", "--all", "-n", ns, "--timeout=60s")

		Expect(header(kubectl(ctx, "get", "whe", "-n", ns))).To(Equal([]string{"NAME", "READY", "PENDING", "DEAD", "AGE"}))
		Expect(header(kubectl(ctx, "get", "whe", "-n", ns, "-o", "wide"))).To(Equal([]string{"NAME", "READY", "PENDING", "DEAD", "URL", "AGE"}))
		Expect(header(kubectl(ctx, "get", "replay", "-n", ns))).To(Equal([]string{"NAME", "COMPLETE", "MATCHED", "PENDING", "SUCCEEDED", "DEAD", "AGE"}))
		Expect(header(kubectl(ctx, "get", "replay", "-n", ns, "-o", "wide"))).To(Equal([]string{"NAME", "COMPLETE", "MATCHED", "REPLAYED", "PENDING", "SUCCEEDED", "DEAD", "AGE"}))
		both := kubectl(ctx, "get", "ackrail", "-n", ns)
		Expect(both).To(And(ContainSubstring("webhookendpoint.ackrail.io/github"), ContainSubstring("eventreplay.ackrail.io/")))
	}, SpecTimeout(3*time.Minute))
}

// sample returns a sample's manifest for another namespace.
func sample(file, ns string) string {
	GinkgoHelper()
	text, err := os.ReadFile("../../config/samples/" + file)
	Expect(err).NotTo(HaveOccurred())
	Expect(bytes.Count(text, []byte("namespace: payments"))).To(Equal(1), file)
	return strings.ReplaceAll(string(text), "namespace: payments", "namespace: "+ns)
}

func header(table string) []string {
	line, _, _ := strings.Cut(table, "\n")
	return strings.Fields(line)
}
