package main

import (
	"fmt"
	"os"
	"path"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// programs is where binaries lie: in everybody's PATH, so that kubectl exec
// finds them without a path.
const programs = "usr/local/bin"

// spec says what is in an image.
type spec struct {
	name         string // reference with a tag
	binary       string // path of the binary outside
	program      string // its name inside
	links        []string
	arguments    []string
	labels       map[string]string
	user         string // uid:gid
	certificates bool
	created      time.Time
}

// image makes an image of two layers: what hardly changes, and the binary.
func image(s spec) (v1.Image, error) {
	platform, err := platformOf(s.binary)
	if err != nil {
		return nil, err
	}
	binary, err := os.ReadFile(s.binary)
	if err != nil {
		return nil, err
	}
	base, err := layer(baseFiles(s.certificates))
	if err != nil {
		return nil, err
	}
	files := []file{{name: path.Join(programs, s.program), mode: 0o755, content: binary}}
	for _, link := range s.links {
		files = append(files, file{name: path.Join(programs, link), mode: 0o777, target: s.program})
	}
	program, err := layer(files)
	if err != nil {
		return nil, err
	}

	created := v1.Time{Time: s.created}
	img := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	img, err = mutate.Append(img,
		mutate.Addendum{Layer: base, History: v1.History{Created: created, CreatedBy: "user database, certificate authorities"}},
		mutate.Addendum{Layer: program, History: v1.History{Created: created, CreatedBy: "COPY " + s.program}},
	)
	if err != nil {
		return nil, fmt.Errorf("appending the layers: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the image's configuration: %w", err)
	}
	config = config.DeepCopy()
	config.Created = created
	config.OS, config.Architecture = platform.OS, platform.Architecture
	config.Config = v1.Config{
		Entrypoint: []string{"/" + path.Join(programs, s.program)},
		Cmd:        s.arguments,
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		User:       s.user,
		WorkingDir: "/",
		Labels:     s.labels,
	}
	img, err = mutate.ConfigFile(img, config)
	if err != nil {
		return nil, fmt.Errorf("configuring the image: %w", err)
	}
	return img, nil
}

// reference returns the tag that a name means, written out, and the tag alone.
// Runtimes look images up by the whole name.
func reference(text string) (full, tag string, err error) {
	ref, err := name.NewTag(text, name.StrictValidation)
	if err != nil {
		return "", "", fmt.Errorf("-name: %w", err)
	}
	full = ref.Name()
	if ref.RegistryStr() == name.DefaultRegistry {
		// The library spells Docker Hub as its API's host is called.
		full = "docker.io/" + ref.RepositoryStr() + ":" + ref.TagStr()
	}
	return full, ref.TagStr(), nil
}
