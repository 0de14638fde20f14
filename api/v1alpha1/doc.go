// Package v1alpha1 is the Kubernetes API of Ackrail: WebhookEndpoint, a
// pipeline from a sender's webhooks to their handlers, and EventReplay, the
// order to deliver past events once more.
//
// It holds the types, the names of conditions and reasons, and accessors for
// the defaults that a schema cannot express. All other defaults and every
// rule stand in the schema that is generated from the markers here, so that an
// API server and the command line judge an object alike.
//
// It knows neither the store nor the data plane.
//
// +groupName=ackrail.io
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
package v1alpha1
