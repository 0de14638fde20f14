package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name               string
		bounds             bounds
		product, reference []float64
		median             float64
		verdict            string
	}{
		{"a ratio that is great enough", atLeast(1.2, 1.6), []float64{12, 14, 13}, []float64{10, 10, 10}, 1.3, "holds"},
		{"one of an even number of rounds", atLeast(1.2, 1.6), []float64{10, 20}, []float64{10, 10}, 1.5, "holds"},
		{"one that reaches its goal", atLeast(1.2, 1.6), []float64{16}, []float64{10}, 1.6, "goal"},
		{"one that is too small", atLeast(1.2, 1.6), []float64{11}, []float64{10}, 1.1, "MISSED"},
		{"one that is small enough", atMost(1.5, 1.1), []float64{11}, []float64{10}, 1.1, "goal"},
		{"one that is too great", atMost(1.5, 1.1), []float64{16}, []float64{10}, 1.6, "MISSED"},
		{"an amount", atMost(20, 12), []float64{15}, nil, 15, "holds"},
		{"none of something", atMost(0, 0), []float64{0}, nil, 0, "goal"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFigure(tc.name, "", tc.bounds)
			f.Product, f.Reference = tc.product, tc.reference
			if err := f.judge(); err != nil {
				t.Fatal(err)
			}
			if f.Median != tc.median || f.verdict() != tc.verdict {
				t.Errorf("median %v, %s, want %v, %s", f.Median, f.verdict(), tc.median, tc.verdict)
			}
		})
	}
	for name, f := range map[string]figure{
		"nothing measured":  {},
		"a reference less":  {Product: []float64{1, 2}, Reference: []float64{1}},
		"a reference of no": {Product: []float64{1}, Reference: []float64{0}},
	} {
		if err := f.judge(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestChoose(t *testing.T) {
	chosen, err := choose("p6, P1b")
	if err != nil || len(chosen) != 2 || chosen[0].id != "P6" || chosen[1].id != "P1b" {
		t.Errorf("chosen %v, %v", chosen, err)
	}
	if all, err := choose(""); err != nil || len(all) != len(rows) {
		t.Errorf("%d of %d rows, %v", len(all), len(rows), err)
	}
	if _, err := choose("P1,P99"); err == nil || !strings.Contains(err.Error(), "P99") {
		t.Errorf("got %v, want an error that names the row", err)
	}
}

func TestDocument(t *testing.T) {
	f := newFigure("claimed ÷ River", "/s", atLeast(2, 3))
	f.Row = "P6"
	f.add(12000, 4000)
	f.add(10000, 5000)
	if err := f.judge(); err != nil {
		t.Fatal(err)
	}
	r := &report{Machine: machine{Time: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), Cores: 2}, Rounds: 2, Figures: []figure{f}}
	path := filepath.Join(t.TempDir(), "performance.md")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("before\n" + beginTable + "\nearlier\n" + endTable + "\nafter\n")
	var first string
	for range 2 { // what is written can be replaced
		if err := r.document(path); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(text)
		}
		if string(text) != first {
			t.Errorf("the second time it is\n%s", text)
		}
	}
	const line = "| P6 | claimed ÷ River | 2.50 (2 – 3) | ≥ 2 | ≥ 3 | holds | 11000 /s | 4500 /s |\n"
	if !strings.HasPrefix(first, "before\n"+beginTable) || !strings.HasSuffix(first, endTable+"\nafter\n") || !strings.Contains(first, line) || strings.Contains(first, "earlier") {
		t.Errorf("it is\n%s\nwant\n%s", first, line)
	}

	write("no markers")
	if err := r.document(path); err == nil || !strings.Contains(err.Error(), endTable) {
		t.Errorf("got %v, want an error that names the markers", err)
	}
	r.Short = true
	if err := r.document(path); err == nil {
		t.Error("a short run was published")
	}
}

func TestSave(t *testing.T) {
	f := newFigure("a", "ms", atMost(2, 1))
	f.add(3, 2)
	if err := f.judge(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "results.json")
	if err := (&report{Figures: []figure{f}}).save(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var read report
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if got := read.Figures[0]; got.Median != 1.5 || !got.MustHeld || got.GoalHeld || got.Must != f.Must {
		t.Errorf("read %+v", got)
	}
}

// The document that the table goes into has its markers.
func TestMarkers(t *testing.T) {
	text, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), beginTable) != 1 || strings.Count(string(text), endTable) != 1 {
		t.Error("docs/performance.md lacks the lines between which the table goes")
	}
}

// Of an entry of the server's log, the first line alone begins without a tab.
func TestExtractPlans(t *testing.T) {
	dir := t.TempDir()
	var log strings.Builder
	for name, begin := range hot {
		log.WriteString("2026-12-01 LOG:  duration: 1 ms  plan:\n\tQuery Text: " + begin + "\n\tSeq Scan on " + name + "\n")
	}
	log.WriteString("2026-12-01 LOG:  duration: 1 ms  plan:\n\tQuery Text: SELECT 1\n\tResult\n")
	path := filepath.Join(dir, "server.log")
	if err := os.WriteFile(path, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := extractPlans(path, dir); err != nil {
		t.Fatal(err)
	}
	for name := range hot {
		text, err := os.ReadFile(filepath.Join(dir, "plan-"+name+".txt"))
		if err != nil || !strings.HasSuffix(string(text), "Seq Scan on "+name+"\n") || strings.Contains(string(text), "SELECT 1") {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := extractPlans(path, dir); err == nil {
		t.Error("nothing was explained, and nobody was told")
	}
}
