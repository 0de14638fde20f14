// Package databases keeps the databases that controllers work with, each
// named by its URL: a few connections to each, shared by all who name it, for
// as long as somebody uses it.
//
// Every call returns within some five seconds, and a database that does not
// answer is not asked again for a while, so that it holds up nobody who waits
// for another one. Errors say what is wrong in words that do not change from
// one call to the next, and that repeat neither the URL nor the password.
//
// It knows nothing of Kubernetes: the controllers declare what they need of
// it, and where a URL comes from is their business.
package databases
