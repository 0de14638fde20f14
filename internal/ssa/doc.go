// Package ssa brings an object to what a typed apply configuration says, by
// server-side apply under one field owner, and writes only where the object
// differs. Fields, labels and annotations that others own are left alone;
// what the configuration names is taken back from whoever changed it.
//
// It must not know what the objects are for.
package ssa
