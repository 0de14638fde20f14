package testenv

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"
)

// Network is a network namespace in which processes run as on another machine. A private subnet joins it to this one,
// where proxies lead to servers. What it drops it drops without a word, as a broken switch.
type Network struct {
	t      testing.TB
	name   string
	subnet string // the first three numbers of its addresses
	hosts  int
}

// NewNetwork makes a network, until the test ends. Only root can; others skip the test.
func NewNetwork(t testing.TB) *Network {
	t.Helper()
	needRoot(t, "make network namespaces")
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("testenv: the program %s is not there: install it, for instance with 'apt-get install iproute2 nftables'", program)
		}
	}
	id := randomHex()[:8]
	// Of the addresses for measuring networks, which are nobody's: https://www.rfc-editor.org/rfc/rfc2544
	subnet := fmt.Sprintf("198.%d.%d", 18+rand.IntN(2), rand.IntN(256)) //nolint:gosec // no secret depends on it
	n := &Network{t: t, name: "ackrail-" + id, subnet: subnet}
	outside := "ack" + id
	takeBack(t, "ip", "netns", "delete", n.name)
	for _, args := range [][]string{
		{"netns", "add", n.name},
		{"link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", n.name},
		{"link", "set", outside, "up"},
		{"address", "add", n.subnet + ".1/24", "dev", outside},
		{"-n", n.name, "address", "add", n.Inside() + "/24", "dev", "eth0"},
		{"-n", n.name, "link", "set", "eth0", "up"},
		{"-n", n.name, "link", "set", "lo", "up"},
	} {
		run(t, append([]string{"ip"}, args...)...)
	}
	n.hosts = 1
	return n
}

// Inside is the address of processes in the network.
func (n *Network) Inside() string { return n.subnet + ".2" }

// Command changes a command that was not started yet to one that runs in the network, under the same process id.
func (n *Network) Command(cmd *exec.Cmd) *exec.Cmd {
	n.t.Helper()
	ip, err := exec.LookPath("ip")
	if err != nil {
		n.t.Fatalf("testenv: %v", err)
	}
	cmd.Args = append([]string{ip, "netns", "exec", n.name, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = ip
	return cmd
}

// Proxy starts a proxy in front of a server that processes in the network reach, under an address of its own.
func (n *Network) Proxy(target string) *Proxy {
	n.t.Helper()
	host := n.subnet + ".1"
	if n.hosts > 1 {
		host = fmt.Sprintf("%s.%d", n.subnet, n.hosts+1)
		run(n.t, "ip", "address", "add", host+"/24", "dev", "ack"+n.name[len("ackrail-"):])
	}
	n.hosts++
	return newProxy(n.t, host, target)
}

// Drop loses all packets between the processes in the network and a proxy, until Heal.
func (n *Network) Drop(p *Proxy) {
	n.t.Helper()
	run(n.t, "ip", "netns", "exec", n.name, "nft", fmt.Sprintf(`add table ip lost
		add chain ip lost in { type filter hook input priority 0; }
		add chain ip lost out { type filter hook output priority 0; }
		add rule ip lost in ip saddr %[1]s drop
		add rule ip lost out ip daddr %[1]s drop`, p.host))
}

// Heal ends what Drop did.
func (n *Network) Heal() {
	n.t.Helper()
	run(n.t, "ip", "netns", "exec", n.name, "nft", "add table ip lost\n delete table ip lost")
}
