//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func drift() {
	var p *pipeline
	BeforeAll(func(ctx SpecContext) { p = newPipeline(ctx, "drift") }, NodeTimeout(3*time.Minute))

	It("reverts what others change of its children, and leaves their labels and annotations", func(ctx SpecContext) {
		ingress := p.deployment(ctx, "ingress")
		config := p.configMap(ctx)
		service := p.service(ctx)

		By("adding a label and an annotation")
		kubectl(ctx, "label", "-n", p.ns, "deployment/"+ingress.Name, "service/"+service.Name, "team=payments")
		kubectl(ctx, "annotate", "-n", p.ns, "deployment/"+ingress.Name, "service/"+service.Name, "example.com/owner=mira")

		By("scaling and editing")
		kubectl(ctx, "scale", "-n", p.ns, "deployment/"+ingress.Name, "--replicas=5")
		kubectl(ctx, "patch", "-n", p.ns, "configmap/"+config.Name, "--type=merge", "-p", `{"data":{"pipeline.json":"{}"}}`)
		kubectl(ctx, "patch", "-n", p.ns, "service/"+service.Name, "--type=json", "-p", `[{"op":"replace","path":"/spec/ports/0/targetPort","value":1}]`)
		kubectl(ctx, "delete", "-n", p.ns, "deployment/"+p.deployment(ctx, "worker").Name)

		Eventually(ctx, func(g Gomega) {
			g.Expect(p.deployment(ctx, "ingress").Spec.Replicas).To(HaveValue(BeEquivalentTo(2)))
			g.Expect(p.configMap(ctx).Data).To(Equal(config.Data))
			g.Expect(p.service(ctx).Spec.Ports).To(Equal(service.Spec.Ports))
			workers, err := api.AppsV1().Deployments(p.ns).List(ctx, metav1.ListOptions{LabelSelector: p.selector("worker")})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(workers.Items).To(HaveLen(1))
		}).Should(Succeed())
		p.waitReady(ctx)
		for _, object := range []metav1.Object{p.deployment(ctx, "ingress"), p.service(ctx)} {
			Expect(object.GetLabels()).To(HaveKeyWithValue("team", "payments"))
			Expect(object.GetAnnotations()).To(HaveKeyWithValue("example.com/owner", "mira"))
		}
		ids := p.acceptMany(ctx, "drift", 3)
		p.handler.waitFor(ctx, 1, ids)
	}, SpecTimeout(3*time.Minute))

	It("writes nothing while there is nothing to do", func(ctx SpecContext) {
		if env.auditLog == "" {
			Skip("the cluster's audit log cannot be read: set E2E_AUDIT_LOG to its path")
		}
		// An endpoint that cannot become ready must not keep it busy either.
		broken := &pipeline{ns: p.ns, name: "broken"}
		apply(ctx, broken.endpoint(missingSecret))
		Eventually(ctx, func() []metav1.Condition { return broken.get(ctx).Status.Conditions }).
			Should(haveCondition("Ready", metav1.ConditionFalse, ""))
		p.waitReady(ctx)
		account := managerAccount(ctx)
		By("waiting until the pipelines before are gone, and the counts of deliveries have settled")
		waitGone(ctx, p.ns)
		waitQuiet(ctx, account)

		began := time.Now()
		By(fmt.Sprintf("watching for %s", env.idle))
		select {
		case <-ctx.Done():
			Fail("out of time: a spec has an hour")
		case <-time.After(env.idle):
		}
		Expect(writes(began, account)).To(BeEmpty(), "writes of the manager but for its lease")
		reportMemory("manager", podsOf(ctx, system, managerSelector))
		reportMemory("ingress", p.pods(ctx, "ingress"))
		reportMemory("worker", p.pods(ctx, "worker"))
	}, SpecTimeout(time.Hour))
}

func (p *pipeline) configMap(ctx SpecContext) *corev1.ConfigMap {
	GinkgoHelper()
	list, err := api.CoreV1().ConfigMaps(p.ns).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + p.name})
	Expect(err).NotTo(HaveOccurred())
	Expect(list.Items).To(HaveLen(1))
	return &list.Items[0]
}

func (p *pipeline) service(ctx SpecContext) *corev1.Service {
	GinkgoHelper()
	list, err := api.CoreV1().Services(p.ns).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + p.name})
	Expect(err).NotTo(HaveOccurred())
	Expect(list.Items).To(HaveLen(1))
	return &list.Items[0]
}

// reportMemory tells the resident memory of pods that run on this machine: all
// of it, with the program's file, which pods share, and their own.
func reportMemory(component string, pods []corev1.Pod) {
	GinkgoHelper()
	for _, pod := range pods {
		for _, pid := range processesOf(containerOf(&pod)) {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			Expect(err).NotTo(HaveOccurred())
			all, own := lineOf(string(status), "VmRSS:"), lineOf(string(status), "RssAnon:")
			AddReportEntry("Resident memory of an idle "+component, fmt.Sprintf("%s, its own %s", all, own))
		}
	}
}

// lineOf returns the rest of the line that a label begins.
func lineOf(text, label string) string {
	_, rest, _ := strings.Cut(text, label)
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}
