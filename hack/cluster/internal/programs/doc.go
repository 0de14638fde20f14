// Package programs builds what a cluster runs, each thing once per machine:
// the result lies in a folder named after a hash of everything that it was
// made from, and appears there whole or not at all.
//
// It must not know how the programs are run.
package programs
