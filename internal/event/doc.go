// Package event holds the words of the domain: events, deliveries, attempts,
// runs, states and the reasons for them. It has no I/O and knows neither
// Postgres nor HTTP nor Kubernetes; every other package speaks in its terms.
package event
