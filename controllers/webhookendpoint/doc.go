// Package webhookendpoint makes WebhookEndpoint objects real: it renders and
// applies what serves an endpoint, watches it come up, and tells in the status
// how it goes.
//
// A reconciliation is a row of phases over a scope: resolve the Secrets, see
// to the database, apply the children, count what is owed. Phases only note
// what they find; status.go alone turns that into a status.
//
// It must not know how the database is reached (it declares an interface for
// it), and reads of Secrets no more than what it must: the database's URL, and
// whether the keys of others are there.
package webhookendpoint
