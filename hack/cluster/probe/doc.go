// Command probe is what the cluster's own test runs in pods: a server that
// tells who it is, and in the same image a client, for kubectl exec.
package main
