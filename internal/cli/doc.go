// Package cli is the command line: it turns flags into options and wires the
// packages together. Whatever could be called from somewhere else does not
// belong here.
package cli
