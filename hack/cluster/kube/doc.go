// Command kube is etcd, the Kubernetes servers and kubectl in one program,
// which links once instead of seven times. What it does depends on the name
// that it is called by; see the programs table.
package main
