package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Marks between which the README's table stands.
const (
	tableBegin = "<!-- values: made by make generate -->\n"
	tableEnd   = "<!-- end of values -->\n"
)

// value is one value of a chart.
type value struct {
	path    string // a.b.c
	initial string // JSON
	comment string
}

// generateTable writes the values into the README.
func generateTable(values, readme string) error {
	all, err := readValues(values)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		return fmt.Errorf("%s: has no place for the values", readme)
	}
	var table strings.Builder
	table.WriteString("| value | default | what it is |\n| --- | --- | --- |\n")
	for _, v := range all {
		fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", v.path, v.initial, strings.ReplaceAll(v.comment, "|", `\|`))
	}
	return write(readme, before+tableBegin+table.String()+tableEnd+after)
}

// readValues returns the values in a file in their order. A value, or a group
// of them, without a comment is an error.
func readValues(file string) ([]value, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s: is no mapping", file)
	}
	all, err := collect(document.Content[0], "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}

// collect returns the values of a mapping at a path. A mapping without comments
// in it is one value, as a set of labels is.
func collect(mapping *yaml.Node, path string) ([]value, error) {
	var all []value
	var errs []error
	for i := 0; i < len(mapping.Content); i += 2 {
		key, node := mapping.Content[i], mapping.Content[i+1]
		at := path + key.Value
		comment := words(key.HeadComment)
		if comment == "" {
			errs = append(errs, fmt.Errorf("line %d: %s has no comment", key.Line, at))
			continue
		}
		if node.Kind == yaml.MappingNode && commented(node) {
			below, err := collect(node, at+".")
			all, errs = append(all, below...), append(errs, err)
			continue
		}
		var decoded any
		if err := node.Decode(&decoded); err != nil {
			return nil, err
		}
		initial, err := json.Marshal(decoded)
		if err != nil {
			return nil, err
		}
		all = append(all, value{at, string(initial), comment})
	}
	return all, errors.Join(errs...)
}

func commented(mapping *yaml.Node) bool {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].HeadComment != "" {
			return true
		}
	}
	return false
}

// words returns the last paragraph of a comment on one line.
func words(comment string) string {
	paragraphs := strings.Split(comment, "\n\n")
	var out []string
	for line := range strings.Lines(paragraphs[len(paragraphs)-1]) {
		out = append(out, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#")))
	}
	return strings.Join(out, " ")
}
