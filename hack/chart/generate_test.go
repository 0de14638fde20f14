package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDefinitionTemplate(t *testing.T) {
	const definition = "---\napiVersion: v1\nkind: X\nmetadata:\n  annotations:\n    a: b\n  name: xs\nspec:\n  description: takes {{ braces }}\n  name: y\n"
	got, err := definitionTemplate("x.yaml", definition)
	if err != nil {
		t.Fatal(err)
	}
	want := `{{/* Generated from config/crd/bases/x.yaml by make generate. */}}
{{- if .Values.crds.enabled }}
apiVersion: v1
kind: X
metadata:
  annotations:
    {{- if .Values.crds.keep }}
    helm.sh/resource-policy: keep
    {{- end }}
    a: b
  labels:
    {{- include "ackrail.labels" (list . "" dict) | nindent 4 }}
  name: xs
spec:
  description: takes {{ "{{" }} braces }}
  name: y
{{- end }}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
	if _, err := definitionTemplate("x.yaml", "kind: X\nmetadata:\n  name: xs\n"); err == nil {
		t.Error("a file of another form was taken")
	}
}

func TestGenerateRefusals(t *testing.T) {
	for _, tc := range []struct {
		name, file, content, want string
	}{
		{"no definitions", "config/crd/bases/none.txt", "", "no definitions in config/crd/bases"},
		{"two roles", "config/rbac/role.yaml", "---\nkind: Role\nrules:\n- a\n---\nkind: Role\n", "config/rbac/role.yaml: must be one role"},
		{"no comment", "charts/ackrail/values.yaml", "# A.\na: 1\nb: 2\n", "line 3: b has no comment"},
		{"no comment in a group", "charts/ackrail/values.yaml", "# A.\na:\n  # B.\n  b: 1\n  c: 2\n", "line 5: a.c has no comment"},
		{"no place for the table", "charts/ackrail/README.md", "# Chart\n", "has no place for the values"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			for file, content := range map[string]string{
				"config/rbac/role.yaml":      "---\nkind: ClusterRole\nrules:\n- a\n",
				"charts/ackrail/values.yaml": "# A.\na: 1\n",
				"charts/ackrail/README.md":   tableBegin + tableEnd,
				tc.file:                      tc.content,
			} {
				path := filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.MkdirAll(filepath.Join(root, "charts", "ackrail", "templates"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := generate(root); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}
