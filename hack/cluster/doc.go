// Command cluster runs a Kubernetes cluster of one node on this machine, for
// tests and for trying things out. The scripts beside it call it; see
// docs/cluster.md.
package main
