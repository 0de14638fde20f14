//go:build e2e

package e2e

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

func faults() {
	var p *pipeline
	BeforeAll(func(ctx SpecContext) { p = newPipeline(ctx, "faults") }, NodeTimeout(3*time.Minute))

	It("delivers what a worker had under way when it was killed", func(ctx SpecContext) {
		p.handler.behave(ctx, "hang=true")
		ids := p.acceptMany(ctx, "killed", 5)
		Eventually(ctx, func(g Gomega) {
			records, err := p.handler.records(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(records).To(HaveLen(5))
		}).Should(Succeed())
		worker := p.pods(ctx, "worker")
		Expect(worker).To(HaveLen(1))
		breaks(1, "SIGKILL of a worker's process while the handler holds five requests, on a cluster")
		kill(ctx, &worker[0])
		p.handler.mend(ctx)

		for id, times := range p.handler.waitFor(ctx, 1, ids) {
			Expect(times).To(Equal(1), "successes of %s", id)
		}
		records, err := p.handler.records(ctx)
		Expect(err).NotTo(HaveOccurred())
		// The attempt that was cut off counts: it may have had an effect.
		for _, d := range records {
			if d.Status/100 == 2 {
				Expect(d.Attempt).To(Equal(2), "attempt of %s that succeeded", d.ID)
			}
		}
		judge(ctx, p)
	}, SpecTimeout(3*time.Minute))

	It("loses nothing when ingress pods are deleted and killed under load", func(ctx SpecContext) {
		before := succeeded(ctx, p)
		l := startLoad(ctx, p.sender, "ingress", true)
		DeferCleanup(l.stop)
		l.progress(ctx, 40)
		gone := p.pods(ctx, "ingress")
		Expect(gone).To(HaveLen(2))
		breaks(2, "one ingress pod deleted, the other's process killed, under load, on a cluster")
		kubectl(ctx, "delete", "pod", "-n", p.ns, gone[0].Name, "--wait=false")
		l.progress(ctx, 80)
		kill(ctx, &gone[1])
		l.progress(ctx, 80)
		kubectl(ctx, "rollout", "status", "-n", p.ns, "deployment/"+p.deployment(ctx, "ingress").Name, "--timeout=60s")
		l.progress(ctx, 40)
		accepted, failures := l.end()
		AddReportEntry("Accepted, failed and sent again", fmt.Sprintf("%d, %d", len(accepted), len(failures)))
		Expect(accepted).NotTo(BeEmpty())
		p.handler.waitFor(ctx, 1, append(before, accepted...))
		judge(ctx, p)
	}, SpecTimeout(3*time.Minute))

	It("takes and delivers webhooks while the manager is down", func(ctx SpecContext) {
		before := succeeded(ctx, p)
		breaks(1, "the manager scaled to nothing")
		scaleManager(ctx, "0")
		DeferCleanup(func(ctx SpecContext) { scaleManager(ctx, "1") }, NodeTimeout(2*time.Minute))
		ids := p.acceptMany(ctx, "no-manager", 20)
		for id, times := range p.handler.waitFor(ctx, 1, append(before, ids...)) {
			Expect(times).To(Equal(1), "successes of %s", id)
		}
		judge(ctx, p)
	}, SpecTimeout(3*time.Minute))

	It("reconciles again after the manager was killed, with traffic going on", func(ctx SpecContext) {
		before := succeeded(ctx, p)
		l := startLoad(ctx, p.sender, "manager", false)
		DeferCleanup(l.stop)
		pods := podsOf(ctx, system, managerSelector)
		Expect(pods).To(HaveLen(1))
		breaks(1, "SIGKILL of the manager, then another spec, under load")
		kill(ctx, &pods[0])
		kubectl(ctx, "patch", "whe", "-n", p.ns, p.name, "--type=merge", "-p", `{"spec":{"ingress":{"replicas":3}}}`)
		Eventually(ctx, func() []corev1.Pod { return p.pods(ctx, "ingress") }).WithTimeout(90 * time.Second).Should(HaveLen(3))
		p.waitReady(ctx)
		accepted, failures := l.end()
		Expect(failures).To(BeEmpty())
		p.handler.waitFor(ctx, 1, append(before, accepted...))
		judge(ctx, p)
	}, SpecTimeout(4*time.Minute))
}

// succeeded returns the events that have arrived so far.
func succeeded(ctx SpecContext, p *pipeline) []string {
	GinkgoHelper()
	counts, err := p.handler.successes(ctx, 1)
	Expect(err).NotTo(HaveOccurred())
	var ids []string
	for id := range counts {
		ids = append(ids, id)
	}
	return ids
}
