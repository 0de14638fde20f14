package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nonroot is the uid and gid of the user that images run as: the one that
// distroless images made usual.
const nonroot = "65532:65532"

// file is a file of an image, owned by root. Paths are relative to the root.
type file struct {
	name    string
	mode    fs.FileMode
	content []byte
	target  string // of a symbolic link, which has no content
}

// baseFiles are what any program expects to find.
func baseFiles(certificates bool) []file {
	files := []file{
		{name: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:" + nonroot + ":nonroot:/:/sbin/nologin\n")},
		{name: "etc/group", mode: 0o644, content: []byte("root:x:0:\nnonroot:x:65532:\n")},
	}
	if certificates {
		// The first path that crypto/x509 looks at.
		files = append(files, file{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: authorities()})
	}
	return files
}

// authorities returns Mozilla's certificate authorities as PEM, as the pinned
// module has them: what the machine that builds trusts does not matter. Those
// that are trusted with reservations are left out, since a file of
// certificates cannot express reservations.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// Writing to memory does not fail.
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return out.Bytes()
}

// layer packs files, and the folders that they lie in.
func layer(files []file) (v1.Layer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, folder := range folders(files) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, ModTime: time.Unix(0, 0)}); err != nil {
			return nil, fmt.Errorf("packing %s: %w", folder, err)
		}
	}
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: time.Unix(0, 0)}
		if f.target != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, f.target
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.name, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }
	l, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("compressing a layer: %w", err)
	}
	return l, nil
}

// folders returns the folders of files, each after the one that it lies in.
func folders(files []file) []string {
	var found []string
	for _, f := range files {
		for dir := path.Dir(f.name); dir != "."; dir = path.Dir(dir) {
			found = append(found, dir)
		}
	}
	slices.SortFunc(found, strings.Compare)
	return slices.Compact(found)
}
