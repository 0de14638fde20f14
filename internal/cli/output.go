package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// outputFlag is kubectl's -o.
type outputFlag struct {
	format  string
	formats []string
}

// register adds the flag; the first format is the default.
func (f *outputFlag) register(cmd *cobra.Command, formats ...string) {
	f.formats = formats
	cmd.Flags().StringVarP(&f.format, "output", "o", formats[0], "output format: "+strings.Join(formats, ", "))
}

func (f *outputFlag) check() error {
	if !slices.Contains(f.formats, f.format) {
		return fmt.Errorf("--output: must be one of %s, is %q", strings.Join(f.formats, ", "), f.format)
	}
	return nil
}

// printObject prints a value as JSON or YAML.
func printObject(out io.Writer, format string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	data = append(data, '\n')
	if format == "yaml" {
		if data, err = yaml.JSONToYAML(data); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}
	_, err = out.Write(data)
	return err
}

// printError prints an error. Further lines, such as a manifest's other
// faults, are indented.
func printError(out io.Writer, err error) {
	_, _ = fmt.Fprintln(out, "Error:", strings.ReplaceAll(describe(err), "\n", "\n  "))
}

// describe returns an error's text for people, each fault on one line.
func describe(err error) string {
	var lines []string
	last := ""
	for line := range strings.SplitSeq(err.Error(), "\n") {
		// The driver lists what it tried below its error, and the same
		// address twice where it tried with and without TLS.
		tried, isTried := strings.CutPrefix(line, "\t")
		switch {
		case !isTried || len(lines) == 0:
			lines = append(lines, line)
		case tried != last:
			lines[len(lines)-1] += " " + tried
		}
		last = tried
	}
	text := strings.Join(lines, "\n")
	var refused *pgconn.ConnectError
	if errors.As(err, &refused) {
		text += ": start PostgreSQL there, or correct --database-url"
	}
	return text
}

// table prints aligned columns as kubectl does.
type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer, header ...string) *table {
	t := &table{tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)}
	t.row(header...)
	return t
}

// row adds a row. What destinations say may have tabs and line breaks, which
// would begin another cell or row.
func (t *table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = breaks.Replace(cell)
		if cell == "" {
			cells[i] = "-"
		}
	}
	_, _ = fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

var breaks = strings.NewReplacer("\t", " ", "\r", " ", "\n", " ")

func (t *table) flush() { _ = t.w.Flush() }

// age tells how long ago a time was, as kubectl does.
func age(t *time.Time) string {
	if t == nil {
		return ""
	}
	return duration.HumanDuration(time.Since(*t))
}
