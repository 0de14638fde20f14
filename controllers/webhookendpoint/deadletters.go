package webhookendpoint

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/event"
)

const (
	// mostReasons and mostDestinations bound the lists in the status.
	mostReasons      = 8
	mostDestinations = 20
	// warnEvery is how often a warning is repeated.
	warnEvery = 24 * time.Hour
)

// retention is how long an endpoint's dead letters are kept.
func retention(e *v1alpha1.WebhookEndpoint) time.Duration {
	return time.Duration(e.Spec.Retention.DeadLettersSeconds) * time.Second
}

// deadLetters adds up what is dead, nil if nothing is. Only what changes with
// the dead letters themselves is told, so that waiting costs no writes.
func deadLetters(counts []event.DeadCounts, before *v1alpha1.DeadLetterCounts, now time.Time) *v1alpha1.DeadLetterCounts {
	all := &v1alpha1.DeadLetterCounts{}
	reasons := map[event.Reason]int64{}
	var oldest time.Time
	for i := range counts {
		c := &counts[i]
		for reason, n := range c.Reasons {
			reasons[reason] += n
		}
		n := c.Total()
		all.Total += n
		all.Destinations = append(all.Destinations, v1alpha1.DeadDestinationCount{Name: c.Destination.Name, Count: n})
		if oldest.IsZero() || !c.OldestDeath.IsZero() && c.OldestDeath.Before(oldest) {
			oldest = c.OldestDeath
		}
	}
	if all.Total == 0 {
		return nil
	}
	for reason, n := range reasons {
		all.Reasons = append(all.Reasons, v1alpha1.DeadReasonCount{Reason: string(reason), Count: n})
	}
	slices.SortFunc(all.Reasons, func(a, b v1alpha1.DeadReasonCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	slices.SortFunc(all.Destinations, func(a, b v1alpha1.DeadDestinationCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	all.Reasons = all.Reasons[:min(len(all.Reasons), mostReasons)]
	all.Destinations = all.Destinations[:min(len(all.Destinations), mostDestinations)]
	if !oldest.IsZero() {
		all.OldestTime = whole(oldest)
	}
	var last *v1alpha1.PurgeWarning
	if before != nil {
		last = before.PurgeWarning
	}
	all.PurgeWarning = purgeWarning(counts, last, now)
	return all
}

// purgeWarning returns the warning that holds: none while nothing is purged
// soon, else the last one, or a new one if there is none of the last day.
func purgeWarning(counts []event.DeadCounts, last *v1alpha1.PurgeWarning, now time.Time) *v1alpha1.PurgeWarning {
	warning := &v1alpha1.PurgeWarning{Time: *whole(now)}
	var first, end time.Time
	for i := range counts {
		c := &counts[i]
		if c.Expiring == 0 {
			continue
		}
		warning.Count += c.Expiring
		if first.IsZero() || c.FirstPurge.Before(first) {
			first = c.FirstPurge
		}
		if c.LastPurge.After(end) {
			end = c.LastPurge
		}
	}
	switch {
	case warning.Count == 0:
		return nil
	case last != nil && now.Sub(last.Time.Time) < warnEvery:
		return last
	}
	warning.FirstPurgeTime, warning.LastPurgeTime = *whole(first), *whole(end)
	return warning
}

// whole cuts off what the API does not keep, so that a status that was read
// compares equal to the one that was written.
func whole(t time.Time) *metav1.Time { return &metav1.Time{Time: t.Truncate(time.Second)} }

// warn tells of a purge warning that is new, with what can be done.
func warn(e *v1alpha1.WebhookEndpoint, after *v1alpha1.WebhookEndpointStatus) (item, bool) {
	given := func(d *v1alpha1.DeadLetterCounts) *v1alpha1.PurgeWarning {
		if d == nil {
			return nil
		}
		return d.PurgeWarning
	}
	last, now := given(e.Status.DeadLetters), given(after.DeadLetters)
	if now == nil || last != nil && last.Time.Equal(&now.Time) {
		return item{}, false
	}
	text := func(t metav1.Time) string { return t.UTC().Format(time.RFC3339) }
	when := "at " + text(now.FirstPurgeTime)
	if !now.LastPurgeTime.Equal(&now.FirstPurgeTime) {
		when = fmt.Sprintf("between %s and %s", text(now.FirstPurgeTime), text(now.LastPurgeTime))
	}
	note := fmt.Sprintf("Dead letters that are purged %s, when retention.deadLettersSeconds is over: %d. Replay them: "+
		"ackrail replay create NAME -n %s --endpoint %s --all; or keep a copy: ackrail events export -n %[3]s --endpoint %[4]s > FILE",
		when, now.Count, e.Namespace, e.Name)
	return item{corev1.EventTypeWarning, "DeadLettersExpiring", "Purge", note}, true
}
