// Package resources turns specs into what runs them. Everything in it is
// pure: the same objects give the same result, and nothing is read or written
// anywhere.
package resources
