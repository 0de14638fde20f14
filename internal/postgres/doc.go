// Package postgres runs a private PostgreSQL server from the programs that are installed on the machine: it creates
// the database, starts the server, waits until it answers, and ends it again, for people who try the product without
// a database of their own and for tests.
//
// The server listens on 127.0.0.1 only, demands a password, keeps its data over restarts, and does not outlive the
// process that started it (on Linux; elsewhere a killed process leaves it running and the next Start adopts it). Two
// processes that ask for the same folder share one server.
//
// It must not know what the database is used for: no schema, no driver, nothing but the standard library.
package postgres
