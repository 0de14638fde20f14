// Package node starts, watches and removes a Kubernetes cluster of one node on
// this machine.
//
// All its processes, containers included, live in a process namespace and a
// mount namespace of their own. The first process of the process namespace is
// the only one that this package has to know: when it ends, the kernel ends
// all others and drops their mounts. What remains to be removed is what is
// outside of the namespaces: the bridge, the rules of kube-proxy, control
// groups, kernel settings and files.
//
// It must not know how the programs are built, nor anything about the product.
package node
