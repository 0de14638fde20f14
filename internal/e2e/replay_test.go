//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/event"
)

func replaying() {
	var p *pipeline
	var dead, again []string
	BeforeAll(func(ctx SpecContext) {
		p = newPipeline(ctx, "replay", attempts(2))
		p.handler.behave(ctx, "status=500")
		dead = p.acceptMany(ctx, "broken", 40)
		p.waitDead(ctx, 40)
		p.handler.mend(ctx)
	}, NodeTimeout(4*time.Minute))

	It("counts in a dry run what a replay would take, and changes nothing", func(ctx SpecContext) {
		before, err := p.handler.records(ctx)
		Expect(err).NotTo(HaveOccurred())
		apply(ctx, p.replay("dry", func(r *v1alpha1.EventReplay) { r.Spec.Mode = v1alpha1.ReplayModeDryRun }))
		kubectl(ctx, "wait", "--for=condition=Complete", "replay/dry", "-n", p.ns, "--timeout=60s")
		r := p.getReplay(ctx, "dry")
		Expect(r.Status.Matched).To(BeEquivalentTo(40))
		Expect(r.Status.Replayed).To(BeZero())
		Expect(r.Status.Conditions).To(haveCondition(v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonDryRun))
		p.waitDead(ctx, 40)
		after, err := p.handler.records(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(after).To(HaveLen(len(before)))
	}, SpecTimeout(2*time.Minute))

	It("replays at most as many as the limit says", func(ctx SpecContext) {
		apply(ctx, p.replay("limited", func(r *v1alpha1.EventReplay) { r.Spec.Limit = 10 }))
		kubectl(ctx, "wait", "--for=condition=Complete", "replay/limited", "-n", p.ns, "--timeout=60s")
		p.expectCounts(ctx, "limited", 10)
		// The oldest events come first.
		p.handler.waitFor(ctx, 2, dead[:10])
	}, SpecTimeout(2*time.Minute))

	It("goes on where it was when the manager is killed half-way, and takes nothing twice", func(ctx SpecContext) {
		apply(ctx, p.replay("slow", func(r *v1alpha1.EventReplay) { r.Spec.MaxPerSecond = 2 }))
		Eventually(ctx, func(g Gomega) {
			counts, err := p.handler.successes(ctx, 2)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(len(counts)).To(BeNumerically(">", 14))
		}).Should(Succeed())
		pods := podsOf(ctx, system, managerSelector)
		Expect(pods).To(HaveLen(1))
		kill(ctx, &pods[0])
		counts, err := p.handler.successes(ctx, 2)
		Expect(err).NotTo(HaveOccurred())
		Expect(len(counts)).To(BeNumerically("<", 40), "it was killed too late")
		kubectl(ctx, "wait", "--for=condition=Complete", "replay/slow", "-n", p.ns, "--timeout=90s")
		p.expectCounts(ctx, "slow", 30)
		for id, times := range p.handler.waitFor(ctx, 2, dead) {
			Expect(times).To(Equal(1), "deliveries of %s", id)
		}
		p.waitDead(ctx, 0)
	}, SpecTimeout(4*time.Minute))

	It("says that there is nothing left, and goes when its time is over", func(ctx SpecContext) {
		apply(ctx, p.replay("late", func(r *v1alpha1.EventReplay) { r.Spec.TTLSecondsAfterFinished = ptr.To[int32](5) }))
		kubectl(ctx, "wait", "--for=condition=Complete", "replay/late", "-n", p.ns, "--timeout=60s")
		kubectl(ctx, "wait", "--for=delete", "replay/late", "-n", p.ns, "--timeout=60s")
	}, SpecTimeout(2*time.Minute))

	It("counts what is dead by reason and destination", func(ctx SpecContext) {
		p.handler.behave(ctx, "status=500")
		again = p.acceptMany(ctx, "again", 20)
		p.waitDead(ctx, 20)
		p.handler.mend(ctx)
		Eventually(ctx, func(g Gomega) {
			counts := p.get(ctx).Status.DeadLetters
			g.Expect(counts).NotTo(BeNil())
			g.Expect(counts.Reasons).To(Equal([]v1alpha1.DeadReasonCount{{Reason: string(event.ReasonAttemptsExhausted), Count: 20}}))
			g.Expect(counts.Destinations).To(Equal([]v1alpha1.DeadDestinationCount{{Name: "handler", Count: 20}}))
			g.Expect(counts.OldestTime).NotTo(BeNil())
		}).Should(Succeed())
	}, SpecTimeout(3*time.Minute))

	It("starts nothing while suspended, shares what is dead with another replay, and can be created again", func(ctx SpecContext) {
		slow := func(r *v1alpha1.EventReplay) { r.Spec.MaxPerSecond = 1 }
		apply(ctx, p.replay("first", slow))
		Eventually(ctx, func() int64 { return p.getReplay(ctx, "first").Status.Replayed }).Should(BeNumerically(">", 2))
		suspend := func(value string) {
			GinkgoHelper()
			kubectl(ctx, "patch", "replay/first", "-n", p.ns, "--type=merge", "-p", `{"spec":{"suspend":`+value+`}}`)
		}
		suspend("true")
		kubectl(ctx, "wait", "--for=condition=Suspended", "replay/first", "-n", p.ns, "--timeout=30s")

		By("having another one take the rest")
		apply(ctx, p.replay("second", func(*v1alpha1.EventReplay) {}))
		kubectl(ctx, "wait", "--for=condition=Complete", "replay/second", "-n", p.ns, "--timeout=60s")
		second := p.getReplay(ctx, "second").Status
		Expect(second.Replayed).To(BeNumerically(">", 0))

		By("resuming the first")
		suspend("false")
		kubectl(ctx, "wait", "--for=condition=Complete", "replay/first", "-n", p.ns, "--timeout=60s")
		first := p.getReplay(ctx, "first").Status
		Expect([]int64{first.Matched, first.Replayed + second.Replayed, first.Succeeded + second.Succeeded}).To(HaveEach(BeEquivalentTo(20)))
		Expect(first.SkippedReasons).To(Equal([]v1alpha1.SkippedCount{{Reason: v1alpha1.SkipReasonTakenByAnotherReplay, Count: second.Replayed}}))
		for id, times := range p.handler.waitFor(ctx, 2, append(dead, again...)) {
			Expect(times).To(Equal(1), "deliveries of %s", id)
		}

		By("creating the first again")
		kubectl(ctx, "delete", "replay/first", "-n", p.ns, "--timeout=30s")
		apply(ctx, p.replay("first", slow))
		kubectl(ctx, "wait", "--for=condition=Complete", "replay/first", "-n", p.ns, "--timeout=60s")
		Expect(p.getReplay(ctx, "first").Status.Matched).To(BeZero())
		judge(ctx, p)
	}, SpecTimeout(4*time.Minute))

	It("refuses another spec once it is given", func(ctx SpecContext) {
		_, err := tryApply(ctx, p.replay("slow", func(r *v1alpha1.EventReplay) { r.Spec.MaxPerSecond = 3 }))
		Expect(err).To(MatchError(ContainSubstring("create another EventReplay")))
	}, SpecTimeout(time.Minute))
}

// replay selects everything that is dead.
func (p *pipeline) replay(name string, change func(*v1alpha1.EventReplay)) *v1alpha1.EventReplay {
	r := &v1alpha1.EventReplay{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EventReplay"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.ns, Name: name},
		Spec: v1alpha1.EventReplaySpec{
			EndpointRef: v1alpha1.EndpointRef{Name: p.name},
			Selector:    v1alpha1.ReplaySelector{Match: v1alpha1.ReplayMatchAll},
		},
	}
	change(r)
	return r
}

func (p *pipeline) getReplay(ctx context.Context, name string) *v1alpha1.EventReplay {
	GinkgoHelper()
	r, err := get[v1alpha1.EventReplay](ctx, "replay", "-n", p.ns, name)
	Expect(err).NotTo(HaveOccurred())
	return &r
}

// expectCounts expects a replay that has replayed so many, all with success.
func (p *pipeline) expectCounts(ctx context.Context, name string, n int64) {
	GinkgoHelper()
	r := p.getReplay(ctx, name)
	Expect(r.Status.Conditions).To(haveCondition(v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonSucceeded))
	Expect([]int64{r.Status.Matched, r.Status.Replayed, r.Status.Succeeded, r.Status.Dead, r.Status.Skipped}).
		To(Equal([]int64{n, n, n, 0, 0}), "matched, replayed, succeeded, dead, skipped")
	Expect(r.Status.CompletionTime).NotTo(BeNil())
}
