//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func changing() {
	var p *pipeline
	BeforeAll(func(ctx SpecContext) { p = newPipeline(ctx, "changing") }, NodeTimeout(3*time.Minute))

	It("rolls a new spec out without a request that fails", func(ctx SpecContext) {
		l := startLoad(ctx, p.sender, "changing", false)
		DeferCleanup(l.stop)
		l.progress(ctx, 40)
		patch := func(kind, text string) {
			GinkgoHelper()
			By(text)
			kubectl(ctx, "patch", "whe", "-n", p.ns, p.name, "--type="+kind, "-p", text)
			p.waitReady(ctx)
			p.waitRolledOut(ctx)
			l.progress(ctx, 40)
		}
		patch("merge", `{"spec":{"ingress":{"replicas":3},"worker":{"replicas":2}}}`)
		Expect(p.pods(ctx, "ingress")).To(HaveLen(3))
		Expect(p.pods(ctx, "worker")).To(HaveLen(2))
		patch("merge", `{"spec":{"source":{"maxBodyBytes":100}}}`)
		patch("json", fmt.Sprintf(`[{"op":"replace","path":"/spec/destinations/0/http/url","value":%q}]`, handlerURL(p.ns, "/elsewhere")))
		patch("merge", `{"spec":{"ingress":{"replicas":1}}}`)
		accepted, failures := l.end()
		Expect(failures).To(BeEmpty())
		AddReportEntry("Accepted meanwhile", len(accepted))

		By("looking at what arrived, and where")
		last := p.accept(ctx, "last", []byte(`{}`))
		p.handler.waitFor(ctx, 1, append(accepted, last))
		records, err := p.handler.records(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(records).To(ContainElement(And(HaveField("ID", last), HaveField("Path", "/elsewhere"))))
		Expect(records).To(ContainElement(HaveField("Path", p.path())))
		a, err := p.sender.send(ctx, "large", fmt.Appendf(nil, `{"text":%q}`, bytes.Repeat([]byte("x"), 100)))
		Expect(err).NotTo(HaveOccurred())
		Expect(a.status).To(Equal(413))
	}, SpecTimeout(6*time.Minute))

	It("takes its children along when it is deleted", func(ctx SpecContext) {
		children := func() string {
			return kubectl(ctx, "get", "deployment,replicaset,pod,service,configmap,serviceaccount,pdb,networkpolicy", "-n", p.ns,
				"-l", "app.kubernetes.io/instance="+p.name, "-o", "name")
		}
		Expect(strings.Fields(children())).To(ContainElements(
			HavePrefix("deployment.apps/"), HavePrefix("service/"), HavePrefix("configmap/"), HavePrefix("serviceaccount/"),
			HavePrefix("poddisruptionbudget.policy/"), HavePrefix("networkpolicy.networking.k8s.io/")))
		kubectl(ctx, "delete", "whe", "-n", p.ns, p.name, "--timeout=60s")
		Eventually(ctx, children).WithTimeout(90 * time.Second).WithPolling(time.Second).Should(BeEmpty())
	}, SpecTimeout(3*time.Minute))
}

func upgraded() {
	It("rolls the pods of the data plane once, without a request that fails", func(ctx SpecContext) {
		if env.next == "" {
			Skip("there is no second image: set E2E_NEXT_IMAGE to one that the cluster can run")
		}
		p := newPipeline(ctx, "upgrade")
		p.waitRolledOut(ctx)
		l := startLoad(ctx, p.sender, "upgrade", false)
		DeferCleanup(l.stop)
		l.progress(ctx, 40)
		repository, tag, _ := strings.Cut(env.next, ":")
		DeferCleanup(func(ctx SpecContext) { install(ctx) }, NodeTimeout(2*time.Minute))
		helm(ctx, "upgrade", release, env.chart, "--namespace", system, "--reuse-values",
			"--set", "image.repository="+repository, "--set-string", "image.tag="+tag, "--wait", "--timeout", "90s")
		components := []string{"ingress", "worker"}
		Eventually(ctx, func(g Gomega) {
			for _, component := range components {
				d := p.deployment(ctx, component)
				g.Expect(d.Spec.Template.Spec.Containers[0].Image).To(Equal(env.next))
				g.Expect(d.Status.UpdatedReplicas).To(Equal(d.Status.Replicas))
				g.Expect(d.Status.AvailableReplicas).To(Equal(*d.Spec.Replicas))
			}
		}).WithTimeout(2 * time.Minute).Should(Succeed())
		p.waitReady(ctx)
		p.waitRolledOut(ctx)
		l.progress(ctx, 40)
		accepted, failures := l.end()
		Expect(failures).To(BeEmpty())
		p.handler.waitFor(ctx, 1, accepted)
		for _, component := range components {
			sets, err := api.AppsV1().ReplicaSets(p.ns).List(ctx, metav1.ListOptions{LabelSelector: p.selector(component)})
			Expect(err).NotTo(HaveOccurred())
			Expect(sets.Items).To(HaveLen(2), "ReplicaSets of the %s: one before, one after", component)
		}
	}, SpecTimeout(5*time.Minute))
}
