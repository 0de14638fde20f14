package webhookendpoint

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/event"
)

// scope is one reconciliation: the endpoint, and what the phases have found.
type scope struct {
	// endpoint is as it was read. Phases do not change it.
	endpoint *v1alpha1.WebhookEndpoint

	// secrets is what is wrong with the Secrets that the spec names, nil if
	// nothing is.
	secrets *fault
	// databaseURL is empty if the database's Secret could not be resolved.
	databaseURL string

	// store is what is wrong with the database, nil if nothing is or if its
	// URL is unknown.
	store *fault

	// apply is what kept a child from being applied, nil if all were.
	apply *fault
	// applied: all children are as they should be.
	applied bool
	// ingress and worker are the Deployments as they are, nil where there is
	// none of this endpoint's.
	ingress, worker *appsv1.Deployment
	// created are the kinds of which a child was made.
	created []string

	// counts are those of the endpoint's destinations, nil if unknown.
	counts []event.Counts
	// dead is what is dead, by destination. It is known where counts is.
	dead []event.DeadCounts
}

// fault is something that keeps an endpoint from being ready.
type fault struct {
	// reason is one of the reasons of conditions.
	reason string
	// message is for people. It must not change while nothing else does.
	message string
	// final: it stays until somebody changes something.
	final bool
	// working: the controller tries again by itself, soon.
	working bool
}
