// Package crd carries the CustomResourceDefinitions, which are generated from
// package v1alpha1, inside the binary: they are what manifests are validated
// against, and what is installed into a cluster.
//
// It only holds files; it knows nothing of what they say.
package crd
