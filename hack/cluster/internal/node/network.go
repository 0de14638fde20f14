package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const bridgeFilter = "net/bridge/bridge-nf-call-iptables"

// settings are the kernel settings that the cluster's programs change, below
// /proc/sys, with the value that the cluster itself needs, if any.
var settings = map[string]string{
	"net/ipv4/ip_forward":                       "1",
	bridgeFilter:                                "1",
	"kernel/keys/root_maxbytes":                 "",
	"kernel/keys/root_maxkeys":                  "",
	"kernel/panic":                              "",
	"kernel/panic_on_oops":                      "",
	"vm/overcommit_memory":                      "",
	"vm/panic_on_oom":                           "",
	"net/ipv4/conf/all/arp_announce":            "",
	"net/ipv4/conf/all/arp_ignore":              "",
	"net/ipv4/conf/all/route_localnet":          "",
	"net/netfilter/nf_conntrack_max":            "",
	"net/netfilter/nf_conntrack_tcp_be_liberal": "",
}

func readSetting(name string) (string, error) {
	value, err := os.ReadFile(filepath.Join("/proc/sys", name))
	return strings.TrimSpace(string(value)), err
}

func writeSetting(name, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o600)
}

// currentSettings returns those of the settings that this kernel has.
func currentSettings() (map[string]string, error) {
	current := map[string]string{}
	for name := range settings {
		value, err := readSetting(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		current[name] = value
	}
	return current, nil
}

// restoreSettings puts back what was changed since.
func restoreSettings(old map[string]string) error {
	var errs []error
	for name, value := range old {
		current, err := readSetting(name)
		if err == nil && current != value {
			errs = append(errs, writeSetting(name, value))
		}
	}
	return errors.Join(errs...)
}

// bridgeFiltered says whether what pods send each other passes the packet
// filter, and with it the translation of addresses.
func bridgeFiltered() bool {
	value, err := readSetting(bridgeFilter)
	return err == nil && value == "1"
}

// loadModules loads what a kernel may have as a module. Failures do not count:
// what is missing is reported by who needs it.
func loadModules() {
	for _, module := range []string{"overlay", "br_netfilter", "nf_conntrack"} {
		_ = exec.Command("modprobe", module).Run()
	}
}

// checkNetworks refuses a machine that uses the cluster's networks itself.
func checkNetworks() error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil || i.Name == bridge {
			continue
		}
		for _, address := range addresses {
			prefix, err := netip.ParsePrefix(address.String())
			if err != nil {
				continue
			}
			for _, ours := range []string{clusterCIDR, serviceCIDR} {
				if prefix.Overlaps(netip.MustParsePrefix(ours)) {
					return fmt.Errorf("the interface %s has the address %s, in the network %s that the cluster uses: does another cluster run on this machine?", i.Name, address, ours)
				}
			}
		}
	}
	return nil
}

// checkPorts refuses a machine on which a port that the cluster needs is taken.
func checkPorts() error {
	for _, port := range []int{etcdPort, etcdPeerPort, kubeletHealth, proxyHealth, proxyMetrics, managerPort, schedulerPort} {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return fmt.Errorf("a port that the cluster needs is taken; does another one run on this machine? %w", err)
		}
		if err := listener.Close(); err != nil {
			return err
		}
	}
	return nil
}

// connect makes the bridge and lets packets pass. The network plugin would make
// the bridge with the first pod; the servers listen on it before.
func connect() error {
	for name, value := range settings {
		if value == "" {
			continue
		}
		if err := writeSetting(name, value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, args := range [][]string{
		{"link", "add", bridge, "type", "bridge"},
		{"address", "add", gateway + "/24", "dev", bridge},
		{"link", "set", bridge, "up"},
		// For machines without a default route: the kernel looks for a route
		// before kube-proxy's rules can replace the address.
		{"route", "add", serviceCIDR, "dev", bridge},
	} {
		if _, err := output("ip", args...); err != nil {
			return err
		}
	}
	return openFirewall()
}

// firewallRules let pods' packets through a firewall that drops what it does
// not know, such as Docker's.
var firewallRules = [][]string{
	{"INPUT", "-i", bridge, "-j", "ACCEPT"},
	{"FORWARD", "-i", bridge, "-j", "ACCEPT"},
	{"FORWARD", "-o", bridge, "-j", "ACCEPT"},
}

// openFirewall does nothing where no firewall is set up: the first rule would
// make tables that nobody removes.
func openFirewall() error {
	saved, err := output("iptables-save", "-t", "filter")
	if errors.Is(err, exec.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !strings.Contains(saved, "DROP") && !strings.Contains(saved, "REJECT") {
		return nil
	}
	for _, rule := range firewallRules {
		if _, err := output("iptables", append([]string{"-w", "-I"}, rule...)...); err != nil {
			return err
		}
	}
	return nil
}

func closeFirewall() error {
	for _, rule := range leftRules() {
		if _, err := output("iptables", append([]string{"-w", "-D"}, strings.Fields(rule)...)...); err != nil {
			return err
		}
	}
	return nil
}

// leftRules returns the firewall's rules about the bridge.
func leftRules() []string {
	saved, err := output("iptables-save", "-t", "filter")
	if err != nil {
		return nil
	}
	var rules []string
	for line := range strings.Lines(saved) {
		if rule, ok := strings.CutPrefix(strings.TrimSpace(line), "-A "); ok && strings.Contains(rule, bridge+" ") {
			rules = append(rules, rule)
		}
	}
	return rules
}

// proxyTables returns the tables that kube-proxy left, as "ip kube-proxy".
// Left-over tables would reject the Services of the next cluster.
func proxyTables() []string {
	listed, err := output("nft", "list", "tables")
	if err != nil {
		return nil
	}
	var tables []string
	for line := range strings.Lines(listed) {
		table, ok := strings.CutPrefix(strings.TrimSpace(line), "table ")
		if ok && strings.HasSuffix(table, " kube-proxy") {
			tables = append(tables, table)
		}
	}
	return tables
}

// disconnect undoes connect and what kube-proxy has added.
func disconnect() error {
	var errs []error
	for _, table := range proxyTables() {
		_, err := output("nft", append([]string{"delete", "table"}, strings.Fields(table)...)...)
		errs = append(errs, err)
	}
	errs = append(errs, closeFirewall())
	// The kernel removes the pods' interfaces with their network namespaces,
	// but takes its time.
	ports, err := os.ReadDir(filepath.Join("/sys/class/net", bridge, "brif"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, port := range ports {
		errs = append(errs, deleteInterface(port.Name()))
	}
	return errors.Join(append(errs, deleteInterface(bridge))...)
}

func interfaceExists(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

func deleteInterface(name string) error {
	if !interfaceExists(name) {
		return nil
	}
	_, err := output("ip", "link", "delete", name)
	if err != nil && !interfaceExists(name) {
		return nil
	}
	return err
}

// output runs a program and returns what it printed. Its errors say what the
// program said.
func output(program string, args ...string) (string, error) {
	command := exec.Command(program, args...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
