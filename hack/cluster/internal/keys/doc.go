// Package keys makes the certificates and kubeconfigs of a cluster. It must
// not know which program uses them.
package keys
