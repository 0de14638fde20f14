package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WebhookEndpointStatus is the pipeline that was observed.
type WebhookEndpointStatus struct {
	// Conditions: Ready, SecretsResolved, StoreReady, IngressAvailable and
	// WorkerAvailable always; Reconciling and Stalled only while true.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ObservedGeneration is the metadata.generation that this status is of.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// URL takes requests from within the cluster. What brings requests from
	// outside to it (an Ingress, an HTTPRoute) keeps the path as it is.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`

	// Deliveries counts what is owed to the destinations together. It is
	// refreshed about every 30 seconds, and keeps its last values while the
	// database cannot be reached.
	// +optional
	Deliveries *DeliveryCounts `json:"deliveries,omitempty"`

	// DeadLetters tells more of what has failed for good and was not
	// replayed since, also at destinations that the spec no longer has.
	// Absent while there are none. Refreshed like deliveries.
	// +optional
	DeadLetters *DeadLetterCounts `json:"deadLetters,omitempty"`
}

// DeadLetterCounts are dead letters that no replay has taken up.
type DeadLetterCounts struct {
	// Total is how many there are.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Total int64 `json:"total"`

	// OldestTime is when the first of them died, by the database's clock.
	// +optional
	OldestTime *metav1.Time `json:"oldestTime,omitempty"`

	// Reasons is total by reason, those with the most first; at most 8.
	// +optional
	// +listType=map
	// +listMapKey=reason
	// +kubebuilder:validation:MaxItems=8
	Reasons []DeadReasonCount `json:"reasons,omitempty"`

	// Destinations is total by destination, those with the most first; at
	// most 20.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	Destinations []DeadDestinationCount `json:"destinations,omitempty"`

	// PurgeWarning is the last warning, in an event of the same time, of dead
	// letters that reach the end of retention.deadLettersSeconds: in its last
	// tenth, but at least an hour and at most a day before. It is given when
	// there begin to be some, and again after each day on which there still
	// are; absent while there are none.
	// +optional
	PurgeWarning *PurgeWarning `json:"purgeWarning,omitempty"`
}

// DeadReasonCount is how many dead letters have one reason.
type DeadReasonCount struct {
	// Reason is why they are dead.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`

	// Count is how many there are.
	// +required
	// +kubebuilder:validation:Minimum=1
	Count int64 `json:"count"`
}

// DeadDestinationCount is how many dead letters one destination has.
type DeadDestinationCount struct {
	// Name is the destination's.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Count is how many there are.
	// +required
	// +kubebuilder:validation:Minimum=1
	Count int64 `json:"count"`
}

// PurgeWarning is what was said of dead letters that are purged soon.
type PurgeWarning struct {
	// Time is when it was said.
	// +required
	Time metav1.Time `json:"time"`

	// Count is how many there were.
	// +required
	// +kubebuilder:validation:Minimum=1
	Count int64 `json:"count"`

	// FirstPurgeTime is when the first of them is purged, by the database's
	// clock.
	// +required
	FirstPurgeTime metav1.Time `json:"firstPurgeTime"`

	// LastPurgeTime is when the last of them is.
	// +required
	LastPurgeTime metav1.Time `json:"lastPurgeTime"`
}

// DeliveryCounts are numbers of deliveries by state.
type DeliveryCounts struct {
	// Pending is how many wait for their first attempt or are being
	// delivered right now.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pending int64 `json:"pending"`

	// Failed is how many have failed and wait for their next attempt.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failed int64 `json:"failed"`

	// Dead is how many have failed for good and were not replayed since.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Dead int64 `json:"dead"`

	// OldestDueTime is since when the delivery that waits the longest has
	// been due. Absent while none is due.
	// +optional
	OldestDueTime *metav1.Time `json:"oldestDueTime,omitempty"`
}
