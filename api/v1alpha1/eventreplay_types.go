package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EventReplay delivers past events once more: every delivery that it selects
// starts a new run, while the record of the earlier runs stays. Deleting the
// object stops it: no further runs are started, those that were started are
// delivered.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=replay,categories=ackrail
// +kubebuilder:printcolumn:name="Complete",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].status`
// +kubebuilder:printcolumn:name="Matched",type=integer,JSONPath=`.status.matched`
// +kubebuilder:printcolumn:name="Replayed",type=integer,JSONPath=`.status.replayed`,priority=1
// +kubebuilder:printcolumn:name="Pending",type=integer,JSONPath=`.status.pending`
// +kubebuilder:printcolumn:name="Succeeded",type=integer,JSONPath=`.status.succeeded`
// +kubebuilder:printcolumn:name="Dead",type=integer,JSONPath=`.status.dead`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EventReplay struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the order. It cannot be changed once given, but for suspend.
	// +required
	Spec EventReplaySpec `json:"spec"`

	// Status is what has become of it.
	// +optional
	Status EventReplayStatus `json:"status,omitzero"`
}

// EventReplayList is a list of EventReplay objects.
//
// +kubebuilder:object:root=true
type EventReplayList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EventReplay `json:"items"`
}

// EventReplaySpec says which deliveries are run once more. All of it but
// suspend is immutable.
//
// +kubebuilder:validation:XValidation:rule="self.endpointRef == oldSelf.endpointRef",fieldPath=".endpointRef",message="cannot be changed, since a part of the replay may be done already: create another EventReplay"
// +kubebuilder:validation:XValidation:rule="self.selector == oldSelf.selector",fieldPath=".selector",message="cannot be changed, since a part of the replay may be done already: create another EventReplay"
// +kubebuilder:validation:XValidation:rule="self.mode == oldSelf.mode",fieldPath=".mode",message="cannot be changed, since a part of the replay may be done already: create another EventReplay"
// +kubebuilder:validation:XValidation:rule="has(self.limit) == has(oldSelf.limit) && (!has(self.limit) || self.limit == oldSelf.limit)",fieldPath=".limit",message="cannot be changed, since a part of the replay may be done already: create another EventReplay"
// +kubebuilder:validation:XValidation:rule="has(self.maxPerSecond) == has(oldSelf.maxPerSecond) && (!has(self.maxPerSecond) || self.maxPerSecond == oldSelf.maxPerSecond)",fieldPath=".maxPerSecond",message="cannot be changed, since a part of the replay may be done already: create another EventReplay"
// +kubebuilder:validation:XValidation:rule="has(self.ttlSecondsAfterFinished) == has(oldSelf.ttlSecondsAfterFinished) && (!has(self.ttlSecondsAfterFinished) || self.ttlSecondsAfterFinished == oldSelf.ttlSecondsAfterFinished)",fieldPath=".ttlSecondsAfterFinished",message="cannot be changed: delete the EventReplay when it is no longer needed"
type EventReplaySpec struct {
	// EndpointRef names the endpoint whose events are replayed.
	// +required
	EndpointRef EndpointRef `json:"endpointRef"`

	// Selector says which deliveries are replayed. At least one criterion, or
	// match: All.
	// +required
	Selector ReplaySelector `json:"selector"`

	// Limit is how many deliveries are replayed at most, those of the oldest
	// events first. At least 1.
	// Default: no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Limit int64 `json:"limit,omitempty"`

	// Mode is Run, or DryRun to count what would be replayed at this moment,
	// without changing anything. Default: Run.
	// +optional
	// +kubebuilder:default=Run
	Mode ReplayMode `json:"mode,omitempty"`

	// MaxPerSecond is how many runs are started per second at most.
	// 1 to 10000. Default: as many as the workers end, so that new events
	// are delivered alongside.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxPerSecond int32 `json:"maxPerSecond,omitempty"`

	// Suspend stops the replay from starting further runs, until it is false
	// again; runs that were started are delivered. What to replay is settled
	// nevertheless. It may be changed at any time. Default: false.
	// +optional
	// +kubebuilder:default=false
	Suspend bool `json:"suspend,omitempty"`

	// TTLSecondsAfterFinished is how long the object stays after the replay
	// has completed or failed; then it is deleted. What it has replayed
	// stays. 0 to 31536000 (365 days) seconds. Default: it stays.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// ReplayMode says whether a replay changes anything.
//
// +kubebuilder:validation:Enum=Run;DryRun
type ReplayMode string

const (
	// ReplayModeRun plans and runs.
	ReplayModeRun ReplayMode = "Run"
	// ReplayModeDryRun counts what would be planned.
	ReplayModeDryRun ReplayMode = "DryRun"
)

// EndpointRef names a WebhookEndpoint in the same namespace.
type EndpointRef struct {
	// Name of the WebhookEndpoint.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of a WebhookEndpoint: lower-case letters, digits, '-' and '.', with a letter or digit at each end"
	Name string `json:"name"`
}

// ReplayMatch selects without criteria.
//
// +kubebuilder:validation:Enum=All
type ReplayMatch string

// ReplayMatchAll selects every delivery in the selector's states.
const ReplayMatchAll ReplayMatch = "All"

// ReplayState is a state in which a delivery can be replayed.
//
// +kubebuilder:validation:Enum=Dead;Done;Missing
type ReplayState string

const (
	// ReplayStateDead selects deliveries that have failed for good.
	ReplayStateDead ReplayState = "Dead"
	// ReplayStateDone selects deliveries that have succeeded; they are
	// delivered a second time.
	ReplayStateDone ReplayState = "Done"
	// ReplayStateMissing selects events that were never owed to the
	// destinations named, because these were added later.
	ReplayStateMissing ReplayState = "Missing"
)

// DeadReason is why a delivery is dead.
//
// +kubebuilder:validation:Enum=PermanentStatus;AttemptsExhausted;OutcomeUnknown;PayloadMissing
type DeadReason string

const (
	// DeadReasonPermanentStatus selects what was answered with a status by
	// which trying again is pointless, such as 400.
	DeadReasonPermanentStatus DeadReason = "PermanentStatus"
	// DeadReasonAttemptsExhausted selects what has failed as often as the
	// destination's retry allows.
	DeadReasonAttemptsExhausted DeadReason = "AttemptsExhausted"
	// DeadReasonOutcomeUnknown selects what may have arrived: the worker of
	// its last attempt vanished before it could tell.
	DeadReasonOutcomeUnknown DeadReason = "OutcomeUnknown"
	// DeadReasonPayloadMissing selects what had lost its event's body.
	DeadReasonPayloadMissing DeadReason = "PayloadMissing"
)

// ReplaySelector selects deliveries: those that meet every criterion given.
//
// +kubebuilder:validation:XValidation:rule="has(self.match) || (has(self.destinations) && size(self.destinations) > 0) || (has(self.types) && size(self.types) > 0) || (has(self.eventIDs) && size(self.eventIDs) > 0) || (has(self.reasons) && size(self.reasons) > 0) || (has(self.lastStatuses) && size(self.lastStatuses) > 0) || has(self.receivedAfter) || has(self.receivedBefore) || has(self.diedAfter) || has(self.diedBefore)",message="must have at least one of destinations, types, eventIDs, reasons, lastStatuses, receivedAfter, receivedBefore, diedAfter and diedBefore: name what to replay, or set match: All to replay everything in these states"
// +kubebuilder:validation:XValidation:rule="!has(self.match) || !((has(self.destinations) && size(self.destinations) > 0) || (has(self.types) && size(self.types) > 0) || (has(self.eventIDs) && size(self.eventIDs) > 0) || (has(self.reasons) && size(self.reasons) > 0) || (has(self.lastStatuses) && size(self.lastStatuses) > 0) || has(self.receivedAfter) || has(self.receivedBefore) || has(self.diedAfter) || has(self.diedBefore))",fieldPath=".match",message="cannot stand beside other criteria than states: remove match, or the other criteria"
// +kubebuilder:validation:XValidation:rule="!has(self.reasons) || size(self.reasons) == 0 || (!has(self.states) || self.states.all(s, s == 'Dead'))",fieldPath=".reasons",message="goes with states: [Dead] only, since only dead letters have a reason: remove reasons, or replay the other states by an EventReplay of their own"
// +kubebuilder:validation:XValidation:rule="!has(self.lastStatuses) || size(self.lastStatuses) == 0 || (!has(self.states) || self.states.all(s, s != 'Missing'))",fieldPath=".lastStatuses",message="cannot stand beside the state Missing, since what was never sent got no answer: remove lastStatuses, or replay what is missing by an EventReplay of its own"
// +kubebuilder:validation:XValidation:rule="(!has(self.states) || self.states.all(s, s != 'Missing')) || (has(self.destinations) && size(self.destinations) > 0)",fieldPath=".destinations",message="is required with the state Missing: name the destinations that were added later"
// +kubebuilder:validation:XValidation:rule="!has(self.diedAfter) || (!has(self.states) || self.states.all(s, s == 'Dead'))",fieldPath=".diedAfter",message="goes with states: [Dead] only, since only dead letters have died: remove diedAfter, or replay the other states by an EventReplay of their own"
// +kubebuilder:validation:XValidation:rule="!has(self.diedBefore) || (!has(self.states) || self.states.all(s, s == 'Dead'))",fieldPath=".diedBefore",message="goes with states: [Dead] only, since only dead letters have died: remove diedBefore, or replay the other states by an EventReplay of their own"
// +kubebuilder:validation:XValidation:rule="!has(self.receivedAfter) || !has(self.receivedBefore) || self.receivedAfter < self.receivedBefore",fieldPath=".receivedBefore",message="must be later than receivedAfter, else no event lies between them: exchange or correct the two times"
// +kubebuilder:validation:XValidation:rule="!has(self.diedAfter) || !has(self.diedBefore) || self.diedAfter < self.diedBefore",fieldPath=".diedBefore",message="must be later than diedAfter, else no death lies between them: exchange or correct the two times"
type ReplaySelector struct {
	// Match is All to select everything in the given states, instead of
	// criteria. Default: the criteria select.
	// +optional
	Match ReplayMatch `json:"match,omitempty"`

	// States of the deliveries: Dead, Done, Missing, or several of them.
	// Missing are events that came in before a destination was added: their
	// first run is started; it needs destinations. Not a criterion by itself.
	// Default: [Dead].
	// +optional
	// +listType=set
	// +kubebuilder:default={Dead}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	States []ReplayState `json:"states,omitempty"`

	// Destinations of the deliveries, by name. At most 32. Default: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="must be the name of a destination: lower-case letters, digits and '-', with a letter or digit at each end"
	Destinations []string `json:"destinations,omitempty"`

	// Types of the events, each compared as a whole. At most 64, of at most
	// 256 characters. Default: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Types []string `json:"types,omitempty"`

	// EventIDs of the events, as the ingress answered them (UUIDs).
	// At most 1000. Default: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=36
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$')",message="must be an event's ID, a UUID such as 019a2d4e-7c31-7b52-9a0f-3f1c5d7e9b24: take it from the answer to the webhook, or from ackrail events list"
	EventIDs []string `json:"eventIDs,omitempty"`

	// Reasons why the deliveries are dead, as ackrail events list shows them;
	// with states: [Dead] only. Default: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	Reasons []DeadReason `json:"reasons,omitempty"`

	// LastStatuses are what the destination answered to the last attempt:
	// HTTP status codes such as "503", or classes such as "5xx". They do not
	// select what got no answer. At most 32. Default: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=3
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[1-5]([0-9][0-9]|xx)$')",message="must be an HTTP status code such as \"503\", or a class such as \"5xx\", in quotation marks"
	LastStatuses []string `json:"lastStatuses,omitempty"`

	// ReceivedAfter selects events that were received at this time or later.
	// Default: no bound.
	// +optional
	ReceivedAfter *metav1.Time `json:"receivedAfter,omitempty"`

	// ReceivedBefore selects events that were received before this time.
	// Default: no bound.
	// +optional
	ReceivedBefore *metav1.Time `json:"receivedBefore,omitempty"`

	// DiedAfter selects deliveries that have died at this time or later, by
	// the database's clock; with states: [Dead] only. Default: no bound.
	// +optional
	DiedAfter *metav1.Time `json:"diedAfter,omitempty"`

	// DiedBefore selects deliveries that have died before this time, by the
	// database's clock; with states: [Dead] only. Default: no bound.
	// +optional
	DiedBefore *metav1.Time `json:"diedBefore,omitempty"`
}

// SkipReason is why no run was started for a delivery that was planned.
//
// +kubebuilder:validation:Enum=AlreadyPending;DestinationGone;PayloadPurged;Purged;TakenByAnotherReplay
type SkipReason string

const (
	// SkipReasonAlreadyPending counts those of which another run had not
	// ended.
	SkipReasonAlreadyPending SkipReason = "AlreadyPending"
	// SkipReasonDestinationGone counts those whose destination the endpoint
	// no longer had when it was their turn.
	SkipReasonDestinationGone SkipReason = "DestinationGone"
	// SkipReasonPayloadPurged counts those whose event was dropped at the end
	// of its retention.
	SkipReasonPayloadPurged SkipReason = "PayloadPurged"
	// SkipReasonPurged counts those whose own record was dropped at the end
	// of its retention.
	SkipReasonPurged SkipReason = "Purged"
	// SkipReasonTakenByAnotherReplay counts those that another replay had
	// taken up, in a run that had ended.
	SkipReasonTakenByAnotherReplay SkipReason = "TakenByAnotherReplay"
)

// SkippedCount is how many deliveries were skipped for one reason.
type SkippedCount struct {
	// Reason for which they were skipped.
	// +required
	Reason SkipReason `json:"reason"`

	// Count of deliveries. At least 1.
	// +required
	// +kubebuilder:validation:Minimum=1
	Count int64 `json:"count"`
}

// EventReplayStatus is what has become of a replay. The counts are of
// deliveries, each of which is counted once.
type EventReplayStatus struct {
	// Conditions: Planned and Complete always; Progressing until the replay
	// has completed or failed; Suspended, Failed, Reconciling and Stalled
	// only while true.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ObservedGeneration is the metadata.generation that this status is of.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Matched is how many deliveries the selector found, up to the limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Matched int64 `json:"matched"`

	// Replayed is for how many of them this replay has started a run.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replayed int64 `json:"replayed"`

	// Pending is how many of these runs have not ended: they wait for a
	// worker or for their next attempt, or are being delivered.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pending int64 `json:"pending"`

	// Succeeded is how many of these runs are done.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Succeeded int64 `json:"succeeded"`

	// Dead is how many of these runs have failed for good.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Dead int64 `json:"dead"`

	// Skipped is for how many of the deliveries no run was started in the
	// end, as skippedReasons says. Of a dry run, for how many none would be
	// because the endpoint no longer has their destination.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Skipped int64 `json:"skipped"`

	// SkippedReasons is skipped by reason, without those that did not occur.
	// +optional
	// +listType=map
	// +listMapKey=reason
	// +kubebuilder:validation:MaxItems=5
	SkippedReasons []SkippedCount `json:"skippedReasons,omitempty"`

	// SampleEventIDs are some of the events that were matched, for a look at
	// them: the 20 oldest.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=36
	SampleEventIDs []string `json:"sampleEventIDs,omitempty"`

	// StartTime is when the replay was planned, or counted, by the
	// database's clock.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// RatePerSecond is how many of the matched deliveries have ended, or were
	// skipped, per second in the last minute: a decimal number such as "0.5"
	// or "120", right but for a tenth. Absent when estimatedCompletionTime,
	// which follows from it, is.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	RatePerSecond string `json:"ratePerSecond,omitempty"`

	// EstimatedCompletionTime is about when the replay will complete if it
	// goes on as in the last minute. Absent while that is not known: in the
	// first seconds, while it is suspended or waits for something, and when
	// no run has ended for a minute.
	// +optional
	EstimatedCompletionTime *metav1.Time `json:"estimatedCompletionTime,omitempty"`

	// CompletionTime is when it was seen that its last run was done or dead,
	// by the database's clock.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}
