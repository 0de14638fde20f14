package conditions

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxMessage is the longest message that the API takes, in characters.
const maxMessage = 32768

// New makes a condition for Replace, which adds generation and time.
func New(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// Replace returns the conditions now, in their order, as of the object's
// generation. One whose status is as before keeps the time of its last
// transition; the others get the time at. Conditions of other types are
// dropped. Neither argument is changed.
func Replace(before, now []metav1.Condition, generation int64, at time.Time) []metav1.Condition {
	all := slices.Clone(now)
	for i := range all {
		c := &all[i]
		c.ObservedGeneration = generation
		c.LastTransitionTime = metav1.NewTime(at.Truncate(time.Second)) // as it will be read back
		if text := []rune(c.Message); len(text) > maxMessage {
			c.Message = string(text[:maxMessage])
		}
		if old := meta.FindStatusCondition(before, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return all
}

// FirstNotTrue returns the first condition whose status is not True, in the
// order of the list, and false if there is none.
func FirstNotTrue(all []metav1.Condition) (metav1.Condition, bool) {
	for _, c := range all {
		if c.Status != metav1.ConditionTrue {
			return c, true
		}
	}
	return metav1.Condition{}, false
}

// maxText is how long an error may be in a message, in bytes: people read it
// in a terminal.
const maxText = 512

// Text writes an error for a message: one line, cut off after 512 bytes.
func Text(err error) string {
	line := strings.Join(strings.Fields(err.Error()), " ")
	if len(line) > maxText {
		line = strings.ToValidUTF8(line[:maxText], "") + " …"
	}
	return line
}
