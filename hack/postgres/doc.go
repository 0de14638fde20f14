// Command postgres gives the pods of a cluster on this machine a database: it
// runs a private PostgreSQL server on loopback and forwards an address that
// pods reach, such as the gateway of their bridge, to it. It goes on until
// SIGTERM or SIGINT and takes the server along. The scripts up and down beside
// it keep one running in the background.
//
// It is for demonstrations and tests. It must not know what the database is
// used for, nor anything about the cluster but that one address.
package main
