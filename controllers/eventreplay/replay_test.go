package eventreplay

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/event"
)

var _ = Describe("An EventReplay", func() {
	var w *world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	// complete delivers what is due until a replay is at its end.
	complete := func(ctx context.Context, r *v1alpha1.EventReplay, v event.Verdict) (delivered []event.ID) {
		GinkgoHelper()
		Eventually(func() bool {
			delivered = append(delivered, w.deliver(ctx, v)...)
			return Finished(w.now(ctx, r))
		}).Should(BeTrue())
		return delivered
	}
	status := func(r *v1alpha1.EventReplay) []int64 {
		s := &r.Status
		return []int64{s.Matched, s.Replayed, s.Succeeded, s.Dead, s.Skipped}
	}

	It("delivers what it selects once more, and says how that went", func(ctx SpecContext) {
		pushes := w.dead(ctx, 300, "push")
		w.dead(ctx, 20, "ping")
		r := w.replay(ctx, "after-fix", func(s *v1alpha1.EventReplaySpec) {
			s.Selector = v1alpha1.ReplaySelector{Types: []string{"push"}, Destinations: []string{"handler"}}
		})
		w.says(ctx, r, "Planned=True Matched: Matched 300 deliveries", "Complete=False InProgress: 300 runs have not ended",
			"Progressing=True InProgress: Starting runs and following them to their end",
			"Reconciling=True Progressing: Starting runs and following them to their end")
		Expect(r.Status.SampleEventIDs).To(Equal(texts(pushes[:20])))
		Eventually(func() int64 { return w.now(ctx, r).Status.Pending }).Should(BeNumerically(">", 0))
		Expect(r.Status.StartTime).NotTo(BeNil())
		Expect(r.Status.CompletionTime).To(BeNil())

		Expect(complete(ctx, r, event.VerdictDone)).To(ConsistOf(pushes))
		Expect(conditionLines(r)).To(Equal([]string{"Planned=True Matched: Matched 300 deliveries", "Complete=True Succeeded: 300 runs succeeded"}))
		Expect(status(r)).To(Equal([]int64{300, 300, 300, 0, 0}))
		Expect(r.Status.Pending).To(BeZero())
		Expect(r.Status.EstimatedCompletionTime).To(BeNil())
		Expect(r.Status.CompletionTime.Time).To(BeTemporally(">=", r.Status.StartTime.Time))
		Expect(r.Status.ObservedGeneration).To(Equal(r.Generation))
		Eventually(w.events).WithArguments(ctx, r).Should(ConsistOf("Normal Planned: Matched 300 deliveries", "Normal Complete: 300 runs succeeded"))
	})

	It("says so when what it replays dies again", func(ctx SpecContext) {
		w.dead(ctx, 3, "push")
		r := w.replay(ctx, "too-early", nil)
		complete(ctx, r, event.VerdictDead)
		Expect(conditionLines(r)).To(ContainElement("Complete=True CompletedWithFailures: 0 runs succeeded, 3 are dead again"))
		Expect(status(r)).To(Equal([]int64{3, 3, 0, 3, 0}))
		Eventually(w.events).WithArguments(ctx, r).Should(ContainElement("Warning CompletedWithFailures: 0 runs succeeded, 3 are dead again"))

		again := w.replay(ctx, "after-fix", nil)
		complete(ctx, again, event.VerdictDone)
		Expect(status(again)).To(Equal([]int64{3, 3, 3, 0, 0}))
		Expect(w.runs(ctx)).To(Equal(map[int]int{1: 3, 2: 3, 3: 3}))
	})

	It("matches nothing where there is nothing", func(ctx SpecContext) {
		// No event has ever come in: the database does not know the endpoint.
		r := w.replay(ctx, "nothing", nil)
		w.says(ctx, r, "Planned=True NothingMatched: The database has never had an event of this endpoint", "Complete=True NothingMatched: There was nothing to replay")
		counted := w.replay(ctx, "nothing-to-count", func(s *v1alpha1.EventReplaySpec) { s.Mode = v1alpha1.ReplayModeDryRun })
		w.says(ctx, counted, "Complete=True NothingMatched: There was nothing to replay")

		w.dead(ctx, 1, "push")
		other := w.replay(ctx, "another-type", func(s *v1alpha1.EventReplaySpec) { s.Selector = v1alpha1.ReplaySelector{Types: []string{"ping"}} })
		w.says(ctx, other, "Planned=True NothingMatched: The selector matched no delivery", "Complete=True NothingMatched: There was nothing to replay")
		Expect(w.runs(ctx)).To(Equal(map[int]int{1: 1}))
	})

	It("selects dead letters by why and when they died", func(ctx SpecContext) {
		ids := w.dead(ctx, 3, "push")
		selecting := func(name string, x v1alpha1.ReplaySelector) *v1alpha1.EventReplay {
			return w.replay(ctx, name, func(s *v1alpha1.EventReplaySpec) { s.Selector = x })
		}
		hourAgo, soon := metav1.NewTime(time.Now().Add(-time.Hour)), metav1.NewTime(time.Now().Add(time.Hour))
		for name, x := range map[string]v1alpha1.ReplaySelector{
			"reason": {Reasons: []v1alpha1.DeadReason{v1alpha1.DeadReasonOutcomeUnknown}},
			"status": {LastStatuses: []string{"401", "5xx"}},
			"time":   {DiedBefore: &hourAgo},
		} {
			w.says(ctx, selecting("another-"+name, x), "Complete=True NothingMatched: There was nothing to replay")
		}
		r := selecting("after-fix", v1alpha1.ReplaySelector{
			Reasons: []v1alpha1.DeadReason{v1alpha1.DeadReasonPermanentStatus}, LastStatuses: []string{"4xx"}, DiedAfter: &hourAgo, DiedBefore: &soon,
		})
		Expect(complete(ctx, r, event.VerdictDone)).To(ConsistOf(ids))
		Expect(status(r)).To(Equal([]int64{3, 3, 3, 0, 0}))
	})

	It("delivers to a new destination what came in before it was added", func(ctx SpecContext) {
		ids := w.dead(ctx, 30, "push")
		r := w.replay(ctx, "fill", func(s *v1alpha1.EventReplaySpec) {
			s.Selector = v1alpha1.ReplaySelector{States: []v1alpha1.ReplayState{v1alpha1.ReplayStateMissing}, Destinations: []string{"warehouse"}}
		})
		const message = "Waiting for a destination, which the database knows once an ingress has started with it: " +
			`destination "warehouse": the database knows no such destination of the endpoint`
		w.says(ctx, r, "Planned=False DestinationNotFound: "+message, "Progressing=False Waiting: "+message)

		w.destinations(ctx, "handler", "warehouse")
		warehouse := w.destination()
		warehouse.Name = "warehouse"
		Expect(w.store.Register(ctx, []event.DestinationRef{warehouse})).To(Succeed()) // as an ingress does
		Eventually(func() int64 { return w.now(ctx, r).Status.Pending }).Should(Equal(int64(30)))
		Expect(w.deliverTo(ctx, warehouse, event.VerdictDone)).To(ConsistOf(ids))
		w.says(ctx, r, "Planned=True Matched: Matched 30 deliveries", "Complete=True Succeeded: 30 runs succeeded")
		Expect(status(r)).To(Equal([]int64{30, 30, 30, 0, 0}))
		Expect(w.runs(ctx)).To(Equal(map[int]int{1: 60}), "the first run of each at either destination")
	})

	It("counts without changing anything in a dry run", func(ctx SpecContext) {
		ids := w.dead(ctx, 7, "push")
		before := contents(ctx, w.database.URL())
		r := w.replay(ctx, "would-it", func(s *v1alpha1.EventReplaySpec) { s.Mode, s.Limit = v1alpha1.ReplayModeDryRun, 5 })
		w.says(ctx, r, "Planned=True DryRun: Would replay 5 deliveries; nothing was changed", "Complete=True DryRun: Would replay 5 deliveries; nothing was changed")
		Expect(status(r)).To(Equal([]int64{5, 0, 0, 0, 0}))
		Expect(r.Status.SampleEventIDs).To(Equal(texts(ids[:5])))
		Expect(r.Status.CompletionTime).To(Equal(r.Status.StartTime))
		Expect(contents(ctx, w.database.URL())).To(Equal(before))
	})

	It("takes no more than its limit, the oldest first", func(ctx SpecContext) {
		ids := w.dead(ctx, 10, "push")
		r := w.replay(ctx, "some", func(s *v1alpha1.EventReplaySpec) { s.Limit = 3 })
		Expect(complete(ctx, r, event.VerdictDone)).To(ConsistOf(ids[:3]))
		Expect(status(r)).To(Equal([]int64{3, 3, 3, 0, 0}))
	})

	It("starts no more runs than maxPerSecond allows, and tells when it will be complete", func(ctx SpecContext) {
		const perSecond, dead = 10, 90
		w.dead(ctx, dead, "push")
		began := time.Now()
		r := w.replay(ctx, "slowly", func(s *v1alpha1.EventReplaySpec) { s.MaxPerSecond = perSecond })
		estimates := map[time.Time]bool{}
		var rates []float64
		Eventually(func() int {
			w.deliver(ctx, event.VerdictDone)
			n := w.runs(ctx)[2]
			Expect(float64(n)).To(BeNumerically("<=", perSecond*time.Since(began).Seconds()), "so many runs are too many by now")
			if end := w.now(ctx, r).Status.EstimatedCompletionTime; end != nil {
				estimates[end.Time] = true
				perSecond, err := strconv.ParseFloat(r.Status.RatePerSecond, 64)
				Expect(err).NotTo(HaveOccurred())
				rates = append(rates, perSecond)
			}
			return n
		}).Should(Equal(dead))
		Expect(time.Since(began)).To(BeNumerically("<", 3*dead/perSecond*time.Second))
		complete(ctx, r, event.VerdictDone)
		Expect(status(r)).To(Equal([]int64{dead, dead, dead, 0, 0}))
		Expect(len(estimates)).To(And(BeNumerically(">", 0), BeNumerically("<", 4)))
		Expect(rates).To(HaveEach(And(BeNumerically(">", 0), BeNumerically("<=", 1.5*perSecond))))
		Expect(r.Status.RatePerSecond).To(BeEmpty(), "it does not go on")
		for end := range estimates {
			Expect(end).To(BeTemporally("~", r.Status.CompletionTime.Time, 20*time.Second))
		}
	})

	Context("that is suspended", func() {
		It("from the start is planned, and starts nothing before it is resumed", func(ctx SpecContext) {
			w.dead(ctx, 5, "push")
			r := w.replay(ctx, "later", func(s *v1alpha1.EventReplaySpec) { s.Suspend = true })
			w.says(ctx, r, "Planned=True Matched: Matched 5 deliveries", "Suspended=True Suspended: spec.suspend is true: no further runs are started",
				"Complete=False Suspended: 5 runs are to start once spec.suspend is false, 0 runs have not ended")
			w.dead(ctx, 3, "push") // not part of the plan
			Consistently(func() map[int]int { return w.runs(ctx) }).Should(Equal(map[int]int{1: 8}))

			w.suspend(ctx, r, false)
			complete(ctx, r, event.VerdictDone)
			Expect(conditionLines(r)).To(Equal([]string{"Planned=True Matched: Matched 5 deliveries", "Complete=True Succeeded: 5 runs succeeded"}))
			Eventually(w.events).WithArguments(ctx, r).Should(ConsistOf("Normal Planned: Matched 5 deliveries",
				"Normal Suspended: spec.suspend is true: no further runs are started", "Normal Resumed: spec.suspend is false: further runs are started",
				"Normal Complete: 5 runs succeeded"))
		})

		It("half-way starts no more, and follows what it has started", func(ctx SpecContext) {
			const dead = 400
			w.dead(ctx, dead, "push")
			r := w.replay(ctx, "stop-it", nil)
			Eventually(func() int64 { return w.now(ctx, r).Status.Replayed }).Should(BeNumerically(">", 0))
			w.suspend(ctx, r, true)
			w.says(ctx, r, HavePrefix("Suspended=True"))
			started := r.Status.Replayed
			Expect(started).To(BeNumerically("<", dead))
			w.deliver(ctx, event.VerdictDone)
			Eventually(func() int64 { return w.now(ctx, r).Status.Succeeded }).Should(Equal(started))
			Consistently(func() []int64 { return status(w.now(ctx, r)) }).Should(Equal([]int64{dead, started, started, 0, 0}))
			Expect(w.deliver(ctx, event.VerdictDone)).To(BeEmpty())

			w.suspend(ctx, r, false)
			complete(ctx, r, event.VerdictDone)
			Expect(status(r)).To(Equal([]int64{dead, dead, dead, 0, 0}))
			Expect(w.runs(ctx)).To(Equal(map[int]int{1: dead, 2: dead}))
		})
	})

	It("goes on where it stopped when the manager is replaced", func(ctx SpecContext) {
		const dead = 600
		w.dead(ctx, dead, "push")
		r := w.replay(ctx, "survivor", nil)
		Eventually(func() int { return w.runs(ctx)[2] }).Should(BeNumerically(">", 0))
		w.stop()
		w.deliver(ctx, event.VerdictDone)
		Expect(w.runs(ctx)[2]).To(BeNumerically("<", dead))
		Expect(Finished(w.now(ctx, r))).To(BeFalse())
		for !Finished(w.now(ctx, r)) {
			w.start()
			n := w.runs(ctx)[2]
			Eventually(func() bool {
				w.deliver(ctx, event.VerdictDone)
				return w.runs(ctx)[2] > n || Finished(w.now(ctx, r))
			}).Should(BeTrue())
			w.stop()
		}
		Expect(status(r)).To(Equal([]int64{dead, dead, dead, 0, 0}))
		Expect(w.runs(ctx)).To(Equal(map[int]int{1: dead, 2: dead}))
	})

	It("shares with another one, and no delivery is taken twice", func(ctx SpecContext) {
		const dead = 300
		w.dead(ctx, dead, "push")
		first, second := w.replay(ctx, "first", nil), w.replay(ctx, "second", nil)
		w.says(ctx, first, HavePrefix("Planned=True"))
		w.says(ctx, second, HavePrefix("Planned=True"))
		complete(ctx, first, event.VerdictDone)
		complete(ctx, second, event.VerdictDone)
		Expect(w.runs(ctx)).To(Equal(map[int]int{1: dead, 2: dead}))
		for _, r := range []*v1alpha1.EventReplay{first, second} {
			for _, skipped := range r.Status.SkippedReasons {
				Expect(skipped.Reason).To(BeElementOf(v1alpha1.SkipReasonAlreadyPending, v1alpha1.SkipReasonTakenByAnotherReplay))
			}
			Expect(r.Status.Replayed + r.Status.Skipped).To(Equal(r.Status.Matched))
			Expect(r.Status.Succeeded).To(Equal(r.Status.Replayed))
		}
		Expect(first.Status.Replayed + second.Status.Replayed).To(Equal(int64(dead)))
	})

	It("starts nothing more once it is deleted, and what it has started is delivered", func(ctx SpecContext) {
		w.dead(ctx, 400, "push")
		r := w.replay(ctx, "mistake", nil)
		Eventually(func() int { return w.runs(ctx)[2] }).Should(BeNumerically(">", 0))
		Expect(w.Delete(ctx, r)).To(Succeed())
		Expect(apierrors.IsNotFound(w.Get(ctx, client.ObjectKeyFromObject(r), r))).To(BeTrue(), "no finalizer holds it")
		// A look that was under way may still start some.
		var started int
		Eventually(func() bool {
			before := started
			started = w.runs(ctx)[2]
			return started == before
		}, "10s", "1s").Should(BeTrue())
		Expect(started).To(BeNumerically("<", 400))
		Expect(w.deliver(ctx, event.VerdictDone)).To(HaveLen(started))
		Consistently(func() int { return w.runs(ctx)[2] }).Should(Equal(started))

		// The same name is another replay now.
		again := w.replay(ctx, "mistake", nil)
		complete(ctx, again, event.VerdictDone)
		Expect(status(again)).To(Equal([]int64{int64(400 - started), int64(400 - started), int64(400 - started), 0, 0}))
	})

	It("is deleted when its time after the end is over, and stays without one", func(ctx SpecContext) {
		w.dead(ctx, 2, "push")
		stays := w.replay(ctx, "stays", func(s *v1alpha1.EventReplaySpec) { s.Limit = 1 })
		complete(ctx, stays, event.VerdictDone)
		ttl := int32(2)
		goes := w.replay(ctx, "goes", func(s *v1alpha1.EventReplaySpec) { s.TTLSecondsAfterFinished = &ttl })
		complete(ctx, goes, event.VerdictDone)
		finished := finishedCondition(goes).LastTransitionTime.Time
		Eventually(func() bool {
			return apierrors.IsNotFound(w.Get(ctx, client.ObjectKeyFromObject(goes), goes))
		}).Should(BeTrue())
		Expect(time.Since(finished)).To(BeNumerically(">=", 2*time.Second))
		w.now(ctx, stays)
		Expect(w.runs(ctx)).To(Equal(map[int]int{1: 2, 2: 2}), "what it has replayed stays")
	})

	It("is left alone once it has finished", func(ctx SpecContext) {
		w.dead(ctx, 1, "push")
		r := w.replay(ctx, "done", nil)
		complete(ctx, r, event.VerdictDone)
		Expect(w.writes.Load()).To(BeNumerically(">", 0))
		w.stop()
		writes := w.writes.Load()
		w.start()
		endpoint := w.endpoint()
		Expect(w.Get(ctx, client.ObjectKeyFromObject(endpoint), endpoint)).To(Succeed())
		endpoint.Spec.Worker.LeaseSeconds = 90
		Expect(w.Update(ctx, endpoint)).To(Succeed())
		Consistently(w.writes.Load).Should(Equal(writes))

		w.suspend(ctx, r, true)
		Eventually(func() int64 { return w.now(ctx, r).Status.ObservedGeneration }).Should(Equal(r.Generation))
		Expect(conditionLines(r)).To(Equal([]string{"Planned=True Matched: Matched 1 delivery", "Complete=True Succeeded: 1 run succeeded"}))
	})

	It("is not written while nothing changes", func(ctx SpecContext) {
		w.dead(ctx, 1, "push")
		r := w.replay(ctx, "slow-handler", nil)
		w.says(ctx, r, "Complete=False InProgress: 1 run has not ended")
		Expect(r.Status.Replayed).To(Equal(int64(1)))
		writes := w.writes.Load()
		Consistently(w.writes.Load, "4s").Should(Equal(writes))
	})

	Context("that cannot go on", func() {
		It("waits for its endpoint", func(ctx SpecContext) {
			w.dead(ctx, 2, "push")
			endpoint := w.endpoint()
			Expect(w.Delete(ctx, endpoint)).To(Succeed())
			const message = `Waiting for the WebhookEndpoint "github": there is none of this name in the namespace`
			Eventually(func() bool {
				return apierrors.IsNotFound(w.Get(ctx, client.ObjectKeyFromObject(endpoint), endpoint))
			}).Should(BeTrue())
			r := w.replay(ctx, "early", nil)
			w.says(ctx, r, "Planned=False EndpointNotFound: "+message, "Complete=False Waiting: "+message, "Reconciling=True Waiting: "+message)
			Eventually(w.events).WithArguments(ctx, r).Should(ConsistOf("Warning Waiting: " + message))
			writes := w.writes.Load()
			Consistently(w.writes.Load).Should(Equal(writes))

			w.create(ctx, w.endpoint())
			complete(ctx, r, event.VerdictDone)
			Expect(status(r)).To(Equal([]int64{2, 2, 2, 0, 0}))
		})

		It("waits for the Secret of the database", func(ctx SpecContext) {
			w.dead(ctx, 2, "push")
			Expect(w.Delete(ctx, w.secret())).To(Succeed())
			r := w.replay(ctx, "early", nil)
			w.says(ctx, r, `Planned=False Waiting: Waiting for the database's URL: there is no Secret "ackrail-database"`)
			empty := w.secret()
			empty.StringData = map[string]string{"url": "postgres://127.0.0.1/x"}
			w.create(ctx, empty)
			w.turnStoreReady(ctx) // is as good as ten seconds
			w.says(ctx, r, `Planned=False Waiting: Waiting for the database's URL: the Secret "ackrail-database" has no key "uri", or it is empty`)
			right := w.secret()
			Expect(w.Update(ctx, right)).To(Succeed())
			complete(ctx, r, event.VerdictDone)
			Expect(status(r)).To(Equal([]int64{2, 2, 2, 0, 0}))
		})

		It("waits for the database, and keeps what it has counted", func(ctx SpecContext) {
			const dead = 400
			w.dead(ctx, dead, "push")
			r := w.replay(ctx, "long-one", nil)
			Eventually(func() int64 { return w.now(ctx, r).Status.Replayed }).Should(BeNumerically(">", 0))
			w.database.Refuse()
			w.database.Cut()
			w.says(ctx, r, "Planned=True Matched: Matched 400 deliveries", HavePrefix("Complete=False Waiting: Waiting for the database: "))
			Expect(r.Status.Matched).To(Equal(int64(dead)))
			Expect(r.Status.Replayed).To(BeNumerically(">", 0))
			Eventually(w.events).WithArguments(ctx, r).Should(ContainElement(HavePrefix("Warning Waiting: Waiting for the database: ")))

			w.database.Accept()
			complete(ctx, r, event.VerdictDone)
			Expect(status(r)).To(Equal([]int64{dead, dead, dead, 0, 0}))
		})

		It("goes on at once when the endpoint says that the database is back", func(ctx SpecContext) {
			w.dead(ctx, 1, "push")
			w.database.Refuse()
			r := w.replay(ctx, "early", nil)
			w.says(ctx, r, HavePrefix("Planned=False Waiting: Waiting for the database: "))
			w.database.Accept()
			// What is known of a database that was away holds for some seconds.
			Eventually(func() bool {
				w.turnStoreReady(ctx)
				return meta.IsStatusConditionTrue(w.now(ctx, r).Status.Conditions, v1alpha1.ConditionPlanned)
			}, "8s", "500ms").Should(BeTrue())
		})
	})

	DescribeTable("cannot be changed but for suspend", func(ctx SpecContext, change func(*v1alpha1.EventReplaySpec), message string) {
		r := w.replay(ctx, "fixed", func(s *v1alpha1.EventReplaySpec) { s.Suspend, s.Limit = true, 3 })
		Eventually(func() error {
			change(&w.now(ctx, r).Spec)
			err := w.Update(ctx, r)
			if apierrors.IsConflict(err) {
				return err
			}
			if message == "" {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
				Expect(err).To(MatchError(ContainSubstring(message)))
			}
			return nil
		}).Should(Succeed())
	},
		Entry("suspend", func(s *v1alpha1.EventReplaySpec) { s.Suspend = false }, ""),
		Entry("endpoint", func(s *v1alpha1.EventReplaySpec) { s.EndpointRef.Name = "gitlab" }, "spec.endpointRef: Invalid value"),
		Entry("selector", func(s *v1alpha1.EventReplaySpec) { s.Selector = v1alpha1.ReplaySelector{Types: []string{"push"}} }, "spec.selector: Invalid value"),
		Entry("states", func(s *v1alpha1.EventReplaySpec) {
			s.Selector.States = []v1alpha1.ReplayState{v1alpha1.ReplayStateDone}
		}, "spec.selector: Invalid value"),
		Entry("mode", func(s *v1alpha1.EventReplaySpec) { s.Mode = v1alpha1.ReplayModeDryRun }, "spec.mode: Invalid value"),
		Entry("limit", func(s *v1alpha1.EventReplaySpec) { s.Limit = 4 }, "spec.limit: Invalid value"),
		Entry("no limit", func(s *v1alpha1.EventReplaySpec) { s.Limit = 0 }, "spec.limit: Invalid value"),
		Entry("rate", func(s *v1alpha1.EventReplaySpec) { s.MaxPerSecond = 4 }, "spec.maxPerSecond: Invalid value"),
		Entry("ttl", func(s *v1alpha1.EventReplaySpec) { s.TTLSecondsAfterFinished = new(int32) }, "spec.ttlSecondsAfterFinished: Invalid value"),
	)
})

func texts(ids []event.ID) (texts []string) {
	for _, id := range ids {
		texts = append(texts, id.String())
	}
	return texts
}

// turnStoreReady changes the endpoint's condition StoreReady to what it is
// not.
func (w *world) turnStoreReady(ctx context.Context) {
	GinkgoHelper()
	endpoint := w.endpoint()
	Expect(w.Get(ctx, client.ObjectKeyFromObject(endpoint), endpoint)).To(Succeed())
	value := "True"
	if meta.IsStatusConditionTrue(endpoint.Status.Conditions, v1alpha1.ConditionStoreReady) {
		value = "False"
	}
	patch := `{"status":{"conditions":[{"type":"StoreReady","status":"` + value + `","reason":"Test","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	Expect(w.Status().Patch(ctx, endpoint, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
}

// contents returns every row of every table of a database.
func contents(ctx context.Context, url string) map[string]string {
	GinkgoHelper()
	conn, err := pgx.Connect(ctx, url)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, `SELECT relname::text FROM pg_class
		WHERE relnamespace = to_regnamespace(quote_ident(current_schema())) AND relkind IN ('r', 'p') AND NOT relispartition`)
	Expect(err).NotTo(HaveOccurred())
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	Expect(err).NotTo(HaveOccurred())
	Expect(tables).To(ContainElement("replay_item"))
	all := map[string]string{}
	for _, table := range tables {
		var text string
		query := "SELECT coalesce(string_agg(r::text, E'\\n' ORDER BY r::text), '') FROM " + pgx.Identifier{table}.Sanitize() + " AS r"
		Expect(conn.QueryRow(ctx, query).Scan(&text)).To(Succeed())
		all[table] = strings.TrimSpace(text)
	}
	return all
}
