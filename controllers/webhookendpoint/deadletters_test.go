package webhookendpoint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/event"
)

func dead(name string, died time.Duration, reasons map[event.Reason]int64) event.DeadCounts {
	return event.DeadCounts{Destination: event.DestinationRef{Name: name}, Reasons: reasons, OldestDeath: now.Add(-died), OldestAge: died}
}

func expiring(n int64, first, last time.Duration) []event.DeadCounts {
	c := dead("a", time.Hour, map[event.Reason]int64{event.ReasonPermanentStatus: 9})
	c.Expiring, c.FirstPurge, c.LastPurge = n, now.Add(first), now.Add(last)
	return []event.DeadCounts{c}
}

func moment(d time.Duration) metav1.Time { return *whole(now.Add(d)) }

func TestDeadLetters(t *testing.T) {
	if got := deadLetters(nil, &v1alpha1.DeadLetterCounts{Total: 3}, now); got != nil {
		t.Errorf("of none: %+v", got)
	}
	oldest := moment(-time.Hour)
	got := deadLetters([]event.DeadCounts{
		dead("a", time.Minute, map[event.Reason]int64{event.ReasonPermanentStatus: 2, event.ReasonOutcomeUnknown: 1}),
		dead("b", time.Hour, map[event.Reason]int64{event.ReasonAttemptsExhausted: 5, event.ReasonOutcomeUnknown: 1}),
		dead("c", time.Second, map[event.Reason]int64{event.ReasonOutcomeUnknown: 3}),
	}, nil, now)
	want := &v1alpha1.DeadLetterCounts{
		Total: 12, OldestTime: &oldest,
		Reasons:      []v1alpha1.DeadReasonCount{{Reason: "AttemptsExhausted", Count: 5}, {Reason: "OutcomeUnknown", Count: 5}, {Reason: "PermanentStatus", Count: 2}},
		Destinations: []v1alpha1.DeadDestinationCount{{Name: "b", Count: 6}, {Name: "a", Count: 3}, {Name: "c", Count: 3}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
}

func TestDeadLettersAreBounded(t *testing.T) {
	var counts []event.DeadCounts
	for i := range 50 {
		reasons := map[event.Reason]int64{}
		for j := range 20 {
			reasons[event.Reason(fmt.Sprint("Reason", j))] = int64(i + j + 1)
		}
		counts = append(counts, dead(fmt.Sprint("d", i), time.Hour, reasons))
	}
	got := deadLetters(counts, nil, now)
	if len(got.Reasons) != 8 || len(got.Destinations) != 20 || got.Destinations[0].Name != "d49" || got.Reasons[0].Reason != "Reason19" {
		t.Errorf("got %+v", got)
	}
}

// One warning when dead letters begin to expire, one for each further day,
// and another one when there have been none in between.
func TestPurgeWarning(t *testing.T) {
	said := func(ago time.Duration, n int64) *v1alpha1.PurgeWarning {
		return &v1alpha1.PurgeWarning{Time: moment(-ago), Count: n, FirstPurgeTime: moment(0), LastPurgeTime: moment(0)}
	}
	fresh := &v1alpha1.PurgeWarning{Time: moment(0), Count: 3, FirstPurgeTime: moment(time.Minute), LastPurgeTime: moment(time.Hour)}
	for _, tc := range []struct {
		name   string
		counts []event.DeadCounts
		last   *v1alpha1.PurgeWarning
		want   *v1alpha1.PurgeWarning
	}{
		{"none", expiring(0, 0, 0), nil, nil},
		{"no more", expiring(0, 0, 0), said(time.Minute, 1), nil},
		{"first", expiring(3, time.Minute, time.Hour), nil, fresh},
		{"said a while ago", expiring(7, time.Minute, time.Hour), said(23*time.Hour, 1), said(23*time.Hour, 1)},
		{"said a day ago", expiring(3, time.Minute, time.Hour), said(24*time.Hour+time.Second, 1), fresh},
		{"of two destinations", append(expiring(1, 30*time.Minute, time.Hour), expiring(2, time.Minute, time.Minute)...), nil, fresh},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, deadLetters(tc.counts, &v1alpha1.DeadLetterCounts{PurgeWarning: tc.last}, now).PurgeWarning); diff != "" {
				t.Errorf("warning (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPurgeWarningIsNews(t *testing.T) {
	notes := func(before, after []event.DeadCounts, later time.Duration) (notes []string) {
		s := healthy()
		s.dead = before
		if before != nil {
			s.endpoint.Status = status(s, now)
		}
		s.dead = after
		after2 := status(s, now.Add(later))
		for _, n := range news(s, &after2) {
			if n.reason == "DeadLettersExpiring" {
				notes = append(notes, n.kind+" "+n.note)
			}
		}
		return notes
	}
	const text = "Warning Dead letters that are purged %s, when retention.deadLettersSeconds is over: %d. Replay them: " +
		"ackrail replay create NAME -n payments --endpoint github --all; or keep a copy: ackrail events export -n payments --endpoint github > FILE"
	both := fmt.Sprintf(text, "between 2030-01-02T03:05:05Z and 2030-01-02T04:04:05Z", 3)
	one := fmt.Sprintf(text, "at 2030-01-02T03:05:05Z", 1)
	for _, tc := range []struct {
		name          string
		before, after []event.DeadCounts
		later         time.Duration
		want          []string
	}{
		{"begins", expiring(0, 0, 0), expiring(3, time.Minute, time.Hour), 0, []string{both}},
		{"from the first look", nil, expiring(1, time.Minute, time.Minute), 0, []string{one}},
		{"goes on", expiring(1, time.Minute, time.Minute), expiring(3, time.Minute, time.Hour), time.Hour, nil},
		{"a day later", expiring(1, time.Minute, time.Minute), expiring(3, time.Minute, time.Hour), 25 * time.Hour, []string{both}},
		{"is over", expiring(1, time.Minute, time.Minute), expiring(0, 0, 0), time.Hour, nil},
		{"all are gone", expiring(1, time.Minute, time.Minute), []event.DeadCounts{}, time.Hour, nil},
	} {
		if got := notes(tc.before, tc.after, tc.later); !slices.Equal(got, tc.want) {
			t.Errorf("%s:\n%s\nwant\n%s", tc.name, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
		}
	}
}
