// Command bench measures the hot paths of this checkout, each against the
// limit that the machine sets or against a peer, in one run on one PostgreSQL
// server of its own. Product and reference take turns within the same minutes:
// only their ratios mean anything on another machine or on another day.
//
// Each row of the table is a function in rows.go's list. Rows that are about
// processes run the binary as a pod does; the others use its packages, whose
// internals they need to tell apart. It is a module of its own for the sake of
// its peers. What it knows of the schema is what filling tables fast needs.
package main
