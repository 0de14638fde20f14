// Command coredns is CoreDNS with the few plugins that a cluster needs.
package main
