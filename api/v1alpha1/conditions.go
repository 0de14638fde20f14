package v1alpha1

// Condition types of an EventReplay.
const (
	// ConditionPlanned is true once the deliveries to replay are settled and
	// counted; later events are no part of the replay.
	ConditionPlanned = "Planned"
	// ConditionComplete is true once every run that the replay started is
	// done or dead.
	ConditionComplete = "Complete"
	// ConditionFailed is true when the replay stopped and will not go on.
	ConditionFailed = "Failed"
)

// Reasons of an EventReplay's conditions.
const (
	// ReasonMatched: deliveries were found (Planned).
	ReasonMatched = "Matched"
	// ReasonNothingMatched: the selector found no delivery (Planned,
	// Complete).
	ReasonNothingMatched = "NothingMatched"
	// ReasonInProgress: runs are still open (Complete is false).
	ReasonInProgress = "InProgress"
	// ReasonSucceeded: every run is done (Complete).
	ReasonSucceeded = "Succeeded"
	// ReasonFinishedWithDead: no run is open, some are dead again (Complete).
	ReasonFinishedWithDead = "FinishedWithDead"
	// ReasonEndpointNotFound: the database knows no endpoint of that name
	// (Failed).
	ReasonEndpointNotFound = "EndpointNotFound"
	// ReasonSpecChanged: an EventReplay of that name was started before with
	// another spec (Failed).
	ReasonSpecChanged = "SpecChanged"
)
