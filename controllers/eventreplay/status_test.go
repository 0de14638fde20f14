package eventreplay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/replay"
)

var (
	plannedAt   = time.Date(2026, 1, 1, 10, 0, 0, 5, time.UTC)
	completedAt = plannedAt.Add(time.Minute)
	lookedAt    = plannedAt.Add(time.Hour)
)

func newReplay() *v1alpha1.EventReplay {
	return &v1alpha1.EventReplay{
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "after-fix", Generation: 3},
		Spec: v1alpha1.EventReplaySpec{
			EndpointRef: v1alpha1.EndpointRef{Name: "github"},
			Selector:    v1alpha1.ReplaySelector{Match: v1alpha1.ReplayMatchAll, States: []v1alpha1.ReplayState{v1alpha1.ReplayStateDead}},
			Mode:        v1alpha1.ReplayModeRun,
		},
	}
}

// conditionLines returns the conditions of a replay, one per line.
func conditionLines(r *v1alpha1.EventReplay) []string {
	var lines []string
	for _, c := range r.Status.Conditions {
		lines = append(lines, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return lines
}

func suspended(r *v1alpha1.EventReplay) { r.Spec.Suspend = true }
func dryRun(r *v1alpha1.EventReplay)    { r.Spec.Mode = v1alpha1.ReplayModeDryRun }

// seenBefore is a replay that was looked at earlier.
func seenBefore(seen Seen) func(*v1alpha1.EventReplay) {
	return func(r *v1alpha1.EventReplay) {
		SetStatus(r, seen, plannedAt)
		setHealth(r, seen, plannedAt)
	}
}

func away() *Obstacle {
	return &Obstacle{Reason: v1alpha1.ReasonWaiting, Message: "Waiting for the database"}
}

func running() *replay.Status {
	return &replay.Status{PlannedAt: plannedAt, Matched: 10, Queued: 6, Skipped: 1, Skips: replay.Skips{Purged: 1}, Succeeded: 3, Dead: 1, Open: 2}
}

func TestStatus(t *testing.T) {
	const (
		going   = "Progressing=True InProgress: Starting runs and following them to their end"
		working = "Reconciling=True Progressing: Starting runs and following them to their end"
	)
	missing := &Obstacle{Reason: v1alpha1.ReasonEndpointNotFound, Message: "There is none"}
	changed := &Obstacle{Reason: v1alpha1.ReasonSpecChanged, Message: "It has changed", Final: true}
	for _, tc := range []struct {
		name   string
		is     func(*v1alpha1.EventReplay)
		seen   Seen
		counts string
		want   []string
	}{
		{"planned", nil, Seen{Progress: &replay.Status{PlannedAt: plannedAt, Matched: 1}}, "1 0 0 0 0", []string{
			"Planned=True Matched: Matched 1 delivery", "Complete=False InProgress: 1 run has not ended", going, working,
		}},
		{"running", nil, Seen{Progress: running()}, "10 6 3 1 1", []string{
			"Planned=True Matched: Matched 10 deliveries", "Complete=False InProgress: 5 runs have not ended", going, working,
		}},
		{"done", nil, Seen{Progress: &replay.Status{PlannedAt: plannedAt, CompletedAt: &completedAt, Matched: 2, Queued: 2, Succeeded: 2}}, "2 2 2 0 0", []string{
			"Planned=True Matched: Matched 2 deliveries", "Complete=True Succeeded: 2 runs succeeded",
		}},
		{"dead again", nil, Seen{Progress: &replay.Status{PlannedAt: plannedAt, CompletedAt: &completedAt, Matched: 3, Queued: 3, Succeeded: 1, Dead: 2}}, "3 3 1 2 0", []string{
			"Planned=True Matched: Matched 3 deliveries", "Complete=True CompletedWithFailures: 1 run succeeded, 2 are dead again",
		}},
		{"nothing matched", nil, Seen{Progress: &replay.Status{PlannedAt: plannedAt, CompletedAt: &completedAt}}, "0 0 0 0 0", []string{
			"Planned=True NothingMatched: The selector matched no delivery", "Complete=True NothingMatched: There was nothing to replay",
		}},
		{"endpoint that the database has not seen", nil, Seen{Unseen: true}, "0 0 0 0 0", []string{
			"Planned=True NothingMatched: The database has never had an event of this endpoint", "Complete=True NothingMatched: There was nothing to replay",
		}},
		{"dry run", dryRun, Seen{Progress: &replay.Status{PlannedAt: plannedAt, Matched: 7}}, "7 0 0 0 0", []string{
			"Planned=True DryRun: Would replay 7 deliveries; nothing was changed", "Complete=True DryRun: Would replay 7 deliveries; nothing was changed",
		}},
		{"suspended dry run", func(r *v1alpha1.EventReplay) { dryRun(r); suspended(r) }, Seen{Progress: &replay.Status{PlannedAt: plannedAt, Matched: 1}}, "1 0 0 0 0", []string{
			"Planned=True DryRun: Would replay 1 delivery; nothing was changed", "Complete=True DryRun: Would replay 1 delivery; nothing was changed",
		}},
		{"suspended", suspended, Seen{Progress: running()}, "10 6 3 1 1", []string{
			"Planned=True Matched: Matched 10 deliveries",
			"Complete=False Suspended: 3 runs are to start once spec.suspend is false, 2 runs have not ended",
			"Progressing=False Suspended: 3 runs are to start once spec.suspend is false, 2 runs have not ended",
			"Suspended=True Suspended: spec.suspend is true: no further runs are started",
		}},
		{"suspended too late", suspended, Seen{Progress: &replay.Status{PlannedAt: plannedAt, CompletedAt: &completedAt, Matched: 1, Skipped: 1, Skips: replay.Skips{PayloadPurged: 1}}}, "1 0 0 0 1", []string{
			"Planned=True Matched: Matched 1 delivery", "Complete=True Succeeded: 0 runs succeeded, 1 delivery was skipped",
		}},
		{"resumed", func(r *v1alpha1.EventReplay) {
			suspended(r)
			seenBefore(Seen{Progress: running()})(r)
			r.Spec.Suspend = false
		}, Seen{Progress: running()}, "10 6 3 1 1", []string{
			"Planned=True Matched: Matched 10 deliveries", "Complete=False InProgress: 5 runs have not ended", going, working,
		}},
		{"waiting from the start", nil, Seen{Obstacle: missing}, "0 0 0 0 0", []string{
			"Planned=False EndpointNotFound: There is none", "Complete=False Waiting: There is none",
			"Progressing=False Waiting: There is none", "Reconciling=True Waiting: There is none",
		}},
		{"waiting half-way", seenBefore(Seen{Progress: running()}), Seen{Obstacle: away()}, "10 6 3 1 1", []string{
			"Planned=True Matched: Matched 10 deliveries", "Complete=False Waiting: Waiting for the database",
			"Progressing=False Waiting: Waiting for the database", "Reconciling=True Waiting: Waiting for the database",
		}},
		{"back again", seenBefore(Seen{Obstacle: missing}), Seen{Progress: running()}, "10 6 3 1 1", []string{
			"Planned=True Matched: Matched 10 deliveries", "Complete=False InProgress: 5 runs have not ended", going, working,
		}},
		{"suspended and waiting", suspended, Seen{Obstacle: away()}, "0 0 0 0 0", []string{
			"Planned=False Waiting: Waiting for the database", "Complete=False Waiting: Waiting for the database",
			"Progressing=False Waiting: Waiting for the database",
			"Suspended=True Suspended: spec.suspend is true: no further runs are started",
		}},
		{"failed", seenBefore(Seen{Obstacle: away()}), Seen{Obstacle: changed}, "0 0 0 0 0", []string{
			"Planned=False SpecChanged: It has changed", "Complete=False SpecChanged: It has changed",
			"Failed=True SpecChanged: It has changed", "Stalled=True SpecChanged: It has changed",
		}},
		{"failed while suspended", suspended, Seen{Obstacle: changed}, "0 0 0 0 0", []string{
			"Planned=False SpecChanged: It has changed", "Complete=False SpecChanged: It has changed",
			"Failed=True SpecChanged: It has changed", "Stalled=True SpecChanged: It has changed",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newReplay()
			if tc.is != nil {
				tc.is(r)
			}
			SetStatus(r, tc.seen, lookedAt)
			setHealth(r, tc.seen, lookedAt)
			if diff := cmp.Diff(tc.want, conditionLines(r)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			s := &r.Status
			if got := fmt.Sprint(s.Matched, s.Replayed, s.Succeeded, s.Dead, s.Skipped); got != tc.counts {
				t.Errorf("counts %s, want %s", got, tc.counts)
			}
			checkInvariants(t.Errorf, r)

			// A second look that sees the same writes nothing.
			again := r.DeepCopy()
			if !Finished(again) {
				SetStatus(again, tc.seen, lookedAt.Add(time.Hour))
				setHealth(again, tc.seen, lookedAt.Add(time.Hour))
			}
			observe(again)
			if !equality.Semantic.DeepEqual(r.Status, again.Status) {
				t.Errorf("seen again (-want +got):\n%s", cmp.Diff(r.Status, again.Status))
			}
		})
	}
}

// checkInvariants reports what must not be said of any replay that was looked
// at.
func checkInvariants(errorf func(string, ...any), r *v1alpha1.EventReplay) {
	s := &r.Status
	is := map[string]metav1.ConditionStatus{}
	for _, c := range s.Conditions {
		is[c.Type] = c.Status
		if c.ObservedGeneration != s.ObservedGeneration || c.Reason == "" || c.Message == "" || c.LastTransitionTime.IsZero() {
			errorf("the condition is incomplete: %+v", c)
		}
		negative := !strings.Contains("Planned Complete Progressing", c.Type)
		if negative && c.Status != metav1.ConditionTrue {
			errorf("%s is there without being true", c.Type)
		}
	}
	var skipped int64
	for _, x := range s.SkippedReasons {
		skipped += x.Count
	}
	complete := meta.FindStatusCondition(s.Conditions, "Complete")
	if complete == nil {
		complete = &metav1.Condition{}
	}
	finished := is["Complete"] == "True" || is["Failed"] == "True"
	for what, wrong := range map[string]bool{
		"Planned or Complete is missing":             is["Planned"] == "" || is["Complete"] == "",
		"complete, but not planned":                  is["Complete"] == "True" && is["Planned"] != "True",
		"complete and failed":                        is["Complete"] == "True" && is["Failed"] == "True",
		"finished, yet at work or suspended":         finished && (is["Reconciling"] != "" || is["Suspended"] != ""),
		"failed without being stalled, or otherwise": is["Failed"] != is["Stalled"],
		"neither finished, nor at work or suspended": !finished && is["Reconciling"] == "" && is["Suspended"] == "",
		"finished, yet progressing, or otherwise":    finished != (is["Progressing"] == ""),
		"progressing, yet waiting or suspended":      is["Progressing"] == "True" && (complete.Reason != "InProgress" || is["Suspended"] != ""),
		"more than was matched":                      s.Replayed+s.Skipped > s.Matched,
		"runs are missing":                           s.Succeeded+s.Dead+s.Pending != s.Replayed,
		"skipped for no reason":                      skipped != s.Skipped,
		"an end without a rate, or otherwise":        (s.EstimatedCompletionTime != nil) != (s.RatePerSecond != ""),
		"an end is estimated without progress":       s.EstimatedCompletionTime != nil && is["Progressing"] != "True",
		"samples without a match, or otherwise":      len(s.SampleEventIDs) > 20 || int64(len(s.SampleEventIDs)) > s.Matched,
		"of another generation":                      s.ObservedGeneration > r.Generation,
	} {
		if wrong {
			errorf("%s: %s", what, strings.Join(conditionLines(r), "; "))
		}
	}
}

func TestStatusTimes(t *testing.T) {
	r := newReplay()
	SetStatus(r, Seen{Progress: running()}, lookedAt)
	if got := r.Status; !got.StartTime.Time.Equal(plannedAt.Truncate(time.Second)) || got.CompletionTime != nil {
		t.Errorf("running: from %v to %v", got.StartTime, got.CompletionTime)
	}
	if got := finishedCondition(r); got != nil {
		t.Errorf("running, but finished: %+v", got)
	}
	done := running()
	done.CompletedAt = &completedAt
	SetStatus(r, Seen{Progress: done}, lookedAt.Add(time.Hour))
	if got := r.Status.CompletionTime; !got.Time.Equal(completedAt.Truncate(time.Second)) {
		t.Errorf("completed at %v", got)
	}
	if got := finishedCondition(r); got == nil || got.Type != "Complete" || !got.LastTransitionTime.Time.Equal(lookedAt.Add(time.Hour)) {
		t.Errorf("finished by %+v", got)
	}
	if got := r.Status.Conditions[0].LastTransitionTime; !got.Time.Equal(lookedAt) {
		t.Errorf("planned at %v", got)
	}
	counted := newReplay()
	dryRun(counted)
	SetStatus(counted, Seen{Progress: &replay.Status{PlannedAt: plannedAt}}, lookedAt)
	if got := counted.Status; got.StartTime == nil || !got.CompletionTime.Equal(got.StartTime) {
		t.Errorf("dry run: from %v to %v", got.StartTime, got.CompletionTime)
	}
}

func TestStatusDetails(t *testing.T) {
	var sample []event.ID
	var texts []string
	for range 3 {
		id := uuid.New()
		sample, texts = append(sample, id), append(texts, id.String())
	}
	r := newReplay()
	SetStatus(r, Seen{Progress: &replay.Status{
		Matched: 30, Queued: 5, Succeeded: 1, Dead: 1, Open: 3, Failed: 2, Sample: sample,
		Skipped: 15, Skips: replay.Skips{AlreadyPending: 1, PayloadPurged: 2, Purged: 3, TakenByAnotherReplay: 4, DestinationGone: 5},
	}}, lookedAt)
	want := v1alpha1.EventReplayStatus{
		Matched: 30, Replayed: 5, Pending: 3, Succeeded: 1, Dead: 1, Skipped: 15, SampleEventIDs: texts,
		SkippedReasons: []v1alpha1.SkippedCount{{Reason: "AlreadyPending", Count: 1}, {Reason: "DestinationGone", Count: 5}, {Reason: "PayloadPurged", Count: 2}, {Reason: "Purged", Count: 3}, {Reason: "TakenByAnotherReplay", Count: 4}},
	}
	got := r.Status.DeepCopy()
	got.Conditions, got.ObservedGeneration = nil, 0
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	SetStatus(r, Seen{Progress: &replay.Status{Matched: 30, Queued: 5, Open: 5, Skipped: 1, Skips: replay.Skips{Purged: 1}}}, lookedAt)
	if got, want := r.Status.SkippedReasons, []v1alpha1.SkippedCount{{Reason: "Purged", Count: 1}}; !slices.Equal(got, want) {
		t.Errorf("skipped %v, want %v", got, want)
	}
}

func TestEstimate(t *testing.T) {
	at := func(seconds int) *metav1.Time {
		when := metav1.NewTime(lookedAt.Truncate(time.Minute).Add(time.Duration(seconds) * time.Second))
		return &when
	}
	for _, tc := range []struct {
		name   string
		before *metav1.Time
		now    int
		left   time.Duration
		want   *metav1.Time
	}{
		{"unknown", nil, 0, 0, nil},
		{"not known any more", at(100), 0, 0, nil},
		{"first", nil, 3, 101 * time.Second, at(110)},
		{"the same", at(110), 4, 100 * time.Second, at(110)},
		{"right but for a tenth", at(1000), 0, 1090 * time.Second, at(1000)},
		{"later", at(1000), 0, 1120 * time.Second, at(1130)},
		{"sooner", at(1000), 0, 800 * time.Second, at(810)},
		{"soon over", at(1000), 995, 12 * time.Second, at(1000)},
		{"overdue", at(1000), 1001, 12 * time.Second, at(1020)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newReplay()
			r.Status.EstimatedCompletionTime = tc.before
			SetStatus(r, Seen{Progress: running(), Outlook: replay.Outlook{Left: tc.left}}, at(tc.now).Time)
			if got := r.Status.EstimatedCompletionTime; !got.Equal(tc.want) {
				t.Errorf("at %s, want %s", got, tc.want)
			}
		})
	}
	anHour := replay.Outlook{Left: time.Hour, PerSecond: 3}
	for name, tc := range map[string]struct {
		is   func(*v1alpha1.EventReplay)
		seen Seen
	}{
		"stranded":  {nil, Seen{Progress: running(), Outlook: anHour, Obstacle: away()}},
		"complete":  {nil, Seen{Progress: &replay.Status{CompletedAt: &completedAt, Matched: 1, Queued: 1, Succeeded: 1}, Outlook: anHour}},
		"suspended": {suspended, Seen{Progress: running(), Outlook: anHour}},
		"waiting":   {nil, Seen{Obstacle: away()}},
	} {
		r := newReplay()
		r.Status.EstimatedCompletionTime, r.Status.RatePerSecond = at(5), "3"
		if tc.is != nil {
			tc.is(r)
		}
		SetStatus(r, tc.seen, lookedAt)
		if got := r.Status; got.EstimatedCompletionTime != nil || got.RatePerSecond != "" {
			t.Errorf("%s: ends at %s, %s per second", name, got.EstimatedCompletionTime, got.RatePerSecond)
		}
	}
}

// While a replay goes on at the same pace, its estimate is seldom written.
func TestEstimateIsSteady(t *testing.T) {
	var f replay.Forecast
	var last *metav1.Time
	changes := 0
	for second := range 600 {
		now := lookedAt.Add(time.Duration(second) * time.Second)
		ended := int64(second*50 + second%7*20) // batches end together
		end := estimate(last, f.Look(&replay.Status{Matched: 30_300, Succeeded: ended}, now).Left, now)
		if !end.Equal(last) {
			changes++
		}
		last = end
	}
	if changes == 0 || changes > 12 {
		t.Errorf("changed %d times in ten minutes", changes)
	}
	if off := last.Sub(lookedAt.Add(606 * time.Second)).Abs(); off > 20*time.Second {
		t.Errorf("off by %s at the end", off)
	}
}

func TestRate(t *testing.T) {
	for _, tc := range []struct {
		before    string
		perSecond float64
		want      string
	}{
		{"", 0, ""},
		{"3", 0, ""},
		{"", 1.0 / 60, "0.017"},
		{"", 0.5, "0.50"},
		{"", 0.999, "1.00"},
		{"", 3, "3.0"},
		{"", 9.97, "10.0"},
		{"", 48.6, "49"},
		{"", 1234, "1200"},
		{"1200", 1100, "1200"},
		{"1200", 1090, "1100"},
		{"49", 44.4, "44"},
		{"49", 54, "49"},
		{"", 1e9, "1000000000"},
	} {
		if got := rate(tc.before, tc.perSecond); got != tc.want {
			t.Errorf("from %q to %g: %q, want %q", tc.before, tc.perSecond, got, tc.want)
		}
	}
}

func TestTransitions(t *testing.T) {
	done := Seen{Progress: &replay.Status{CompletedAt: &completedAt, Matched: 2, Queued: 2, Succeeded: 2}}
	dead := Seen{Progress: &replay.Status{CompletedAt: &completedAt, Matched: 2, Queued: 2, Succeeded: 1, Dead: 1}}
	for _, tc := range []struct {
		name string
		was  func(*v1alpha1.EventReplay)
		now  func(*v1alpha1.EventReplay)
		seen Seen
		want []string
	}{
		{"planned", nil, nil, Seen{Progress: running()}, []string{"Normal Planned: Matched 10 deliveries"}},
		{"nothing new", seenBefore(Seen{Progress: &replay.Status{Matched: 10}}), nil, Seen{Progress: running()}, nil},
		{"at once", nil, nil, done, []string{"Normal Complete: 2 runs succeeded"}},
		{"complete", seenBefore(Seen{Progress: running()}), nil, done, []string{"Normal Complete: 2 runs succeeded"}},
		{"dead again", seenBefore(Seen{Progress: running()}), nil, dead, []string{"Warning CompletedWithFailures: 1 run succeeded, 1 is dead again"}},
		{"suspended from the start", nil, suspended, Seen{Progress: &replay.Status{Matched: 1}}, []string{
			"Normal Planned: Matched 1 delivery", "Normal Suspended: spec.suspend is true: no further runs are started",
		}},
		{"resumed", func(r *v1alpha1.EventReplay) { suspended(r); seenBefore(Seen{Progress: running()})(r) },
			func(r *v1alpha1.EventReplay) { r.Spec.Suspend = false }, Seen{Progress: running()}, []string{"Normal Resumed: spec.suspend is false: further runs are started"}},
		{"ended while suspended", func(r *v1alpha1.EventReplay) { suspended(r); seenBefore(Seen{Progress: running()})(r) }, nil, done, []string{"Normal Complete: 2 runs succeeded"}},
		{"waiting", seenBefore(Seen{Progress: running()}), nil, Seen{Obstacle: away()}, []string{"Warning Waiting: Waiting for the database"}},
		{"still waiting", seenBefore(Seen{Obstacle: away()}), nil, Seen{Obstacle: away()}, nil},
		{"failed", seenBefore(Seen{Obstacle: away()}), nil, Seen{Obstacle: &Obstacle{"SpecChanged", "It has changed", true}}, []string{"Warning Failed: It has changed"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newReplay()
			if tc.was != nil {
				tc.was(r)
			}
			before := r.DeepCopy()
			if tc.now != nil {
				tc.now(r)
			}
			SetStatus(r, tc.seen, lookedAt)
			var got []string
			for _, e := range transitions(before, r) {
				got = append(got, e.kind+" "+e.reason+": "+e.note)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
