// Package testenv gives tests the real things that the product meets: a PostgreSQL server, PgBouncer, a network that
// fails on demand, an HTTP destination that remembers; standbys, disks that fill up, clocks that jump, limits. Whatever
// it starts ends with the test, or with the test process,
// even if that is killed.
//
// Only _test.go files may import it. It must not know what is tested: no schema of the store, no configuration of the
// pipeline.
//
// A package whose tests use a database has this TestMain, which also finds leaked goroutines:
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
package testenv
