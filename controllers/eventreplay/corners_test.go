package eventreplay

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
)

// fatal are Stores that kill the manager at a step: after a call of its
// database has taken effect, or before it would, and before anything of it is
// known to the manager.
type fatal struct {
	Stores
	at func(step string, status *replay.Status) bool
	// kill ends the manager, died tells of it, once.
	kill func()
	died func()
}

func (f fatal) For(ctx context.Context, url string) (replay.Store, error) {
	s, err := f.Stores.For(ctx, url)
	return fatalStore{s, f}, err
}

type fatalStore struct {
	replay.Store
	fatal fatal
}

var errKilled = errors.New("the manager is dead")

func (s fatalStore) step(name string, status *replay.Status, err error) error {
	if err != nil || !s.fatal.at(name, status) {
		return err
	}
	s.fatal.kill()
	s.fatal.died()
	return errKilled
}

func (s fatalStore) PlanReplay(ctx context.Context, r replay.Request) error {
	if err := s.step("before the plan", nil, nil); err != nil {
		return err
	}
	return s.step("after the plan", nil, s.Store.PlanReplay(ctx, r))
}

func (s fatalStore) RunReplay(ctx context.Context, id uuid.UUID, present []string, batch int) (queued, skipped int, err error) {
	if err := s.step("before a batch", nil, nil); err != nil {
		return 0, 0, err
	}
	queued, skipped, err = s.Store.RunReplay(ctx, id, present, batch)
	return queued, skipped, s.step("after a batch", nil, err)
}

func (s fatalStore) ReplayStatus(ctx context.Context, id uuid.UUID) (replay.Status, error) {
	status, err := s.Store.ReplayStatus(ctx, id)
	return status, s.step("after a look", &status, err)
}

var _ = Describe("An EventReplay, when things go wrong,", func() {
	const dead = 300
	var w *world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	gone := func(ctx context.Context, obj client.Object) {
		GinkgoHelper()
		Expect(w.Delete(ctx, obj)).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(w.Get(ctx, client.ObjectKeyFromObject(obj), obj))
		}).Should(BeTrue())
	}
	// end delivers what is due until a replay has completed with all of it
	// done.
	end := func(ctx context.Context, r *v1alpha1.EventReplay) {
		GinkgoHelper()
		Eventually(func() bool {
			w.deliver(ctx, event.VerdictDone)
			return Finished(w.now(ctx, r))
		}).Should(BeTrue())
		Expect(conditionLines(r)).To(ConsistOf("Planned=True Matched: Matched 300 deliveries", "Complete=True Succeeded: 300 runs succeeded"))
		Expect(w.runs(ctx)).To(Equal(map[int]int{1: dead, 2: dead}), "each of them once more, and once only")
	}

	DescribeTable("goes on when the manager is killed", func(ctx SpecContext, step string, is func(*replay.Status) bool) {
		w.stop()
		w.dead(ctx, dead, "push")
		dying := make(chan struct{})
		died := sync.OnceFunc(func() { close(dying) })
		w.startWith(func(s Stores, kill func()) Stores {
			return fatal{s, func(at string, status *replay.Status) bool { return at == step && (is == nil || is(status)) }, kill, died}
		})
		r := w.replay(ctx, "survivor", nil)
		Eventually(func() bool {
			w.deliver(ctx, event.VerdictDone)
			select {
			case <-dying:
				return true
			default:
				return false
			}
		}).Should(BeTrue(), "the manager should have died")
		w.stop()
		Expect(Finished(w.now(ctx, r))).To(BeFalse())
		w.start()
		end(ctx, r)
	},
		Entry("before its plan is made", "before the plan", nil),
		Entry("when its plan was made, and nobody knows", "after the plan", nil),
		Entry("when it has just read the plan", "after a look", func(s *replay.Status) bool { return s.Queued == 0 }),
		Entry("before a batch", "before a batch", nil),
		Entry("when a batch was started, and nobody knows", "after a batch", nil),
		Entry("when all was started", "after a look", func(s *replay.Status) bool { return s.Matched > 0 && s.Planned() == 0 }),
		Entry("when its end was recorded, and nobody knows", "after a look", func(s *replay.Status) bool { return s.CompletedAt != nil }),
	)

	It("waits half-way for an endpoint that was deleted, and goes on with the next one of its name", func(ctx SpecContext) {
		w.dead(ctx, dead, "push")
		r := w.replay(ctx, "orphan", nil)
		Eventually(func() int64 { return w.now(ctx, r).Status.Replayed }).Should(BeNumerically(">", 0))
		gone(ctx, w.endpoint())
		const message = `Waiting for the WebhookEndpoint "github": there is none of this name in the namespace`
		w.says(ctx, r, "Planned=True Matched: Matched 300 deliveries", "Complete=False Waiting: "+message, "Progressing=False Waiting: "+message)
		started := w.runs(ctx)[2]
		Expect(started).To(BeNumerically("<", dead))
		Consistently(func() int { return w.runs(ctx)[2] }).Should(Equal(started), "no runs are started for nobody")
		Expect(r.Status.EstimatedCompletionTime).To(BeNil())

		w.create(ctx, w.endpoint())
		end(ctx, r)
		Eventually(w.events).WithArguments(ctx, r).Should(ConsistOf("Normal Planned: Matched 300 deliveries", "Warning Waiting: "+message, "Normal Complete: 300 runs succeeded"))
	})

	It("waits for its database while that is away, also when the manager is replaced meanwhile", func(ctx SpecContext) {
		w.dead(ctx, dead, "push")
		r := w.replay(ctx, "patient", nil)
		Eventually(func() int64 { return w.now(ctx, r).Status.Replayed }).Should(BeNumerically(">", 0))
		w.database.Refuse()
		w.database.Cut()
		w.says(ctx, r, HavePrefix("Complete=False Waiting: Waiting for the database: "))
		w.stop()
		w.start()
		w.says(ctx, r, "Planned=True Matched: Matched 300 deliveries", HavePrefix("Progressing=False Waiting: Waiting for the database: "))
		Expect(r.Status.Matched).To(Equal(int64(dead)))
		w.database.Accept()
		end(ctx, r)
	})

	It("that overlaps with another one tells what the other has taken", func(ctx SpecContext) {
		w.dead(ctx, 5, "push")
		first := w.replay(ctx, "first", func(s *v1alpha1.EventReplaySpec) { s.Suspend = true })
		second := w.replay(ctx, "second", func(s *v1alpha1.EventReplaySpec) { s.Suspend = true })
		third := w.replay(ctx, "third", func(s *v1alpha1.EventReplaySpec) { s.Suspend = true })
		for _, r := range []*v1alpha1.EventReplay{first, second, third} {
			w.says(ctx, r, "Planned=True Matched: Matched 5 deliveries")
		}
		w.suspend(ctx, first, false)
		Eventually(func() int64 { return w.now(ctx, first).Status.Pending }).Should(Equal(int64(5)))

		w.suspend(ctx, second, false)
		w.says(ctx, second, "Complete=True Succeeded: 0 runs succeeded, 5 deliveries were skipped")
		Expect(second.Status.SkippedReasons).To(Equal([]v1alpha1.SkippedCount{{Reason: v1alpha1.SkipReasonAlreadyPending, Count: 5}}))

		Expect(w.deliver(ctx, event.VerdictDone)).To(HaveLen(5))
		w.says(ctx, first, "Complete=True Succeeded: 5 runs succeeded")
		w.suspend(ctx, third, false)
		w.says(ctx, third, "Complete=True Succeeded: 0 runs succeeded, 5 deliveries were skipped")
		Expect(third.Status.SkippedReasons).To(Equal([]v1alpha1.SkippedCount{{Reason: v1alpha1.SkipReasonTakenByAnotherReplay, Count: 5}}))
		Expect(w.runs(ctx)).To(Equal(map[int]int{1: 5, 2: 5}))
	})

	It("that is deleted and made again half-way takes the rest", func(ctx SpecContext) {
		w.dead(ctx, dead, "push")
		r := w.replay(ctx, "again", nil)
		Eventually(func() int64 { return w.now(ctx, r).Status.Replayed }).Should(BeNumerically(">", 0))
		w.stop()
		gone(ctx, r)
		taken := w.runs(ctx)[2]
		Expect(taken).To(BeNumerically("<", dead))
		next := w.replay(ctx, "again", nil)
		w.start()
		Eventually(func() bool {
			w.deliver(ctx, event.VerdictDone)
			return Finished(w.now(ctx, next))
		}).Should(BeTrue())
		Expect(next.Status.Matched).To(Equal(int64(dead-taken)), "the same name, but another plan")
		Expect(next.Status.Succeeded).To(Equal(next.Status.Matched))
		Expect(w.runs(ctx)).To(Equal(map[int]int{1: dead, 2: dead}))
	})

	const goneMessage = `Waiting for the destination "handler", which the endpoint no longer has and to which 128 runs have not ended: ` +
		"add it again, or delete the replay"

	It("starts nothing for a destination that is gone, and leaves the dead letters to another one", func(ctx SpecContext) {
		w.dead(ctx, 5, "push")
		w.destinations(ctx, "other")
		dry := w.replay(ctx, "would-it", func(s *v1alpha1.EventReplaySpec) { s.Mode = v1alpha1.ReplayModeDryRun })
		w.says(ctx, dry, "Complete=True DryRun: Would replay 0 deliveries, and skip 5 others whose destination the endpoint no longer has; nothing was changed")
		r := w.replay(ctx, "too-late", nil)
		w.says(ctx, r, "Planned=True Matched: Matched 5 deliveries", "Complete=True Succeeded: 0 runs succeeded, 5 deliveries were skipped")
		for _, seen := range []*v1alpha1.EventReplay{dry, r} {
			Expect(seen.Status.SkippedReasons).To(Equal([]v1alpha1.SkippedCount{{Reason: v1alpha1.SkipReasonDestinationGone, Count: 5}}))
		}

		w.destinations(ctx, "other", "handler")
		again := w.replay(ctx, "in-time", nil)
		Eventually(func() bool {
			w.deliver(ctx, event.VerdictDone)
			return Finished(w.now(ctx, again))
		}).Should(BeTrue())
		Expect(conditionLines(again)).To(ContainElement("Complete=True Succeeded: 5 runs succeeded"))
		Expect(w.runs(ctx)).To(Equal(map[int]int{1: 5, 2: 5}))
	})

	It("says so when what it has started waits for a destination that was removed, and goes on when it is back", func(ctx SpecContext) {
		w.dead(ctx, dead, "push")
		r := w.replay(ctx, "stranded", nil)
		Eventually(func() int64 { return w.now(ctx, r).Status.Pending }).Should(Equal(int64(128)))
		w.destinations(ctx, "other")
		w.says(ctx, r, "Complete=False Waiting: "+goneMessage, "Progressing=False Waiting: "+goneMessage)
		Expect(r.Status.SkippedReasons).To(Equal([]v1alpha1.SkippedCount{{Reason: v1alpha1.SkipReasonDestinationGone, Count: dead - 128}}), "what was not started yet")
		Eventually(func() []string { return w.events(ctx, r) }).Should(ContainElement("Warning Waiting: " + goneMessage))

		w.destinations(ctx, "other", "handler")
		Eventually(func() bool {
			w.deliver(ctx, event.VerdictDone)
			return Finished(w.now(ctx, r))
		}).Should(BeTrue())
		Expect(conditionLines(r)).To(ContainElement("Complete=True Succeeded: 128 runs succeeded, 172 deliveries were skipped"))
	})
})
