package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// Read reads every document of the files at paths. A path that is a folder
// stands for the .yaml, .yml and .json files directly in it, in the order of
// their names; "-" stands for stdin. The error holds everything that is wrong,
// one line each; the Set is nil then.
func Read(paths []string, stdin io.Reader) (*Set, error) {
	if len(paths) == 0 {
		return nil, errors.New("no manifest files given")
	}
	r := reader{set: &Set{}, seen: map[string]string{}, endpointAt: map[string]string{}}
	for _, path := range paths {
		r.readPath(path, stdin)
	}
	if err := errors.Join(r.errs...); err != nil {
		return nil, err
	}
	return r.set, nil
}

// reader gathers objects and everything that is wrong with them.
type reader struct {
	set *Set
	// seen says where the object of a kind, namespace and name stands.
	seen map[string]string
	// endpointAt names the endpoint that has a path.
	endpointAt map[string]string
	errs       []error
}

func (r *reader) failf(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

func (r *reader) readPath(path string, stdin io.Reader) {
	if path == "-" {
		r.readFile("standard input", stdin)
		return
	}
	files, err := expand(path)
	if err != nil {
		r.failf("reading manifests: %w", err)
		return
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			r.failf("reading manifests: %w", err)
			continue
		}
		r.readFile(file, bytes.NewReader(data))
	}
}

// expand returns path itself, or the manifest files in it if it is a folder.
func expand(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		if !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			files = append(files, filepath.Join(path, entry.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no .yaml, .yml or .json file in this folder", path)
	}
	return files, nil
}

func (r *reader) readFile(name string, in io.Reader) {
	docs, err := split(in)
	if err != nil {
		r.failf("%s: %w", name, err)
		return
	}
	if len(docs) == 0 {
		r.failf("%s: no object in this file", name)
		return
	}
	for i, doc := range docs {
		where := name
		if len(docs) > 1 {
			where = fmt.Sprintf("%s, document %d", name, i+1)
		}
		r.readDocument(name, where, doc)
	}
}

// split returns the documents that hold more than comments and white space.
func split(in io.Reader) ([][]byte, error) {
	var docs [][]byte
	documents := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for {
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, err
		}
		if !blank(doc) {
			docs = append(docs, doc)
		}
	}
}

func blank(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.HasPrefix(line, []byte("---")) {
			return false
		}
	}
	return true
}
