package conditions

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Contract is what holds for the conditions of a kind of object, whatever
// happens.
type Contract struct {
	// Always are the types that are there at any time, the summary first.
	Always []string
	// WhileTrue are the types that are there only while they are true, and
	// deny the summary: kstatus' Reconciling and Stalled.
	WhileTrue []string
	// Reasons are all that may stand in a condition.
	Reasons []string
}

// Check returns everything in which conditions of an object of the given
// generation break the contract, once its controller has nothing left to do.
func (c *Contract) Check(all []metav1.Condition, generation int64) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, kind := range c.Always {
		if meta.FindStatusCondition(all, kind) == nil {
			fault("%s is missing", kind)
		}
	}
	summary := c.Always[0]
	isTrue := meta.IsStatusConditionTrue(all, summary)
	for i, condition := range all {
		kind := condition.Type
		whileTrue := slices.Contains(c.WhileTrue, kind)
		if !whileTrue && !slices.Contains(c.Always, kind) {
			fault("%s is not in the contract", kind)
		}
		if slices.ContainsFunc(all[:i], func(other metav1.Condition) bool { return other.Type == kind }) {
			fault("%s is there twice", kind)
		}
		if whileTrue && condition.Status != metav1.ConditionTrue {
			fault("%s is there although %s", kind, condition.Status)
		}
		if whileTrue && isTrue {
			fault("%s is there although %s is True", kind, summary)
		}
		if !whileTrue && kind != summary && isTrue && condition.Status != metav1.ConditionTrue {
			fault("%s is True although %s is %s", summary, kind, condition.Status)
		}
		if !slices.Contains(c.Reasons, condition.Reason) {
			fault("%s has the unknown reason %q", kind, condition.Reason)
		}
		if condition.Message == "" {
			fault("%s has no message", kind)
		}
		if condition.LastTransitionTime.IsZero() {
			fault("%s has no time of its last transition", kind)
		}
		if condition.ObservedGeneration != generation {
			fault("%s is of generation %d, the object of %d", kind, condition.ObservedGeneration, generation)
		}
	}
	if len(c.WhileTrue) > 1 && meta.FindStatusCondition(all, c.WhileTrue[0]) != nil && meta.FindStatusCondition(all, c.WhileTrue[1]) != nil {
		fault("%s and %s are there at once", c.WhileTrue[0], c.WhileTrue[1])
	}
	return errors.Join(faults...)
}
