package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/controllers/eventreplay"
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
EventReplay another name.

With spec.mode DryRun it is counted what would be replayed, and nothing is
changed. With spec.maxPerSecond the command runs for as long as starting all
runs takes; without, they are all in the queue at once, while in a cluster they
follow the workers. spec.suspend is refused, and ttlSecondsAfterFinished means
nothing here: there is no object to delete.

In a cluster, replays are objects: ackrail replay create makes one.`,
		Example: `  ackrail replay -f after-fix.yaml
  ackrail replay -f after-fix.yaml --wait
  ackrail replay create after-fix --endpoint github --all --wait`,
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
	cmd.AddCommand(newReplayCreate())
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
		runErr := f.runOne(cmd, s, r, destinationsOf(set, r))
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

// destinationsOf returns which destinations a replay's endpoint has, nil if the
// manifests do not say.
func destinationsOf(set *manifest.Set, r *v1alpha1.EventReplay) []string {
	for i := range set.Endpoints {
		if e := &set.Endpoints[i]; e.Namespace == r.Namespace && e.Name == r.Spec.EndpointRef.Name {
			return eventreplay.Destinations(e)
		}
	}
	return nil
}

// runOne runs a replay and fills its status in.
func (f *replayFlags) runOne(cmd *cobra.Command, s *store.Store, r *v1alpha1.EventReplay, present []string) error {
	request, err := eventreplay.Request(r)
	if err != nil {
		return err
	}
	request.Present = present
	dryRun := r.Spec.Mode == v1alpha1.ReplayModeDryRun
	var status replay.Status
	switch {
	case dryRun:
		status, err = s.CountReplay(cmd.Context(), request)
	case r.Spec.Suspend:
		return errors.New("spec.suspend: is true: set it to false to run the replay")
	default:
		status, err = replay.Start(cmd.Context(), s, request, int(r.Spec.MaxPerSecond))
	}
	if err != nil {
		setFailed(r, err)
		return explain(err)
	}
	if f.wait && !dryRun && status.CompletedAt == nil {
		status, err = f.await(cmd, s, r, request.ID, status)
	}
	at := status.PlannedAt
	if status.CompletedAt != nil {
		at = *status.CompletedAt
	}
	eventreplay.SetStatus(r, eventreplay.Seen{Progress: &status}, at)
	return err
}

// await waits for the end of a replay and returns its last status.
func (f *replayFlags) await(cmd *cobra.Command, s *store.Store, r *v1alpha1.EventReplay, id uuid.UUID, status replay.Status) (replay.Status, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	last, err := replay.Wait(ctx, s, id, 200*time.Millisecond, func(now replay.Status) {
		cmd.PrintErrf("%s/%s: %d of %d ended, %d dead\n", r.Namespace, r.Name, now.Succeeded+now.Dead, now.Queued, now.Dead)
	})
	if !last.PlannedAt.IsZero() { // else there was no time for a single look
		status = last
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("timed out after %s waiting for %d runs to end", f.timeout, status.Open)
	}
	return status, err
}

// explain adds to the reason why a replay cannot run what to do about it.
func explain(err error) error {
	switch {
	case errors.Is(err, replay.ErrUnknownEndpoint):
		return fmt.Errorf("spec.endpointRef.name: %w: correct the name, or metadata.namespace", err)
	case errors.Is(err, replay.ErrUnknownDestination):
		return fmt.Errorf("spec.selector.destinations: %w: correct the name, or start an ingress with it first", err)
	case errors.Is(err, replay.ErrChanged):
		return fmt.Errorf("%w: give this one another metadata.name", err)
	}
	return err
}

// setFailed says in the status why a replay cannot run, unless it may when it
// is run again.
func setFailed(r *v1alpha1.EventReplay, err error) {
	obstacle := eventreplay.Obstacle{Message: err.Error(), Final: true}
	switch {
	case errors.Is(err, replay.ErrUnknownEndpoint):
		obstacle.Reason = v1alpha1.ReasonEndpointNotFound
	case errors.Is(err, replay.ErrUnknownDestination):
		obstacle.Reason = v1alpha1.ReasonDestinationNotFound
	case errors.Is(err, replay.ErrChanged):
		obstacle.Reason = v1alpha1.ReasonSpecChanged
	default:
		return
	}
	eventreplay.SetStatus(r, eventreplay.Seen{Obstacle: &obstacle}, time.Now())
}
