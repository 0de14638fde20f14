package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// report is what a run gives, and the JSON file.
type report struct {
	Machine machine  `json:"machine"`
	Short   bool     `json:"short"`
	Rounds  int      `json:"rounds"`
	Body    int      `json:"bodyBytes"`
	Figures []figure `json:"figures"`
}

// machine is what was measured on.
type machine struct {
	Time       time.Time `json:"time"`
	Ackrail    string    `json:"ackrail"`
	Go         string    `json:"go"`
	PostgreSQL string    `json:"postgresql"`
	River      string    `json:"river"`
	Cores      int       `json:"cores"`
	// FlushMS is how many milliseconds a flush takes.
	FlushMS  float64  `json:"flushMilliseconds"`
	Settings settings `json:"settings"`
}

func (m machine) String() string {
	return fmt.Sprintf("Ackrail %s, %s, River %s, %d cores\nPostgreSQL %s with %s\na flush takes %.2f ms",
		m.Ackrail, m.Go, m.River, m.Cores, m.PostgreSQL, m.Settings, m.FlushMS)
}

// newReport looks at the machine, and refuses one that is not durable.
func newReport(ctx context.Context, e *env) (*report, error) {
	conn, err := pgx.Connect(ctx, e.url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	show := func(name string) (value string) {
		err = errors.Join(err, conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value))
		return value
	}
	for _, name := range []string{"fsync", "synchronous_commit"} {
		if show(name) == "off" {
			return nil, fmt.Errorf("%s is off: what is measured then is no promise to anybody", name)
		}
	}
	flush, flushErr := e.flushTime()
	out, versionErr := exec.CommandContext(ctx, e.ackrail, "--version").Output()
	m := machine{
		Time:       time.Now().UTC().Truncate(time.Second),
		Ackrail:    strings.TrimPrefix(strings.TrimSpace(string(out)), "ackrail version "),
		Go:         runtime.Version(),
		PostgreSQL: show("server_version"),
		River:      dependency("github.com/riverqueue/river"),
		Cores:      runtime.NumCPU(),
		FlushMS:    milliseconds(flush),
		Settings:   e.settings,
	}
	return &report{Machine: m, Short: e.short, Rounds: e.rounds, Body: e.body}, errors.Join(err, flushErr, versionErr)
}

// dependency returns the version of a module that this program is built with.
func dependency(path string) string {
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "of unknown version"
}

// measure runs rows, prints what they give, and keeps it after each: a run
// that is interrupted has measured something too. A row that cannot be
// measured does not keep the others from it.
func (r *report) measure(ctx context.Context, e *env, chosen []row) error {
	var faults []error
	for i := range chosen {
		progress("Measuring %s, %s (%d of %d)", chosen[i].id, chosen[i].title, i+1, len(chosen))
		figures, err := chosen[i].measure(ctx, e)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			progress("%v", err)
			faults = append(faults, err)
			continue
		}
		for i := range figures {
			fmt.Println(figures[i].String())
		}
		r.Figures = append(r.Figures, figures...)
		if err := r.save(filepath.Join(e.out, "results.json")); err != nil {
			return err
		}
	}
	r.summarize()
	return errors.Join(faults...)
}

func (r *report) save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // for everybody to read
}

// summarize says at the end which rows hold and which do not.
func (r *report) summarize() {
	var missed []string
	goals := 0
	for i := range r.Figures {
		f := &r.Figures[i]
		if !f.MustHeld {
			missed = append(missed, f.Row+" ("+f.Name+")")
		}
		if f.GoalHeld {
			goals++
		}
	}
	fmt.Printf("\n%d figures, %d reach their goal, %d miss what must hold", len(r.Figures), goals, len(missed))
	if len(missed) > 0 {
		fmt.Print(": " + strings.Join(missed, ", "))
	}
	fmt.Println()
	if r.Short {
		fmt.Println("This was a short run: few rounds, smaller tables. Its figures are not for publication.")
	}
}

// The table stands between these lines of the document.
const (
	beginTable = "<!-- Written by make bench. -->"
	endTable   = "<!-- End of what make bench writes. -->"
)

// document replaces the table in a file.
func (r *report) document(path string) error {
	if r.Short {
		return errors.New("-document: the figures of a short run are not for publication")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, found := bytes.Cut(text, []byte(beginTable))
	_, tail, ended := bytes.Cut(rest, []byte(endTable))
	if !found || !ended {
		return fmt.Errorf("%s lacks the lines %q and %q", path, beginTable, endTable)
	}
	return os.WriteFile(path, fmt.Appendf(nil, "%s%s\n\n%s\n%s%s", head, beginTable, r.table(), endTable, tail), 0o644) //nolint:gosec // a document
}

// table writes the figures as Markdown.
func (r *report) table() string {
	var b strings.Builder
	m := &r.Machine
	fmt.Fprintf(&b, "Ackrail %s on %s, %d cores, PostgreSQL %s, %s, River %s; a flush takes %.2f ms; bodies of %d bytes. Median of up to %d rounds, and their range.\n\n",
		m.Ackrail, m.Time.Format(time.DateOnly), m.Cores, m.PostgreSQL, m.Go, m.River, m.FlushMS, r.Body, r.Rounds)
	b.WriteString("| | ratio in one run | measured | must hold | goal | | product | reference |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for i := range r.Figures {
		f := &r.Figures[i]
		product, reference := f.absolute()
		held := map[string]string{"goal": "goal reached", "holds": "holds", "MISSED": "**missed**"}[f.verdict()]
		fmt.Fprintf(&b, "| %s | %s | %s (%s – %s) | %s | %s | %s | %s | %s |\n", f.Row, f.Name, plain(f.Median), plain(f.Low), plain(f.High),
			f.Must, f.Goal, held, product, reference)
	}
	return b.String()
}
