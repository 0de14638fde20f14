package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/controllers/eventreplay"
)

// lookEvery is the pause between two looks at an object. Looking needs the
// right to get it only, where watching needs two more.
const lookEvery = 500 * time.Millisecond

// replayWatch waits for what a manager writes into an EventReplay.
type replayWatch struct {
	client  client.Client
	timeout time.Duration
	// say takes a line whenever there is something new.
	say func(line string)
}

// await looks at r, which is as seen last in the end, until it is over or in
// a state that is an error.
func (w *replayWatch) await(ctx context.Context, r *v1alpha1.EventReplay, over func(*v1alpha1.EventReplay) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	said := ""
	for {
		lookErr := w.look(ctx, r)
		switch {
		case lookErr == nil:
			if ended, err := over(r); ended || err != nil {
				return err
			}
		case ctx.Err() != nil: // which is what the error tells, in many words
			return w.gaveUp(ctx, r, said)
		case hopeless(lookErr):
			return lookErr
		}
		if line := w.line(r, lookErr); line != said {
			w.say(line)
			said = line
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return w.gaveUp(ctx, r, said)
		}
	}
}

// errDeleted says that an object is no longer the one that was created.
var errDeleted = errors.New("was deleted before its end was seen")

func (w *replayWatch) look(ctx context.Context, r *v1alpha1.EventReplay) error {
	now := &v1alpha1.EventReplay{}
	err := w.client.Get(ctx, client.ObjectKeyFromObject(r), now)
	switch {
	case apierrors.IsNotFound(err) || err == nil && now.UID != r.UID:
		return fmt.Errorf("EventReplay %s/%s %w", r.Namespace, r.Name, errDeleted)
	case err != nil:
		return fmt.Errorf("reading EventReplay %s/%s: %w", r.Namespace, r.Name, err)
	}
	now.TypeMeta = r.TypeMeta
	*r = *now
	return nil
}

// hopeless reports whether looking again is of no use. An API server that does
// not answer may come back.
func hopeless(err error) bool {
	return errors.Is(err, errDeleted) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

func (w *replayWatch) line(r *v1alpha1.EventReplay, err error) string {
	state := progress(r)
	if err != nil {
		state = strings.ReplaceAll(err.Error(), "\n", " ")
	}
	return fmt.Sprintf("%s/%s: %s", r.Namespace, r.Name, state)
}

func (w *replayWatch) gaveUp(ctx context.Context, r *v1alpha1.EventReplay, said string) error {
	goesOn := "it goes on in the cluster"
	if r.Spec.Mode == v1alpha1.ReplayModeDryRun {
		goesOn = "nothing was replayed"
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("timed out after %s waiting for EventReplay %s; %s", w.timeout, said, goesOn)
	}
	return fmt.Errorf("waiting for EventReplay %s/%s; %s", r.Namespace, r.Name, goesOn)
}

// progress says in a few words how far a replay is.
func progress(r *v1alpha1.EventReplay) string {
	s := &r.Status
	complete := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionComplete)
	switch {
	case complete == nil:
		return "no manager has looked at it yet"
	case complete.Reason == v1alpha1.ReasonWaiting:
		return complete.Message
	}
	text := fmt.Sprintf("%d of %d ended, %d dead", s.Succeeded+s.Dead+s.Skipped, s.Matched, s.Dead)
	if s.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", s.Skipped)
	}
	if r.Spec.Suspend && complete.Status != metav1.ConditionTrue {
		text += ", suspended"
	}
	return text
}

// replayEnded reports whether a replay has ended.
func replayEnded(r *v1alpha1.EventReplay) (bool, error) { return eventreplay.Finished(r), nil }

// planCounted reports whether a dry run has counted. A name that is wrong will not
// become right by waiting.
func planCounted(r *v1alpha1.EventReplay) (bool, error) {
	c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionPlanned)
	if c != nil && c.Reason == v1alpha1.ReasonEndpointNotFound {
		return false, fmt.Errorf("--endpoint: there is no WebhookEndpoint %q in namespace %q", r.Spec.EndpointRef.Name, r.Namespace)
	}
	if eventreplay.Finished(r) {
		_, err := replayResult(r)
		return true, err
	}
	return false, nil
}

// replayResult says how a replay has ended. It is an error unless all is well.
func replayResult(r *v1alpha1.EventReplay) (string, error) {
	name := fmt.Sprintf("EventReplay %s/%s", r.Namespace, r.Name)
	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionFailed); c != nil && c.Status == metav1.ConditionTrue {
		return "", fmt.Errorf("%s has failed: %s", name, c.Message)
	}
	text := ""
	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionComplete); c != nil {
		text = c.Message
	}
	if r.Status.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", r.Status.Skipped)
	}
	if r.Status.Dead > 0 {
		return "", fmt.Errorf("%s is complete, but not all is well: %s", name, text)
	}
	return text, nil
}

// describePlan prints what a replay would take, by the status of the object
// that has counted.
func describePlan(out io.Writer, r *v1alpha1.EventReplay, counted *v1alpha1.EventReplayStatus) {
	x := &r.Spec.Selector
	states := make([]string, len(x.States))
	for i, state := range x.States {
		states[i] = strings.ToLower(string(state))
	}
	would := fmt.Sprintf("%d deliveries", counted.Matched)
	if counted.Matched == 1 {
		would = "1 delivery"
	}
	if r.Spec.Limit > 0 && counted.Matched == r.Spec.Limit {
		would += ", which is the limit: there may be more"
	}
	say(out, "EventReplay:    %s/%s", r.Namespace, r.Name)
	say(out, "Endpoint:       %s", r.Spec.EndpointRef.Name)
	say(out, "States:         %s", strings.Join(states, ", "))
	say(out, "Destinations:   %s", orAll(x.Destinations))
	say(out, "Types:          %s", orAll(x.Types))
	say(out, "Events:         %s", orAll(x.EventIDs))
	say(out, "Received:       %s", window(x.ReceivedAfter, x.ReceivedBefore))
	reasons := make([]string, len(x.Reasons))
	for i, reason := range x.Reasons {
		reasons[i] = string(reason)
	}
	say(out, "Died:           %s", window(x.DiedAfter, x.DiedBefore))
	say(out, "Reasons:        %s", orAll(reasons))
	say(out, "Last status:    %s", orAll(x.LastStatuses))
	say(out, "Would replay:   %s", would)
	if rate := int64(r.Spec.MaxPerSecond); rate > 0 && counted.Matched > rate {
		atLeast := time.Duration((counted.Matched-1)/rate) * time.Second
		say(out, "Takes:          at least %s, at %d per second", atLeast, rate)
	}
	for i, id := range counted.SampleEventIDs {
		label := "Such as event:  "
		if i > 0 {
			label = "                "
		}
		say(out, "%s%s", label, id)
	}
	say(out, "\nNothing was changed. Without --dry-run, it is created.")
}

func orAll(values []string) string {
	if len(values) == 0 {
		return "<all>"
	}
	return strings.Join(values, ", ")
}

func window(after, before *metav1.Time) string {
	format := func(t *metav1.Time) string { return t.UTC().Format(time.RFC3339) }
	switch {
	case after == nil && before == nil:
		return "<at any time>"
	case before == nil:
		return "from " + format(after)
	case after == nil:
		return "before " + format(before)
	}
	return "from " + format(after) + ", before " + format(before)
}
