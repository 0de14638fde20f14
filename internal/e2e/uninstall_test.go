//go:build e2e

package e2e

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

func uninstalled() {
	var p, elsewhere *pipeline
	BeforeAll(func(ctx SpecContext) {
		p = newPipeline(ctx, "watched")
		elsewhere = newPipeline(ctx, "unwatched")
	}, NodeTimeout(4*time.Minute))

	It("leaves the definitions, the objects and the running pipelines, with what they hold", func(ctx SpecContext) {
		p.handler.behave(ctx, "status=500")
		held := p.acceptMany(ctx, "held", 3)
		helm(ctx, "uninstall", release, "--namespace", system, "--wait")
		Expect(kubectl(ctx, "get", "crd", endpointCRD, replayCRD, "-o", "name")).NotTo(BeEmpty())
		Expect(podsOf(ctx, system, managerSelector)).To(BeEmpty())
		Expect(kubectl(ctx, "get", "whe", "-n", p.ns, "-o", "name")).To(ContainSubstring(p.name))
		p.handler.mend(ctx)
		p.handler.waitFor(ctx, 1, append(held, p.acceptMany(ctx, "without", 3)...))
	}, SpecTimeout(3*time.Minute))

	It("works with Roles only where it is to watch some namespaces", func(ctx SpecContext) {
		install(ctx, "--set", "watchNamespaces={"+p.ns+"}")
		By("looking for rights over all namespaces")
		account := managerAccount(ctx)
		for _, verb := range []string{"get secrets", "list webhookendpoints.ackrail.io", "patch deployments.apps"} {
			Expect(canI(ctx, account, elsewhere.ns, verb)).To(Equal("no"), verb)
			Expect(canI(ctx, account, p.ns, verb)).To(Equal("yes"), verb)
		}
		By("changing an endpoint in the namespace")
		patch := `{"spec":{"ingress":{"replicas":1}}}`
		kubectl(ctx, "patch", "whe", "-n", elsewhere.ns, elsewhere.name, "--type=merge", "-p", patch)
		kubectl(ctx, "patch", "whe", "-n", p.ns, p.name, "--type=merge", "-p", patch)
		Eventually(ctx, func() []corev1.Pod { return p.pods(ctx, "ingress") }).Should(HaveLen(1))
		p.waitReady(ctx)
		Expect(elsewhere.pods(ctx, "ingress")).To(HaveLen(2), "the other namespace")
		ids := p.acceptMany(ctx, "namespaced", 3)
		Eventually(ctx, func(g Gomega) {
			counts, err := p.handler.successes(ctx, 1)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(missing(counts, ids)).To(BeEmpty())
		}).Should(Succeed())
		// The other namespace's endpoint is deleted under an operator that sees it.
		DeferCleanup(func(ctx SpecContext) { install(ctx, "--set", "watchNamespaces=null") }, NodeTimeout(2*time.Minute))
	}, SpecTimeout(5*time.Minute))
}
