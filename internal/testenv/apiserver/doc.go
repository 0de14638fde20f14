// Package apiserver gives tests of controllers a Kubernetes API server with
// the product's definitions in it: etcd and kube-apiserver on loopback, and
// nothing else. No controllers of Kubernetes run, so Deployments make no pods,
// namespaces are never quite gone and owner references are not followed.
//
// Only _test.go files may import it. It must not know what is tested.
package apiserver
