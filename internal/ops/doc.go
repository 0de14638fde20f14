// Package ops is the operations server of a process: liveness, readiness and
// metrics, on a port of its own that no sender reaches. Profiling is not
// among them: it would hand memory contents, and so bodies and secrets, to
// whoever reaches the port.
//
// The package must not know what the process does: readiness is a switch that
// its owner sets, and liveness means that the process answers at all. Neither
// asks the database.
package ops
