//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

func outages() {
	var p *pipeline
	var all []*pipeline
	BeforeAll(func(ctx SpecContext) {
		p = newPipeline(ctx, "outages")
		p.waitRolledOut(ctx)
		all = []*pipeline{p}
	}, NodeTimeout(3*time.Minute))

	It("takes and delivers webhooks while the API server is silent, and reconciles when it is back", func(ctx SpecContext) {
		server := apiServer()
		if server == 0 || !direct {
			Skip("the API server is not a process of this machine")
		}
		before := succeeded(ctx, p)
		l := startLoad(ctx, p.sender, "silent", false)
		DeferCleanup(l.stop)
		l.progress(ctx, 40)
		breaks(1, "SIGSTOP of the API server for "+env.outage.String()+", under load")
		stopFor(ctx, server, env.outage)
		l.progress(ctx, 40)
		accepted, failures := l.end()
		AddReportEntry("Accepted meanwhile", len(accepted))
		Expect(failures).To(BeEmpty())

		By("reconciling again")
		Eventually(ctx, func() error {
			_, err := tryKubectl(ctx, "", "patch", "whe", "-n", p.ns, p.name, "--type=merge", "-p", `{"spec":{"source":{"maxBodyBytes":4096}}}`)
			return err
		}).WithTimeout(2 * time.Minute).Should(Succeed())
		back := time.Now()
		Eventually(ctx, func() time.Time { return managerLease(ctx).RenewTime.Time }).WithTimeout(2*time.Minute).
			Should(BeTemporally(">", back), "the time at which a manager renewed its lease")
		p.waitReady(ctx)
		p.waitRolledOut(ctx)
		p.handler.waitFor(ctx, 1, append(before, accepted...))
		judge(ctx, all...)
	}, SpecTimeout(20*time.Minute))

	It("has one of two managers work, and the other when that falls silent, without replaying anything twice", func(ctx SpecContext) {
		q := &pipeline{ns: p.ns, name: "managers", handler: p.handler}
		apply(ctx, q.endpoint(attempts(1)))
		q.waitReady(ctx)
		q.sender = newSender(ctx, q.url(ctx), secret)
		all = append(all, q)
		p.handler.behave(ctx, "status=500")
		ids := q.acceptMany(ctx, "managers", 40)
		q.waitDead(ctx, 40)
		p.handler.mend(ctx)

		scaleManager(ctx, "2")
		DeferCleanup(func(ctx SpecContext) { scaleManager(ctx, "1") }, NodeTimeout(2*time.Minute))
		first := leader(ctx)
		apply(ctx, q.replay("both", func(r *v1alpha1.EventReplay) { r.Spec.MaxPerSecond = 1 }))
		Eventually(ctx, func() int64 { return q.getReplay(ctx, "both").Status.Replayed }).Should(BeNumerically(">", 2))
		breaks(1, "SIGSTOP of the leading one of two managers in the middle of a replay, until the other leads")
		processes := processesOf(containerOf(first))
		if len(processes) == 0 {
			kubectl(ctx, "delete", "pod", "-n", system, first.Name, "--wait=false")
		}
		for _, pid := range processes {
			By("kill -STOP " + strconv.Itoa(pid) + " (" + first.Name + ")")
			Expect(syscall.Kill(pid, syscall.SIGSTOP)).To(Succeed())
			DeferCleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
		}
		Eventually(ctx, func() string { return *managerLease(ctx).HolderIdentity }).ShouldNot(HavePrefix(first.Name))
		for _, pid := range processes {
			Expect(syscall.Kill(pid, syscall.SIGCONT)).To(Succeed())
		}
		kubectl(ctx, "wait", "--for=condition=Complete", "replay/both", "-n", q.ns, "--timeout=120s")
		q.expectCounts(ctx, "both", 40)
		counts, err := p.handler.successes(ctx, 2)
		Expect(err).NotTo(HaveOccurred())
		for _, id := range ids {
			Expect(counts).To(HaveKeyWithValue(id, 1), "deliveries of %s in run 2", id)
		}
		judge(ctx, all...)
	}, SpecTimeout(6*time.Minute))

	It("keeps what a deleted endpoint owes, says so, and delivers it once the endpoint is applied again", func(ctx SpecContext) {
		q := &pipeline{ns: p.ns, name: "deleted", handler: p.handler}
		// Enough attempts to outlast the refusals.
		apply(ctx, q.endpoint(attempts(100)))
		q.waitReady(ctx)
		q.sender = newSender(ctx, q.url(ctx), secret)
		all = append(all, q)
		before := succeeded(ctx, p)
		p.handler.behave(ctx, "status=503")
		DeferCleanup(func(ctx SpecContext) { p.handler.mend(ctx) }, NodeTimeout(time.Minute))
		ids := q.acceptMany(ctx, "backlog", 20)
		Eventually(ctx, func() int64 {
			d := q.get(ctx).Status.Deliveries
			return d.Pending + d.Failed
		}).Should(BeEquivalentTo(20))
		breaks(1, "an endpoint deleted that owes 20 deliveries, and applied again")
		kubectl(ctx, "delete", "whe", "-n", q.ns, q.name, "--timeout=60s")
		Eventually(ctx, func() string {
			return kubectl(ctx, "get", "events", "-n", q.ns, "--field-selector", "reason=DeliveriesKept", "-o", "jsonpath={.items[*].message}{.items[*].note}")
		}).Should(ContainSubstring("20 deliveries"))
		p.handler.mend(ctx)
		apply(ctx, q.endpoint(attempts(100)))
		q.waitReady(ctx)
		p.handler.waitFor(ctx, 1, append(before, ids...))
		judge(ctx, all...)
	}, SpecTimeout(5*time.Minute))

	It("lets an endpoint go whose database is away", func(ctx SpecContext) {
		q := &pipeline{ns: p.ns, name: "orphan"}
		apply(ctx, newSecret(q.ns, "moving", "uri", databaseURL(q.ns)))
		apply(ctx, q.endpoint(func(e *v1alpha1.WebhookEndpoint) { e.Spec.Database.SecretRef.Name = "moving" }))
		q.waitReady(ctx)
		apply(ctx, newSecret(q.ns, "moving", "uri", "postgres://nobody:hush@192.0.2.1:5432/nothing"))
		kubectl(ctx, "annotate", "whe", "-n", q.ns, q.name, "example.com/look=again")
		Eventually(ctx, func() []metav1.Condition { return q.get(ctx).Status.Conditions }).WithTimeout(3 * time.Minute).
			Should(haveCondition(v1alpha1.ConditionStoreReady, metav1.ConditionFalse, v1alpha1.ReasonDatabaseUnreachable))
		breaks(1, "an endpoint deleted whose database does not answer")
		kubectl(ctx, "delete", "whe", "-n", q.ns, q.name, "--timeout=30s")
		Eventually(ctx, func() []corev1.Pod { return q.pods(ctx, "ingress") }).Should(BeEmpty())
		judge(ctx, all...)
	}, SpecTimeout(6*time.Minute))

	It("keeps an ingress and loses nothing while its node is drained", func(ctx SpecContext) {
		nodes, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		if len(nodes.Items) != 1 {
			Skip("the cluster has other nodes that pods would move to")
		}
		node := nodes.Items[0].Name
		before := succeeded(ctx, p)
		l := startLoad(ctx, p.sender, "drain", false)
		DeferCleanup(l.stop)
		l.progress(ctx, 40)
		DeferCleanup(func(ctx SpecContext) { kubectl(ctx, "uncordon", node) }, NodeTimeout(time.Minute))
		breaks(1, "the only node drained, under load: one ingress stays, as the disruption budget says")
		out, err := tryKubectl(ctx, "", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data",
			"--pod-selector=app.kubernetes.io/instance="+p.name, "--timeout=25s")
		Expect(err).To(MatchError(ContainSubstring("disruption budget")), "what drain says, which has nowhere to move pods to: %s", out)
		Expect(p.pods(ctx, "ingress")).To(HaveLen(1))
		l.progress(ctx, 40)
		kubectl(ctx, "uncordon", node)
		p.waitRolledOut(ctx)
		l.progress(ctx, 40)
		accepted, failures := l.end()
		Expect(failures).To(BeEmpty())
		p.handler.waitFor(ctx, 1, append(before, accepted...))
		judge(ctx, all...)
	}, SpecTimeout(4*time.Minute))
}

// stopFor stops a process for some time.
func stopFor(ctx context.Context, pid int, d time.Duration) {
	GinkgoHelper()
	By("kill -STOP " + strconv.Itoa(pid) + ", for " + d.String())
	Expect(syscall.Kill(pid, syscall.SIGSTOP)).To(Succeed())
	defer func() { Expect(syscall.Kill(pid, syscall.SIGCONT)).To(Succeed()) }()
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// apiServer returns the process of the API server that writes the audit log
// which is read here, 0 if there is none.
func apiServer() int {
	if env.auditLog == "" {
		return 0
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		text, err := os.ReadFile(line)
		if err == nil && bytes.Contains(text, []byte("--audit-log-path="+env.auditLog)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(line)))
			return pid
		}
	}
	return 0
}

// managerLease returns the Lease by which managers agree on one that works.
func managerLease(ctx context.Context) coordinationv1.LeaseSpec {
	GinkgoHelper()
	lease, err := api.CoordinationV1().Leases(system).Get(ctx, "ackrail-manager.ackrail.io", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(lease.Spec.HolderIdentity).NotTo(BeNil())
	Expect(lease.Spec.RenewTime).NotTo(BeNil())
	return lease.Spec
}

// leader returns the manager that works.
func leader(ctx context.Context) *corev1.Pod {
	GinkgoHelper()
	holder, _, _ := strings.Cut(*managerLease(ctx).HolderIdentity, "_")
	pod, err := api.CoreV1().Pods(system).Get(ctx, holder, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return pod
}
