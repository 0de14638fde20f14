package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// A row is one line of the table, or several with an id in common.
type row struct {
	id, title string
	run       func(ctx context.Context, e *env) ([]figure, error)
}

// bound is what a figure is held against.
type bound struct {
	// Least: the figure must not be below Value, otherwise not above it.
	Least bool    `json:"least"`
	Value float64 `json:"value"`
}

func (b bound) holds(v float64) bool {
	if b.Least {
		return v >= b.Value
	}
	return v <= b.Value
}

func (b bound) String() string {
	sign := "≤"
	if b.Least {
		sign = "≥"
	}
	return sign + " " + plain(b.Value)
}

// bounds are what must hold, and the goal.
type bounds struct{ must, goal bound }

func atLeast(must, goal float64) bounds { return bounds{bound{true, must}, bound{true, goal}} }
func atMost(must, goal float64) bounds  { return bounds{bound{false, must}, bound{false, goal}} }

// figure is one measurement: a ratio of product and reference in each round,
// or, without a reference, an amount.
type figure struct {
	Row string `json:"row"`
	// Name says what was measured, and against what.
	Name string `json:"name"`
	// Unit is that of the absolute figures.
	Unit      string    `json:"unit"`
	Product   []float64 `json:"product"`
	Reference []float64 `json:"reference,omitempty"`
	Must      bound     `json:"must"`
	Goal      bound     `json:"goal"`
	// Note is what somebody has to know to understand the figure.
	Note string `json:"note,omitempty"`

	// What follows is computed from the above.
	Values   []float64 `json:"values"`
	Median   float64   `json:"median"`
	Low      float64   `json:"low"`
	High     float64   `json:"high"`
	MustHeld bool      `json:"mustHeld"`
	GoalHeld bool      `json:"goalHeld"`
}

func newFigure(name, unit string, b bounds) figure {
	return figure{Name: name, Unit: unit, Must: b.must, Goal: b.goal}
}

// add takes a round's measurements.
func (f *figure) add(product, reference float64) {
	f.Product, f.Reference = append(f.Product, product), append(f.Reference, reference)
}

// judge computes what follows from the measurements.
func (f *figure) judge() error {
	if len(f.Product) == 0 || len(f.Reference) > 0 && len(f.Reference) != len(f.Product) {
		return fmt.Errorf("%s, %s: %d measurements of the product and %d of the reference", f.Row, f.Name, len(f.Product), len(f.Reference))
	}
	f.Values = slices.Clone(f.Product)
	for i, reference := range f.Reference {
		if reference <= 0 {
			return fmt.Errorf("%s, %s: the reference is %v", f.Row, f.Name, reference)
		}
		f.Values[i] /= reference
	}
	f.Median, f.Low, f.High = median(f.Values), slices.Min(f.Values), slices.Max(f.Values)
	f.MustHeld, f.GoalHeld = f.Must.holds(f.Median), f.Goal.holds(f.Median)
	return nil
}

// verdict says in words which bounds hold.
func (f *figure) verdict() string {
	switch {
	case f.GoalHeld:
		return "goal"
	case f.MustHeld:
		return "holds"
	}
	return "MISSED"
}

// absolute returns the medians behind a ratio.
func (f *figure) absolute() (product, reference string) {
	product = amount(median(f.Product), f.Unit)
	if len(f.Reference) > 0 {
		reference = amount(median(f.Reference), f.Unit)
	}
	return product, reference
}

func (f *figure) String() string {
	unit := ""
	if len(f.Reference) == 0 {
		unit = " " + f.Unit
	}
	text := fmt.Sprintf("%-4s %-6s %s: %s%s (%s – %s), must be %s, goal %s", f.Row, f.verdict(), f.Name,
		plain(f.Median), unit, plain(f.Low), plain(f.High), f.Must, f.Goal)
	if product, reference := f.absolute(); reference != "" {
		text += fmt.Sprintf("; %s against %s", product, reference)
	}
	if f.Note != "" {
		text += "; " + f.Note
	}
	return text
}

func amount(v float64, unit string) string { return strings.TrimSpace(plain(v) + " " + unit) }

// plain writes a number with about three digits that matter.
func plain(v float64) string {
	switch {
	case v >= 100 || v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.095:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// median returns the middle of some figures, between two in the middle.
func median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// quantile returns the q-quantile of figures that are sorted.
func quantile[T cmp.Ordered](sorted []T, q float64) T {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
