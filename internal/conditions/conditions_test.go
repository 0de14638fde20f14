package conditions_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ackrail/ackrail/internal/conditions"
)

var (
	early = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	late  = early.Add(time.Minute)
)

func at(c metav1.Condition, generation int64, when time.Time) metav1.Condition {
	c.ObservedGeneration, c.LastTransitionTime = generation, metav1.NewTime(when)
	return c
}

func TestReplace(t *testing.T) {
	ready := conditions.New("Ready", metav1.ConditionTrue, "Available", "Fine")
	stalled := conditions.New("Stalled", metav1.ConditionTrue, "NameConflict", "Taken")
	notReady := conditions.New("Ready", metav1.ConditionFalse, "NameConflict", "Taken")
	reworded := conditions.New("Ready", metav1.ConditionTrue, "Suspended", "Held")
	long := conditions.New("Ready", metav1.ConditionTrue, "Available", strings.Repeat("é", 32769))
	for _, tc := range []struct {
		name        string
		before, now []metav1.Condition
		want        []metav1.Condition
	}{
		{"the first", nil, []metav1.Condition{ready}, []metav1.Condition{at(ready, 2, late)}},
		{"no change but the generation", []metav1.Condition{at(ready, 1, early)}, []metav1.Condition{ready}, []metav1.Condition{at(ready, 2, early)}},
		{"another reason", []metav1.Condition{at(ready, 1, early)}, []metav1.Condition{reworded}, []metav1.Condition{at(reworded, 2, early)}},
		{
			"another status, and one more", []metav1.Condition{at(ready, 1, early)}, []metav1.Condition{notReady, stalled},
			[]metav1.Condition{at(notReady, 2, late), at(stalled, 2, late)},
		},
		{"one less", []metav1.Condition{at(stalled, 1, early), at(notReady, 1, early)}, []metav1.Condition{ready}, []metav1.Condition{at(ready, 2, late)}},
		{
			"too long a message", nil, []metav1.Condition{long},
			[]metav1.Condition{at(conditions.New("Ready", metav1.ConditionTrue, "Available", strings.Repeat("é", 32768)), 2, late)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := conditions.Replace(tc.before, tc.now, 2, late.Add(5*time.Millisecond))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if !tc.now[0].LastTransitionTime.IsZero() {
				t.Error("the argument was changed")
			}
		})
	}
}

func TestFirstNotTrue(t *testing.T) {
	a := conditions.New("A", metav1.ConditionTrue, "R", "m")
	b := conditions.New("B", metav1.ConditionUnknown, "R", "m")
	c := conditions.New("C", metav1.ConditionFalse, "R", "m")
	if got, ok := conditions.FirstNotTrue([]metav1.Condition{a, b, c}); !ok || got.Type != "B" {
		t.Errorf("got %v, %v", got, ok)
	}
	if got, ok := conditions.FirstNotTrue([]metav1.Condition{a}); ok {
		t.Errorf("got %v", got)
	}
}

func TestCheck(t *testing.T) {
	contract := conditions.Contract{
		Always: []string{"Ready", "StoreReady"}, WhileTrue: []string{"Reconciling", "Stalled"},
		Reasons: []string{"Available", "RollingOut"},
	}
	of := func(kind string, status metav1.ConditionStatus, change ...func(*metav1.Condition)) metav1.Condition {
		c := at(conditions.New(kind, status, "Available", "Fine"), 3, early)
		for _, f := range change {
			f(&c)
		}
		return c
	}
	ready, store := of("Ready", "True"), of("StoreReady", "True")
	down := of("Ready", "False")
	for _, tc := range []struct {
		name string
		all  []metav1.Condition
		want string
	}{
		{"good", []metav1.Condition{ready, store}, ""},
		{"good and not ready", []metav1.Condition{down, store, of("Stalled", "True")}, ""},
		{"no conditions", nil, "Ready is missing\nStoreReady is missing"},
		{"negative and ready", []metav1.Condition{ready, store, of("Reconciling", "True")}, "Reconciling is there although Ready is True"},
		{"negative and false", []metav1.Condition{down, store, of("Stalled", "False")}, "Stalled is there although False"},
		{"both negatives", []metav1.Condition{down, store, of("Stalled", "True"), of("Reconciling", "True")}, "Reconciling and Stalled are there at once"},
		{"ready with a part that is not", []metav1.Condition{ready, of("StoreReady", "Unknown")}, "Ready is True although StoreReady is Unknown"},
		{"another type", []metav1.Condition{ready, store, of("Happy", "True")}, "Happy is not in the contract"},
		{"twice", []metav1.Condition{ready, store, store}, "StoreReady is there twice"},
		{"reason", []metav1.Condition{ready, of("StoreReady", "True", func(c *metav1.Condition) { c.Reason = "Whim" })}, `StoreReady has the unknown reason "Whim"`},
		{"message", []metav1.Condition{ready, of("StoreReady", "True", func(c *metav1.Condition) { c.Message = "" })}, "StoreReady has no message"},
		{"time", []metav1.Condition{ready, of("StoreReady", "True", func(c *metav1.Condition) { c.LastTransitionTime = metav1.Time{} })}, "StoreReady has no time of its last transition"},
		{"generation", []metav1.Condition{ready, of("StoreReady", "True", func(c *metav1.Condition) { c.ObservedGeneration = 2 })}, "StoreReady is of generation 2, the object of 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := contract.Check(tc.all, 3); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTextIsBounded(t *testing.T) {
	long := fmt.Errorf("a\n b\t%s", strings.Repeat("é", 600))
	if got := conditions.Text(long); len(got) > 520 || !strings.HasPrefix(got, "a b é") || strings.Contains(got, "\ufffd") {
		t.Errorf("got %q", got)
	}
	if got := conditions.Text(errors.New("short")); got != "short" {
		t.Errorf("got %q", got)
	}
}
