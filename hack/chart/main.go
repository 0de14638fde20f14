package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// notice heads every file that is generated as a whole.
const notice = "{{/* Generated from %s by make generate. */}}\n"

func main() {
	if err := generate("../.."); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// generate writes the chart of the repository at root.
func generate(root string) error {
	chart := filepath.Join(root, "charts", "ackrail")
	return errors.Join(
		generateDefinitions(root, filepath.Join(chart, "templates", "crds")),
		generateRules(root, filepath.Join(chart, "templates", "_rules.tpl")),
		generateTable(filepath.Join(chart, "values.yaml"), filepath.Join(chart, "README.md")),
	)
}

// generateDefinitions makes a template of each definition, and removes those
// of definitions that are no more.
func generateDefinitions(root, templates string) error {
	files, err := filepath.Glob(filepath.Join(root, "config", "crd", "bases", "*.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("no definitions in config/crd/bases")
	}
	if err := os.RemoveAll(templates); err != nil {
		return err
	}
	if err := os.MkdirAll(templates, 0o755); err != nil {
		return err
	}
	for _, file := range files {
		definition, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name := filepath.Base(file)
		template, err := definitionTemplate(name, string(definition))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := write(filepath.Join(templates, name), template); err != nil {
			return err
		}
	}
	return nil
}

// definitionTemplate makes a template of what controller-gen wrote. It works
// on the text: Helm's functions would turn whole numbers into 1.048576e+06,
// and sort the fields.
func definitionTemplate(name, definition string) (string, error) {
	const annotations = "\nmetadata:\n  annotations:\n"
	before, after, found := strings.Cut(strings.TrimPrefix(definition, "---\n"), annotations)
	if !found || strings.Contains(before, "\n  ") {
		return "", errors.New("does not begin as controller-gen's files do")
	}
	return fmt.Sprintf(notice, "config/crd/bases/"+name) +
		"{{- if .Values.crds.enabled }}\n" + before + annotations +
		"    {{- if .Values.crds.keep }}\n    helm.sh/resource-policy: keep\n    {{- end }}\n" +
		// The first label follows the last annotation.
		strings.Replace(escape(after), "\n  name: ", "\n  labels:\n    {{- include \"ackrail.labels\" (list . \"\" dict) | nindent 4 }}\n  name: ", 1) +
		"{{- end }}\n", nil
}

// escape makes a template that renders text.
func escape(text string) string { return strings.ReplaceAll(text, "{{", `{{ "{{" }}`) }

// generateRules makes a named template of the rules of the manager's role.
func generateRules(root, template string) error {
	role, err := os.ReadFile(filepath.Join(root, "config", "rbac", "role.yaml"))
	if err != nil {
		return err
	}
	_, rules, found := bytes.Cut(role, []byte("\nrules:\n"))
	if !found || bytes.Contains(rules, []byte("\n---")) {
		return errors.New("config/rbac/role.yaml: must be one role")
	}
	text := fmt.Sprintf(notice, "config/rbac/role.yaml") +
		"{{- define \"ackrail.managerRules\" -}}\n" + escape(string(rules)) + "{{- end }}\n"
	return write(template, text)
}

// write writes a source file, which everybody may read.
func write(file, text string) error {
	return os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // G306: it is no secret.
}
