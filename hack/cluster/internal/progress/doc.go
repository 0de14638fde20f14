// Package progress tells people what a command is doing and how long it has
// been at it. It must not know what that is.
package progress
