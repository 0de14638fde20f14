package resources

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// defaultDatabasePort is PostgreSQL's.
const defaultDatabasePort = 5432

// keyword finds "port = 5432" in a libpq key/value string.
var keyword = regexp.MustCompile(`(?:^|\s)port\s*=\s*'?([0-9,]+)'?(?:\s|$)`)

// DatabasePorts returns the ports that a database's URL (or libpq key/value
// string) names, sorted, each once: there may be several hosts. It returns nil
// where they cannot be told, and judges nothing else about the URL.
func DatabasePorts(text string) []int32 {
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		given := keyword.FindStringSubmatch(text)
		if given == nil {
			return []int32{defaultDatabasePort}
		}
		return numbers(strings.Split(given[1], ","))
	}
	if scheme != "postgres" && scheme != "postgresql" {
		return nil
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, _, _ := strings.Cut(rest, "/")
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		authority = authority[at+1:]
	}
	if values, err := url.ParseQuery(query); err == nil && values.Get("port") != "" {
		return numbers(strings.Split(values.Get("port"), ","))
	}
	var ports []string
	for host := range strings.SplitSeq(authority, ",") {
		port := ""
		if colon := strings.LastIndex(host, ":"); colon > strings.LastIndex(host, "]") {
			port = host[colon+1:]
		}
		ports = append(ports, port)
	}
	return numbers(ports)
}

func numbers(texts []string) []int32 {
	var ports []int32
	for _, text := range texts {
		if text == "" {
			ports = append(ports, defaultDatabasePort)
			continue
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return nil
		}
		ports = append(ports, int32(port))
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
