package eventreplay

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/replay"
)

// Seen is what one look at a replay has found.
type Seen struct {
	// Progress is how far the replay is by its database, or would be after
	// its plan where it is a dry run. Nil: the database was not reached, or
	// has no plan. What the status says already stays then.
	Progress *replay.Status
	// Outlook is how fast and for how long the replay goes on, as far as that
	// is known.
	Outlook replay.Outlook
	// Unseen: the database has never seen the endpoint, so there is nothing
	// that could be replayed.
	Unseen bool
	// Obstacle is why the replay did not go on, nil if nothing kept it.
	Obstacle *Obstacle
}

// Obstacle keeps a replay from going on.
type Obstacle struct {
	// Reason is one of the reasons of the condition Planned, and of Failed
	// where the obstacle is final.
	Reason, Message string
	// Final: it will not go on by itself.
	Final bool
}

// SetStatus writes what was seen into the status of a replay that has not
// finished, but for the conditions Reconciling and Stalled. Conditions that
// change do so at the time given.
func SetStatus(r *v1alpha1.EventReplay, seen Seen, at time.Time) {
	status := &r.Status
	status.ObservedGeneration = r.Generation
	if p := seen.Progress; p != nil {
		setCounts(status, p)
		status.StartTime = timestamp(&p.PlannedAt)
		status.CompletionTime = timestamp(p.CompletedAt)
		if isDryRun(r) {
			status.CompletionTime = status.StartTime
		}
	}
	setPlanned(r, seen, at)
	setComplete(r, seen, at)
	final := seen.Obstacle != nil && seen.Obstacle.Final
	if final {
		set(r, v1alpha1.ConditionFailed, metav1.ConditionTrue, seen.Obstacle.Reason, seen.Obstacle.Message, at)
	}
	setProgressing(r, at)
	if Finished(r) || r.Spec.Suspend || seen.Obstacle != nil {
		seen.Outlook = replay.Outlook{}
	}
	status.EstimatedCompletionTime = estimate(status.EstimatedCompletionTime, seen.Outlook.Left, at)
	status.RatePerSecond = rate(status.RatePerSecond, seen.Outlook.PerSecond)
	if r.Spec.Suspend && !Finished(r) {
		set(r, v1alpha1.ConditionSuspended, metav1.ConditionTrue, v1alpha1.ReasonSuspended, "spec.suspend is true: no further runs are started", at)
	} else {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionSuspended)
	}
}

func setCounts(status *v1alpha1.EventReplayStatus, p *replay.Status) {
	status.Matched, status.Replayed, status.Skipped = p.Matched, p.Queued, p.Skipped
	status.Pending, status.Succeeded, status.Dead = p.Open, p.Succeeded, p.Dead
	status.SkippedReasons = nil
	for _, skipped := range []v1alpha1.SkippedCount{
		{Reason: v1alpha1.SkipReasonAlreadyPending, Count: p.Skips.AlreadyPending},
		{Reason: v1alpha1.SkipReasonDestinationGone, Count: p.Skips.DestinationGone},
		{Reason: v1alpha1.SkipReasonPayloadPurged, Count: p.Skips.PayloadPurged},
		{Reason: v1alpha1.SkipReasonPurged, Count: p.Skips.Purged},
		{Reason: v1alpha1.SkipReasonTakenByAnotherReplay, Count: p.Skips.TakenByAnotherReplay},
	} {
		if skipped.Count > 0 {
			status.SkippedReasons = append(status.SkippedReasons, skipped)
		}
	}
	status.SampleEventIDs = nil
	for _, id := range p.Sample {
		status.SampleEventIDs = append(status.SampleEventIDs, id.String())
	}
}

// estimateStep is what the end of a replay is rounded up to.
const estimateStep = 10 * time.Second

// estimate returns when a replay ends that goes on for some time from now, nil
// if that is zero: not known. An earlier estimate stands while it is right but
// for a tenth of the time that is left, so that it is no reason to write the
// status at each look.
func estimate(before *metav1.Time, left time.Duration, now time.Time) *metav1.Time {
	if left <= 0 {
		return nil
	}
	end := now.Add(left)
	if before != nil && before.Time.Sub(end).Abs() <= max(left/10, estimateStep) {
		return before
	}
	return &metav1.Time{Time: end.Add(estimateStep).Truncate(estimateStep)}
}

// rate writes deliveries per second with two significant digits, or "" for
// zero: not known. An earlier rate stands while it is right but for a tenth.
func rate(before string, perSecond float64) string {
	if perSecond <= 0 {
		return ""
	}
	if was, err := strconv.ParseFloat(before, 64); err == nil && math.Abs(was-perSecond) <= perSecond/10 {
		return before
	}
	digits := 1 - int(math.Floor(math.Log10(perSecond)))
	scale := math.Pow10(digits)
	return strconv.FormatFloat(math.Round(perSecond*scale)/scale, 'f', max(digits, 0), 64)
}

// Finished reports whether the status says that a replay has completed or
// failed: nothing will change any more.
func Finished(r *v1alpha1.EventReplay) bool { return finishedCondition(r) != nil }

// finishedCondition returns the condition that says that a replay is at its
// end, nil if none does.
func finishedCondition(r *v1alpha1.EventReplay) *metav1.Condition {
	for _, kind := range []string{v1alpha1.ConditionComplete, v1alpha1.ConditionFailed} {
		if c := meta.FindStatusCondition(r.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
			return c
		}
	}
	return nil
}

func isDryRun(r *v1alpha1.EventReplay) bool { return r.Spec.Mode == v1alpha1.ReplayModeDryRun }

func setPlanned(r *v1alpha1.EventReplay, seen Seen, at time.Time) {
	const kind = v1alpha1.ConditionPlanned
	p, o := seen.Progress, seen.Obstacle
	switch {
	case seen.Unseen:
		set(r, kind, metav1.ConditionTrue, v1alpha1.ReasonNothingMatched, "The database has never had an event of this endpoint", at)
	case p != nil && isDryRun(r):
		set(r, kind, metav1.ConditionTrue, v1alpha1.ReasonDryRun, dryRunMessage(p), at)
	case p != nil && p.Matched == 0:
		set(r, kind, metav1.ConditionTrue, v1alpha1.ReasonNothingMatched, "The selector matched no delivery", at)
	case p != nil:
		set(r, kind, metav1.ConditionTrue, v1alpha1.ReasonMatched, "Matched "+count(p.Matched, "delivery", "deliveries"), at)
	case meta.IsStatusConditionTrue(r.Status.Conditions, kind):
		// A plan stays, whatever is in the way now.
		meta.FindStatusCondition(r.Status.Conditions, kind).ObservedGeneration = r.Generation
	case o != nil:
		set(r, kind, metav1.ConditionFalse, o.Reason, o.Message, at)
	}
}

func setComplete(r *v1alpha1.EventReplay, seen Seen, at time.Time) {
	const kind = v1alpha1.ConditionComplete
	p, o := seen.Progress, seen.Obstacle
	switch {
	case seen.Unseen:
		set(r, kind, metav1.ConditionTrue, v1alpha1.ReasonNothingMatched, nothingMessage, at)
	case p != nil && isDryRun(r):
		set(r, kind, metav1.ConditionTrue, v1alpha1.ReasonDryRun, dryRunMessage(p), at)
	case p != nil && p.CompletedAt != nil:
		reason, message := result(p)
		set(r, kind, metav1.ConditionTrue, reason, message, at)
	case o != nil && o.Final:
		set(r, kind, metav1.ConditionFalse, o.Reason, o.Message, at)
	case o != nil:
		set(r, kind, metav1.ConditionFalse, v1alpha1.ReasonWaiting, o.Message, at)
	case p != nil && r.Spec.Suspend:
		set(r, kind, metav1.ConditionFalse, v1alpha1.ReasonSuspended,
			fmt.Sprintf("%s to start once spec.suspend is false, %s not ended", count(p.Planned(), "run is", "runs are"), count(p.Open, "run has", "runs have")), at)
	case p != nil:
		set(r, kind, metav1.ConditionFalse, v1alpha1.ReasonInProgress, count(p.Open+p.Planned(), "run has", "runs have")+" not ended", at)
	}
}

// setProgressing says whether a replay that has not finished goes on, for the
// reason that its condition Complete has.
func setProgressing(r *v1alpha1.EventReplay, at time.Time) {
	const kind = v1alpha1.ConditionProgressing
	complete := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionComplete)
	switch {
	case Finished(r) || complete == nil:
		meta.RemoveStatusCondition(&r.Status.Conditions, kind)
	case complete.Reason == v1alpha1.ReasonInProgress:
		set(r, kind, metav1.ConditionTrue, complete.Reason, workingMessage, at)
	default:
		set(r, kind, metav1.ConditionFalse, complete.Reason, complete.Message, at)
	}
}

const (
	nothingMessage = "There was nothing to replay"
	workingMessage = "Starting runs and following them to their end"
)

// result is how a completed replay has ended.
func result(p *replay.Status) (reason, message string) {
	switch {
	case p.Matched == 0:
		return v1alpha1.ReasonNothingMatched, nothingMessage
	case p.Dead > 0:
		return v1alpha1.ReasonCompletedWithFailures, fmt.Sprintf("%s succeeded, %s dead again", count(p.Succeeded, "run", "runs"), count(p.Dead, "is", "are")) + skippedNote(p)
	}
	return v1alpha1.ReasonSucceeded, count(p.Succeeded, "run", "runs") + " succeeded" + skippedNote(p)
}

// skippedNote tells of what was matched and not replayed, if anything was.
func skippedNote(p *replay.Status) string {
	if p.Skipped == 0 {
		return ""
	}
	return ", " + count(p.Skipped, "delivery was", "deliveries were") + " skipped"
}

func dryRunMessage(p *replay.Status) string {
	gone := ""
	if p.Skipped > 0 {
		gone = ", and skip " + count(p.Skipped, "one", "others") + " whose destination the endpoint no longer has"
	}
	return "Would replay " + count(p.Matched-p.Skipped, "delivery", "deliveries") + gone + "; nothing was changed"
}

func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func set(r *v1alpha1.EventReplay, kind string, status metav1.ConditionStatus, reason, message string, at time.Time) {
	meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: r.Generation, LastTransitionTime: metav1.NewTime(at),
	})
}

// timestamp cuts off what the API does not keep, so that a status that was
// read compares equal to the one that was written.
func timestamp(t *time.Time) *metav1.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.Truncate(time.Second)}
}
