// Package rig runs the product for tests as what it is elsewhere: processes of
// their own, which a test starts, signals, kills and replaces. It has what
// stands around them too: a configuration with its secrets, a sender that
// signs, and a look at the database.
//
// Only _test.go files may import it. It gets the product's main function as an
// argument and must not know the commands beyond the flags of the ingress and
// the worker, so that the tests of internal/cli can use it.
//
// The TestMain of a package that uses it is
//
//	func TestMain(m *testing.M) { rig.Main(m, cli.Main) }
package rig
