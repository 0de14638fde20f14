package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/manifest"
)

// replayResource is what kubectl calls an EventReplay.
const replayResource = "eventreplay.ackrail.io"

// createFlags are the flags of ackrail replay create.
type createFlags struct {
	cluster clusterFlags
	replay  replaySpecFlags
	output  outputFlag
	dryRun  string
	wait    bool
	timeout time.Duration
}

func newReplayCreate() *cobra.Command {
	var f createFlags
	cmd := &cobra.Command{
		Use:   "create NAME --endpoint ENDPOINT",
		Short: "Create an EventReplay in a cluster",
		Long: `Create an EventReplay from flags in a cluster, which replays what is dead and
meets every criterion given. There must be one, or --all. A flag that takes
several values may be repeated, or have them separated by commas.

--dry-run=client prints the object and needs no cluster. --dry-run=server shows
the plan: it creates an EventReplay in mode DryRun, under a generated name,
waits for the manager to count what would be replayed, prints that, and
deletes it again. No event is delivered by it. Should the command be killed
meanwhile, the manager deletes the object five minutes later.

--wait shows the progress, and ends with success only when the replay is
complete and nothing is dead again. Interrupting it does not stop the replay:
deleting the EventReplay does.`,
		Example: `  ackrail replay create after-fix --endpoint github \
      --destination handler --received-after 2h --dry-run=server
  ackrail replay create after-fix --endpoint github --all --wait`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return fmt.Errorf("want one NAME for the EventReplay, have %d", len(args))
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	f.cluster.register(cmd)
	f.replay.register(cmd)
	f.output.register(cmd, "text", "yaml", "json", "name")
	flags := cmd.Flags()
	flags.StringVar(&f.dryRun, "dry-run", "none", "none; client: print the object (as yaml by default); server: show the plan")
	flags.BoolVar(&f.wait, "wait", false, "show progress until the replay has ended")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long to wait with --wait or --dry-run=server")
	return cmd
}

func (f *createFlags) check(cmd *cobra.Command) error {
	if err := f.output.check(); err != nil {
		return err
	}
	switch {
	case !slices.Contains([]string{"none", "client", "server"}, f.dryRun):
		return fmt.Errorf("--dry-run: must be none, client or server, is %q", f.dryRun)
	case f.wait && f.dryRun != "none":
		return errors.New("--wait: has no use with --dry-run")
	case f.wait && f.replay.suspend:
		return errors.New("--wait: has no use with --suspend: a replay does not end while it is suspended")
	case f.timeout <= 0:
		return fmt.Errorf("--timeout: must be greater than 0, is %s", f.timeout)
	}
	if f.dryRun == "client" && !cmd.Flags().Changed("output") {
		f.output.format = "yaml"
	}
	return nil
}

func (f *createFlags) run(cmd *cobra.Command, name string) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	r, err := f.replay.build(cmd, time.Now())
	if err != nil {
		return err
	}
	r.Name = name
	if r.Namespace, err = f.cluster.resolveNamespace(); err != nil {
		return err
	}
	if faults := manifest.CompleteReplay(r); len(faults) > 0 {
		return f.replay.explain(faults)
	}
	if f.dryRun == "client" {
		return f.print(cmd, r, "created (dry run)")
	}
	c, err := f.cluster.connect(cmd)
	if err != nil {
		return err
	}
	w := replayWatch{client: c, timeout: f.timeout, say: func(line string) { cmd.PrintErrln(line) }}
	if f.dryRun == "server" {
		return f.plan(cmd, &w, r)
	}
	if err := create(cmd.Context(), c, r); err != nil {
		return err
	}
	structured := f.output.format == "yaml" || f.output.format == "json"
	if !f.wait || !structured {
		if err := f.print(cmd, r, "created"); err != nil || !f.wait {
			return err
		}
	}
	waitErr := w.await(cmd.Context(), r, replayEnded)
	if structured {
		if err := f.print(cmd, r, ""); err != nil {
			return err
		}
	}
	if waitErr != nil {
		return waitErr
	}
	text, err := replayResult(r)
	if err == nil && f.output.format == "text" {
		say(cmd.OutOrStdout(), "%s/%s complete: %s", replayResource, r.Name, text)
	}
	return err
}

// print prints an object, or its name with what was done to it.
func (f *createFlags) print(cmd *cobra.Command, r *v1alpha1.EventReplay, done string) error {
	switch f.output.format {
	case "name":
		say(cmd.OutOrStdout(), "%s/%s", replayResource, r.Name)
		return nil
	case "text":
		say(cmd.OutOrStdout(), "%s/%s %s", replayResource, r.Name, done)
		return nil
	}
	return printObject(cmd.OutOrStdout(), f.output.format, r)
}

// create creates an object, which keeps its kind.
func create(ctx context.Context, c client.Client, r *v1alpha1.EventReplay, options ...client.CreateOption) error {
	kind := r.TypeMeta
	err := c.Create(ctx, r, options...)
	r.TypeMeta = kind
	if err == nil {
		return nil
	}
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	switch {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("EventReplay %s/%s exists already: choose another NAME", r.Namespace, r.Name)
	case apierrors.IsNotFound(err) && strings.HasPrefix(text, "namespaces "):
		return fmt.Errorf("--namespace: the cluster has no namespace %q", r.Namespace)
	case apierrors.IsNotFound(err):
		return errors.New("the cluster does not know EventReplays: install Ackrail there first, or choose another --context")
	}
	return fmt.Errorf("creating the EventReplay: %s", text)
}

// keepPlan is how long the object that counts for --dry-run=server stays where
// it could not be deleted.
const keepPlan = 5 * time.Minute

// plan has the manager count what a replay would take, without creating it.
func (f *createFlags) plan(cmd *cobra.Command, w *replayWatch, r *v1alpha1.EventReplay) error {
	// Whether it could be created, by its name and by the user's rights.
	if err := create(cmd.Context(), w.client, r.DeepCopy(), client.DryRunAll); err != nil {
		return err
	}
	counting := r.DeepCopy()
	counting.Name, counting.GenerateName = "", r.Name+"-plan-"
	counting.Spec.Mode = v1alpha1.ReplayModeDryRun
	ttl := int32(keepPlan / time.Second)
	counting.Spec.TTLSecondsAfterFinished = &ttl
	if err := create(cmd.Context(), w.client, counting); err != nil {
		return err
	}
	err := w.await(cmd.Context(), counting, planCounted)
	discard(cmd, w.client, counting)
	if err != nil {
		return err
	}
	switch f.output.format {
	case "text":
		describePlan(cmd.OutOrStdout(), r, &counting.Status)
		return nil
	case "name":
		return f.print(cmd, r, "")
	}
	return f.print(cmd, counting, "")
}

// discard deletes what a plan needed, also when the command was interrupted.
func discard(cmd *cobra.Command, c client.Client, r *v1alpha1.EventReplay) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), requestTimeout)
	defer cancel()
	err := c.Delete(ctx, r, client.Preconditions{UID: &r.UID})
	if err != nil && !apierrors.IsNotFound(err) {
		cmd.PrintErrf("EventReplay %s/%s could not be deleted: %v; it goes by itself %s after it has counted\n", r.Namespace, r.Name, err, keepPlan)
	}
}

// replaySpecFlags say what to replay.
type replaySpecFlags struct {
	endpoint                      string
	all                           bool
	destinations, types, eventIDs []string
	reasons, lastStatuses, states []string
	receivedAfter, receivedBefore string
	diedAfter, diedBefore         string
	limit                         int64
	maxPerSecond                  int32
	suspend                       bool
	ttl                           time.Duration
}

// criteria are the flags that select, at least one of which must be set unless
// --all is.
var criteria = []string{"destination", "type", "event-id", "reason", "last-status", "received-after", "received-before", "died-after", "died-before"}

func (f *replaySpecFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.endpoint, "endpoint", "", "name of the WebhookEndpoint whose events are replayed (required)")
	flags.BoolVar(&f.all, "all", false, "everything in the states, instead of criteria")
	flags.StringSliceVar(&f.destinations, "destination", nil, "only deliveries to these destinations")
	flags.StringSliceVar(&f.types, "type", nil, "only events of these types")
	flags.StringSliceVar(&f.eventIDs, "event-id", nil, "only these events")
	flags.StringSliceVar(&f.reasons, "reason", nil, "only what is dead for these reasons: "+strings.Join(reasonNames, ", "))
	flags.StringSliceVar(&f.lastStatuses, "last-status", nil, "only what was answered so in the end: 503, or a class such as 5xx")
	flags.StringSliceVar(&f.states, "state", nil, "deliveries in these states: dead, done, missing (default: dead)")
	flags.StringVar(&f.receivedAfter, "received-after", "", "only events received at this `time` or later: 2026-01-31T12:00:00Z, or how long ago, such as 2h")
	flags.StringVar(&f.receivedBefore, "received-before", "", "only events received before this `time`, in the same way")
	flags.StringVar(&f.diedAfter, "died-after", "", "only what died at this `time` or later, in the same way")
	flags.StringVar(&f.diedBefore, "died-before", "", "only what died before this `time`, in the same way")
	flags.Int64Var(&f.limit, "limit", 0, "replay at most so many, the oldest events first (default: no limit)")
	flags.Int32Var(&f.maxPerSecond, "max-per-second", 0, "start at most so many runs per second (default: as the workers keep up)")
	flags.BoolVar(&f.suspend, "suspend", false, "plan only; runs are started once spec.suspend is false")
	flags.DurationVar(&f.ttl, "ttl", 0, "delete the EventReplay so long after it has ended (default: it stays)")
	_ = cmd.MarkFlagRequired("endpoint")
}

// build makes an EventReplay, without a name, as of a time. It checks what the
// rules of the kind cannot, because it is no part of the object.
func (f *replaySpecFlags) build(cmd *cobra.Command, now time.Time) (*v1alpha1.EventReplay, error) {
	set := cmd.Flags().Changed
	selects := slices.IndexFunc(criteria, set)
	// An empty one is most often a variable that was not set, and would select
	// more than is meant.
	empty := slices.IndexFunc(criteria, func(flag string) bool { return set(flag) && f.isEmpty(flag) })
	switch {
	case empty >= 0:
		return nil, fmt.Errorf("--%s: is empty: give it a value, or leave it out", criteria[empty])
	case f.all && selects >= 0:
		return nil, fmt.Errorf("--all: cannot stand beside --%s: remove one of them", criteria[selects])
	case !f.all && selects < 0:
		return nil, fmt.Errorf("nothing is selected: set --all, or at least one of --%s", strings.Join(criteria, ", --"))
	case set("limit") && f.limit < 1:
		return nil, fmt.Errorf("--limit: must be at least 1, is %d", f.limit)
	case set("max-per-second") && f.maxPerSecond < 1:
		return nil, fmt.Errorf("--max-per-second: must be at least 1, is %d", f.maxPerSecond)
	case f.ttl%time.Second != 0 || f.ttl < 0:
		return nil, fmt.Errorf("--ttl: must be whole seconds, is %s", f.ttl)
	}
	r := &v1alpha1.EventReplay{Spec: v1alpha1.EventReplaySpec{
		EndpointRef: v1alpha1.EndpointRef{Name: f.endpoint},
		Selector: v1alpha1.ReplaySelector{
			Destinations: f.destinations, Types: f.types, EventIDs: f.eventIDs, LastStatuses: f.lastStatuses,
		},
		Limit: f.limit, MaxPerSecond: f.maxPerSecond, Suspend: f.suspend,
	}}
	if err := f.setTimes(&r.Spec.Selector, now); err != nil {
		return nil, err
	}
	for _, reason := range f.reasons {
		r.Spec.Selector.Reasons = append(r.Spec.Selector.Reasons, v1alpha1.DeadReason(reason))
	}
	if f.all {
		r.Spec.Selector.Match = v1alpha1.ReplayMatchAll
	}
	for _, state := range f.states {
		r.Spec.Selector.States = append(r.Spec.Selector.States, v1alpha1.ReplayState(capitalized(state)))
	}
	if set("ttl") {
		// The API's bound is far below that of the type.
		seconds := int32(min(f.ttl/time.Second, 1<<31-1))
		r.Spec.TTLSecondsAfterFinished = &seconds
	}
	return r, nil
}

// setTimes reads the flags that are times.
func (f *replaySpecFlags) setTimes(x *v1alpha1.ReplaySelector, now time.Time) (err error) {
	for _, t := range []struct {
		flag, text string
		into       **metav1.Time
	}{
		{"received-after", f.receivedAfter, &x.ReceivedAfter},
		{"received-before", f.receivedBefore, &x.ReceivedBefore},
		{"died-after", f.diedAfter, &x.DiedAfter},
		{"died-before", f.diedBefore, &x.DiedBefore},
	} {
		if *t.into, err = pointInTime(t.flag, t.text, now); err != nil {
			return err
		}
	}
	return nil
}

func (f *replaySpecFlags) isEmpty(criterion string) bool {
	switch criterion {
	case "received-after":
		return f.receivedAfter == ""
	case "received-before":
		return f.receivedBefore == ""
	case "died-after":
		return f.diedAfter == ""
	case "died-before":
		return f.diedBefore == ""
	}
	return len(f.valuesOf("--"+criterion)) == 0
}

// capitalized writes a word as the API does. The command line speaks of states
// in lower case everywhere else.
func capitalized(word string) string {
	if word == "" {
		return word
	}
	return strings.ToUpper(word[:1]) + strings.ToLower(word[1:])
}

// pointInTime reads a time, or how long before now it was.
func pointInTime(flag, text string, now time.Time) (*metav1.Time, error) {
	if text == "" {
		return nil, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return &metav1.Time{Time: t.UTC()}, nil
	}
	ago, err := time.ParseDuration(text)
	if err != nil || ago < 0 {
		return nil, fmt.Errorf("--%s: want a time such as 2026-01-31T12:00:00Z, or how long ago, such as 2h, is %q", flag, text)
	}
	return &metav1.Time{Time: now.Add(-ago).UTC()}, nil
}

// flagOf names the flag that sets a field.
var flagOf = map[string]string{
	"metadata.name":                "NAME",
	"metadata.namespace":           "--namespace",
	"spec.endpointRef.name":        "--endpoint",
	"spec.selector.states":         "--state",
	"spec.selector.destinations":   "--destination",
	"spec.selector.types":          "--type",
	"spec.selector.eventIDs":       "--event-id",
	"spec.selector.reasons":        "--reason",
	"spec.selector.lastStatuses":   "--last-status",
	"spec.selector.diedAfter":      "--died-after",
	"spec.selector.diedBefore":     "--died-before",
	"spec.selector.receivedAfter":  "--received-after",
	"spec.selector.receivedBefore": "--received-before",
	"spec.limit":                   "--limit",
	"spec.maxPerSecond":            "--max-per-second",
	"spec.ttlSecondsAfterFinished": "--ttl",
}

// explain says which flags the faults of an object are about.
func (f *replaySpecFlags) explain(faults []error) error {
	named := make([]error, len(faults))
	for i, fault := range faults {
		named[i] = fault
		path, detail, _ := strings.Cut(fault.Error(), ": ")
		field, rest, inList := strings.Cut(path, "[")
		flag, known := flagOf[field]
		if !known {
			continue
		}
		var index int
		values := f.valuesOf(flag)
		if _, err := fmt.Sscanf(rest, "%d]", &index); inList && err == nil && index < len(values) {
			flag += fmt.Sprintf(" %q", values[index])
		}
		named[i] = fmt.Errorf("%s: %s", flag, detail)
	}
	return errors.Join(named...)
}

// valuesOf returns the values of a flag that takes several.
func (f *replaySpecFlags) valuesOf(flag string) []string {
	switch flag {
	case "--state":
		return f.states
	case "--destination":
		return f.destinations
	case "--type":
		return f.types
	case "--event-id":
		return f.eventIDs
	case "--reason":
		return f.reasons
	case "--last-status":
		return f.lastStatuses
	}
	return nil
}
