// Command bench measures the hot paths of this checkout against what the
// machine's PostgreSQL can do, in one run on one server: requests
// acknowledged over HTTP against pgbench's single-row insert, and the rate at
// which a worker claims, carries out and completes deliveries. Only its
// ratios mean anything on another machine or on another day.
package main
