package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// write makes the image of a spec, and a file of it, which is there complete
// or not at all. It returns the digest of the image's manifest.
func write(output string, s spec) (digest v1.Hash, err error) {
	full, tag, err := reference(s.name)
	if err != nil {
		return v1.Hash{}, err
	}
	img, err := image(s)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return v1.Hash{}, err
	}
	work, err := os.MkdirTemp(filepath.Dir(output), ".image-")
	if err != nil {
		return v1.Hash{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()

	folder := filepath.Join(work, "layout")
	l, err := layout.Write(folder, empty.Index)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("writing the layout: %w", err)
	}
	err = l.AppendImage(img, layout.WithAnnotations(map[string]string{
		// containerd names the image by the first, other tools by the second.
		"io.containerd.image.name":          full,
		"org.opencontainers.image.ref.name": tag,
	}))
	if err != nil {
		return v1.Hash{}, fmt.Errorf("writing the layout: %w", err)
	}
	packed := filepath.Join(work, "image.tar")
	if err := pack(packed, os.DirFS(folder)); err != nil {
		return v1.Hash{}, fmt.Errorf("packing the layout: %w", err)
	}
	if err := os.Rename(packed, output); err != nil {
		return v1.Hash{}, err
	}
	return img.Digest()
}

// pack writes the files of a folder, in the order of their paths and without
// anything of the machine, into a tar.
func pack(output string, folder fs.FS) (err error) {
	out, err := os.OpenFile(output, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	err = fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		return packEntry(w, folder, name, entry)
	})
	if err != nil {
		return err
	}
	return w.Close()
}

func packEntry(w *tar.Writer, folder fs.FS, name string, entry fs.DirEntry) error {
	header := &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: time.Unix(0, 0)}
	if entry.IsDir() {
		return w.WriteHeader(header)
	}
	f, err := folder.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header.Typeflag, header.Name, header.Mode, header.Size = tar.TypeReg, name, 0o644, info.Size()
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
