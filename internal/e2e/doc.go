// Package e2e tests the whole product as its users meet it: the chart is
// installed with helm on a cluster, objects are applied with kubectl, signed
// webhooks are sent to Services, and pods, processes and the manager are killed
// meanwhile. `make e2e` runs it; its tests need the build tag e2e, so that
// `go test ./...` needs no cluster.
//
// The tests know the product by its API, its chart and its images only. They
// must not import what is inside it, nor reach its database.
package e2e
