package v1alpha1

// Condition types of every kind, as kstatus knows them.
const (
	// ConditionReconciling is true while the object is not what its spec
	// says and the controller is working on it.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is true when the object cannot become what its spec
	// says before somebody changes something.
	ConditionStalled = "Stalled"
)

// Condition types of a WebhookEndpoint.
const (
	// ConditionReady is true while requests are taken and delivered as the
	// spec says, and never while suspend: All refuses them. It sums up the
	// others.
	ConditionReady = "Ready"
	// ConditionSecretsResolved is true while every Secret that the spec
	// names is there with its key.
	ConditionSecretsResolved = "SecretsResolved"
	// ConditionStoreReady is true while the database answers and has the
	// schema of this version.
	ConditionStoreReady = "StoreReady"
	// ConditionIngressAvailable is true while enough ingress pods take
	// requests: all but one, and at least one.
	ConditionIngressAvailable = "IngressAvailable"
	// ConditionWorkerAvailable is true while enough worker pods deliver: all
	// but one, and at least one.
	ConditionWorkerAvailable = "WorkerAvailable"
)

// Reasons of a WebhookEndpoint's conditions.
const (
	// ReasonAvailable: it does what it should.
	ReasonAvailable = "Available"
	// ReasonResolved: every Secret and key is there (SecretsResolved).
	ReasonResolved = "Resolved"
	// ReasonSecretNotFound: a Secret is missing (SecretsResolved, Ready).
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonSecretKeyNotFound: a Secret lacks the key, or it is empty
	// (SecretsResolved, Ready).
	ReasonSecretKeyNotFound = "SecretKeyNotFound"
	// ReasonSecretUnreadable: the API server did not hand a Secret out, as the
	// message says (SecretsResolved, Ready).
	ReasonSecretUnreadable = "SecretUnreadable"
	// ReasonInvalidDatabaseURL: the database's URL cannot be understood
	// (StoreReady, Ready, Stalled).
	ReasonInvalidDatabaseURL = "InvalidDatabaseURL"
	// ReasonDatabaseUnreachable: the database does not answer, or refuses
	// (StoreReady, Ready).
	ReasonDatabaseUnreachable = "DatabaseUnreachable"
	// ReasonMigrationFailed: the database's schema could not be brought up
	// to date (StoreReady, Ready).
	ReasonMigrationFailed = "MigrationFailed"
	// ReasonRollingOut: pods are being started or replaced
	// (IngressAvailable, WorkerAvailable, Ready, Reconciling).
	ReasonRollingOut = "RollingOut"
	// ReasonUnavailable: too few pods are available
	// (IngressAvailable, WorkerAvailable, Ready).
	ReasonUnavailable = "Unavailable"
	// ReasonRolloutFailed: new pods cannot be made, or have not become
	// available in time (IngressAvailable, WorkerAvailable, Ready, Stalled).
	ReasonRolloutFailed = "RolloutFailed"
	// ReasonNotApplied: nothing was applied yet, because something else is
	// missing or in the way (StoreReady, IngressAvailable, WorkerAvailable,
	// Ready).
	ReasonNotApplied = "NotApplied"
	// ReasonApplyFailed: the API server refused an object, as the message
	// says (IngressAvailable, WorkerAvailable, Ready, Reconciling, Stalled).
	ReasonApplyFailed = "ApplyFailed"
	// ReasonNameConflict: an object of the name that is needed belongs to
	// somebody else (IngressAvailable, WorkerAvailable, Ready, Stalled).
	ReasonNameConflict = "NameConflict"
	// ReasonSuspended: spec.suspend holds a part back (Ready; Suspended,
	// Progressing and Complete of an EventReplay).
	ReasonSuspended = "Suspended"
	// ReasonProgressing: the controller is working on it (Reconciling).
	ReasonProgressing = "Progressing"
)

// Condition types of an EventReplay.
const (
	// ConditionPlanned is true once the deliveries to replay are settled and
	// counted; later events are no part of the replay.
	ConditionPlanned = "Planned"
	// ConditionProgressing is true while runs are started and followed to
	// their end, and false while the replay cannot go on. A replay that has
	// completed or failed has none.
	ConditionProgressing = "Progressing"
	// ConditionComplete is true once every run that the replay started is
	// done or dead.
	ConditionComplete = "Complete"
	// ConditionFailed is true when the replay stopped and will not go on.
	ConditionFailed = "Failed"
	// ConditionSuspended is true while spec.suspend keeps the replay from
	// starting further runs.
	ConditionSuspended = "Suspended"
)

// Reasons of an EventReplay's conditions.
const (
	// ReasonMatched: deliveries were found (Planned).
	ReasonMatched = "Matched"
	// ReasonNothingMatched: the selector found no delivery (Planned,
	// Complete).
	ReasonNothingMatched = "NothingMatched"
	// ReasonInProgress: runs are still open (Progressing; Complete is false).
	ReasonInProgress = "InProgress"
	// ReasonSucceeded: every run is done (Complete).
	ReasonSucceeded = "Succeeded"
	// ReasonCompletedWithFailures: no run is open, some are dead again
	// (Complete).
	ReasonCompletedWithFailures = "CompletedWithFailures"
	// ReasonDryRun: what would be replayed is counted, nothing was changed
	// (Planned, Complete).
	ReasonDryRun = "DryRun"
	// ReasonWaiting: what the replay needs is not there yet, as the message
	// says; it goes on by itself (Planned, Progressing, Complete).
	ReasonWaiting = "Waiting"
	// ReasonEndpointNotFound: there is no endpoint of that name (Planned
	// while it may still come; Failed outside a cluster, where the database
	// knows none).
	ReasonEndpointNotFound = "EndpointNotFound"
	// ReasonDestinationNotFound: the database does not know a destination for
	// which events are missing (Planned while it may still come; Failed
	// outside a cluster).
	ReasonDestinationNotFound = "DestinationNotFound"
	// ReasonSpecChanged: an EventReplay of that name was started before with
	// another spec (Failed).
	ReasonSpecChanged = "SpecChanged"
	// ReasonInvalidSpec: the spec cannot be understood, as the message says
	// (Failed).
	ReasonInvalidSpec = "InvalidSpec"
)
