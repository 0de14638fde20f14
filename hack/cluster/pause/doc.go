// Command pause holds the namespaces of a pod while its containers come and
// go. It must not need anything: a libc, a file, a user.
package main
