// Package conditions sets and sums up the conditions of an object's status,
// and checks that a status says what kstatus (and with it kubectl wait, Argo CD
// and Flux) understands.
//
// It must not know any kind of object.
package conditions
