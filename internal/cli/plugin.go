package cli

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// pluginName is the name under which kubectl finds this program and runs it as
// "kubectl ackrail".
const pluginName = "kubectl-ackrail"

// isPlugin tells from the name that a program was started by whether it is
// kubectl's.
func isPlugin(arg0 string) bool {
	return strings.TrimSuffix(filepath.Base(arg0), ".exe") == pluginName
}

// makePlugin has the help name every command as kubectl's users type it.
func makePlugin(root *cobra.Command) {
	const display = "kubectl ackrail"
	var names []string
	for _, c := range root.Commands() {
		names = append(names, regexp.QuoteMeta(c.Name()))
	}
	typed := regexp.MustCompile(`\backrail (` + strings.Join(names, "|") + `)\b`)
	rename := func(text *string) { *text = typed.ReplaceAllString(*text, display+" $1") }
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, text := range []*string{&c.Short, &c.Long, &c.Example} {
			rename(text)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) { rename(&f.Usage) })
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: display}
}
