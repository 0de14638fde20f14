package event

// State is the state of a delivery.
type State string

// The states of a delivery. Done and Dead are terminal.
const (
	// StatePending waits for its first attempt, or was handed back unsent.
	StatePending State = "pending"
	// StateClaimed is held by a worker until its lease ends.
	StateClaimed State = "claimed"
	// StateFailed had an attempt that failed and will be retried.
	StateFailed State = "failed"
	// StateDone was taken by its destination.
	StateDone State = "done"
	// StateDead will not be tried again by itself: a human should look.
	StateDead State = "dead"
)

// Reason says why a delivery is dead.
type Reason string

// The reasons for a dead delivery.
const (
	// ReasonPermanentStatus: the destination answered with a status that
	// says that trying again is pointless.
	ReasonPermanentStatus Reason = "PermanentStatus"
	// ReasonAttemptsExhausted: the last allowed attempt failed.
	ReasonAttemptsExhausted Reason = "AttemptsExhausted"
	// ReasonOutcomeUnknown: the last allowed attempt's worker vanished
	// before it could say how the attempt ended.
	ReasonOutcomeUnknown Reason = "OutcomeUnknown"
	// ReasonPayloadMissing: the event's body is no longer in the database, or
	// cannot be read.
	ReasonPayloadMissing Reason = "PayloadMissing"
)

// ErrorClass says what kind of failure an attempt had. The set is small and
// closed, so that it can label metrics.
type ErrorClass string

// The classes of failed attempts.
const (
	ErrorNone              ErrorClass = ""
	ErrorHTTPStatus        ErrorClass = "HTTPStatus"
	ErrorTimeout           ErrorClass = "Timeout"
	ErrorDNS               ErrorClass = "DNS"
	ErrorConnectionRefused ErrorClass = "ConnectionRefused"
	ErrorConnectionReset   ErrorClass = "ConnectionReset"
	ErrorTLS               ErrorClass = "TLS"
	ErrorProtocol          ErrorClass = "Protocol"
	ErrorNetwork           ErrorClass = "Network"
	// ErrorSigningSecret: the request could not be signed and was not sent.
	ErrorSigningSecret ErrorClass = "SigningSecret"
	// ErrorCanceled: the worker was told to stop before the answer came.
	ErrorCanceled ErrorClass = "Canceled"
)

// Verdict is what an attempt's outcome means for its delivery.
type Verdict string

// The verdicts on an attempt.
const (
	// VerdictDone: the destination took the delivery.
	VerdictDone Verdict = "done"
	// VerdictFailed: the attempt failed and the delivery is due again after
	// a delay.
	VerdictFailed Verdict = "failed"
	// VerdictDead: the delivery goes to the dead letters.
	VerdictDead Verdict = "dead"
	// VerdictReleased: the worker hands the delivery back unsent; the
	// attempt does not count against the limit.
	VerdictReleased Verdict = "released"
)
