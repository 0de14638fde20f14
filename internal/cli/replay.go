package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/manifest"
	"github.com/ackrail/ackrail/internal/replay"
	"github.com/ackrail/ackrail/internal/store"
)

// replayFlags are the flags of ackrail replay.
type replayFlags struct {
	files    []string
	database databaseFlag
	output   outputFlag
	wait     bool
	timeout  time.Duration
}

func newReplay() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay -f FILE",
		Short: "Deliver events again, as an EventReplay says",
		Long: `Run the EventReplay manifests against the database and print them with their
status. A replay happens once: running it again, also after it was interrupted,
goes on where it stopped and takes nothing twice. To replay again, give the
EventReplay another name.`,
		Example: `  ackrail replay -f after-fix.yaml
  ackrail replay -f after-fix.yaml --wait`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.database.register(cmd)
	f.output.register(cmd, "yaml", "json")
	flags := cmd.Flags()
	flags.StringSliceVarP(&f.files, "filename", "f", nil, "manifests: files, folders or - for standard input (required)")
	flags.BoolVar(&f.wait, "wait", false, "wait until every run has ended")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long to wait with --wait")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

func (f *replayFlags) run(cmd *cobra.Command) error {
	if err := f.output.check(); err != nil {
		return err
	}
	set, err := manifest.Read(f.files, cmd.InOrStdin())
	if err != nil {
		return err
	}
	if len(set.Replays) == 0 {
		return fmt.Errorf("%s: no EventReplay found", strings.Join(f.files, ", "))
	}
	url, err := f.database.required()
	if err != nil {
		return err
	}
	s, err := store.Open(url, store.Options{MaxConns: 2, Name: "ackrail replay"})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := ping(cmd.Context(), s); err != nil {
		return err
	}
	failed := false
	for i := range set.Replays {
		r := &set.Replays[i]
		runErr := f.runOne(cmd, s, r)
		failed = failed || runErr != nil
		if runErr != nil {
			printError(cmd.ErrOrStderr(), fmt.Errorf("EventReplay %s/%s: %w", r.Namespace, r.Name, runErr))
			if len(r.Status.Conditions) == 0 {
				continue
			}
		}
		if i > 0 && f.output.format == "yaml" {
			say(cmd.OutOrStdout(), "---")
		}
		if err := printObject(cmd.OutOrStdout(), f.output.format, r); err != nil {
			return err
		}
	}
	if failed {
		return errPrinted
	}
	return nil
}

// runOne runs a replay and fills its status in.
func (f *replayFlags) runOne(cmd *cobra.Command, s *store.Store, r *v1alpha1.EventReplay) error {
	request, err := replayRequest(r)
	if err != nil {
		return err
	}
	status, err := replay.Start(cmd.Context(), s, request)
	if err != nil {
		setFailed(r, err)
		return explain(err)
	}
	if f.wait && status.CompletedAt == nil {
		ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
		defer cancel()
		var last store.ReplayStatus
		last, err = replay.Wait(ctx, s, request.ID, 200*time.Millisecond, func(now store.ReplayStatus) {
			cmd.PrintErrf("%s/%s: %d of %d ended, %d dead\n", r.Namespace, r.Name, now.Succeeded+now.Dead, now.Queued, now.Dead)
		})
		if !last.PlannedAt.IsZero() { // else there was no time for a single look
			status = last
		}
	}
	setStatus(r, &status)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("timed out after %s waiting for %d runs to end", f.timeout, status.Open)
	}
	return err
}

// replayNamespace is the UUID namespace of replays that have no UID of their
// own because no cluster made one: their identity is their name.
var replayNamespace = uuid.NewSHA1(uuid.NameSpaceDNS, []byte("eventreplays.ackrail.io"))

// replayRequest translates a manifest for the store.
func replayRequest(r *v1alpha1.EventReplay) (store.Replay, error) {
	spec, err := json.Marshal(r.Spec)
	if err != nil {
		return store.Replay{}, fmt.Errorf("encoding the spec: %w", err)
	}
	x := &r.Spec.Selector
	request := store.Replay{
		ID:        uuid.NewSHA1(replayNamespace, []byte(r.Namespace+"/"+r.Name)),
		Namespace: r.Namespace,
		Name:      r.Name,
		Endpoint:  event.EndpointRef{Namespace: r.Namespace, Name: r.Spec.EndpointRef.Name},
		Limit:     r.Spec.Limit,
		Spec:      string(spec),
		Selector: store.Selector{
			Destinations:   x.Destinations,
			Types:          x.Types,
			ReceivedAfter:  timeOf(x.ReceivedAfter),
			ReceivedBefore: timeOf(x.ReceivedBefore),
		},
	}
	for _, state := range x.States {
		request.Selector.States = append(request.Selector.States, event.State(strings.ToLower(string(state))))
	}
	for _, s := range x.EventIDs {
		id, err := uuid.Parse(s)
		if err != nil {
			return store.Replay{}, fmt.Errorf("spec.selector.eventIDs: %q is not a UUID", s)
		}
		request.Selector.Events = append(request.Selector.Events, id)
	}
	return request, nil
}

func timeOf(t *metav1.Time) *time.Time {
	if t == nil {
		return nil
	}
	return &t.Time
}

// explain adds to the reason why a replay cannot run what to do about it.
func explain(err error) error {
	switch {
	case errors.Is(err, store.ErrUnknownEndpoint):
		return fmt.Errorf("spec.endpointRef.name: %w: correct the name, or metadata.namespace", err)
	case errors.Is(err, store.ErrReplayChanged):
		return fmt.Errorf("%w: give this one another metadata.name", err)
	}
	return err
}

// setFailed says in the status why a replay cannot run.
func setFailed(r *v1alpha1.EventReplay, err error) {
	var reason string
	switch {
	case errors.Is(err, store.ErrUnknownEndpoint):
		reason = v1alpha1.ReasonEndpointNotFound
	case errors.Is(err, store.ErrReplayChanged):
		reason = v1alpha1.ReasonSpecChanged
	default:
		return // passing: the replay goes on when it is run again
	}
	setCondition(r, v1alpha1.ConditionFailed, metav1.ConditionTrue, reason, err.Error(), metav1.Now())
}

// setStatus translates the store's status.
func setStatus(r *v1alpha1.EventReplay, s *store.ReplayStatus) {
	planned := metav1.NewTime(s.PlannedAt)
	r.Status.Matched, r.Status.Replayed, r.Status.Skipped = s.Matched, s.Queued, s.Skipped
	r.Status.Succeeded, r.Status.Dead = s.Succeeded, s.Dead
	r.Status.StartTime = &planned
	if s.Matched == 0 {
		setCondition(r, v1alpha1.ConditionPlanned, metav1.ConditionTrue, v1alpha1.ReasonNothingMatched, "The selector matched no delivery", planned)
	} else {
		setCondition(r, v1alpha1.ConditionPlanned, metav1.ConditionTrue, v1alpha1.ReasonMatched, fmt.Sprintf("Matched %d deliveries", s.Matched), planned)
	}
	if s.CompletedAt == nil {
		setCondition(r, v1alpha1.ConditionComplete, metav1.ConditionFalse, v1alpha1.ReasonInProgress,
			fmt.Sprintf("%d runs have not ended", s.Open+s.Planned()), planned)
		return
	}
	completed := metav1.NewTime(*s.CompletedAt)
	r.Status.CompletionTime = &completed
	reason, message := v1alpha1.ReasonSucceeded, fmt.Sprintf("%d runs succeeded", s.Succeeded)
	switch {
	case s.Matched == 0:
		reason, message = v1alpha1.ReasonNothingMatched, "There was nothing to replay"
	case s.Dead > 0:
		reason, message = v1alpha1.ReasonFinishedWithDead, fmt.Sprintf("%d runs succeeded, %d are dead again", s.Succeeded, s.Dead)
	}
	setCondition(r, v1alpha1.ConditionComplete, metav1.ConditionTrue, reason, message, completed)
}

func setCondition(r *v1alpha1.EventReplay, kind string, status metav1.ConditionStatus, reason, message string, at metav1.Time) {
	r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: at,
	})
}
