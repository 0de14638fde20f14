package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const program = "package main\nfunc main() { println(\"hello\") }\n"

// compile builds a small program and returns its path.
func compile(t *testing.T, arguments []string, env ...string) string {
	t.Helper()
	source := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "hello")
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"build", "-trimpath"}, arguments...), "-o", binary, source)...)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if err := run(args, &stdout, &stderr); err != nil {
		t.Fatalf("image %q: %v\n%s", args, err, stderr.String())
	}
	return stdout.String()
}

// unpack reads an archive as other programs do, and returns its one image
// with the annotations that the layout gives it.
func unpack(t *testing.T, archive string) (v1.Image, map[string]string) {
	t.Helper()
	folder := t.TempDir()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for header, r := range entries(t, f) {
		target := filepath.Join(folder, header.Name)
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(target, 0o755)
		} else {
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(target, content, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("%d images in the layout, want one", len(manifest.Manifests))
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Errorf("the image is not valid: %v", err)
	}
	return img, manifest.Manifests[0].Annotations
}

func entries(t *testing.T, r io.Reader) func(func(*tar.Header, io.Reader) bool) {
	t.Helper()
	reader := tar.NewReader(r)
	return func(yield func(*tar.Header, io.Reader) bool) {
		for {
			header, err := reader.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !yield(header, reader) {
				return
			}
		}
	}
}

func TestImage(t *testing.T) {
	binary := compile(t, nil, "GOARCH=arm64")
	archive := filepath.Join(t.TempDir(), "new", "image.tar")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	out := mustRun(t, "-o", archive, "-name", "docker.io/ackrail/test:dev", "-binary", binary, "-as", "ackrail",
		"-link", "kubectl-ackrail", "-arg", "worker", "-arg", "--help", "-label", "title=Ackrail", "-label", "io.example=a=b")

	img, annotations := unpack(t, archive)
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if want := archive + " docker.io/ackrail/test:dev@" + digest.String() + "\n"; out != want {
		t.Errorf("printed %q, want %q", out, want)
	}
	wantAnnotations := map[string]string{"io.containerd.image.name": "docker.io/ackrail/test:dev", "org.opencontainers.image.ref.name": "dev"}
	if diff := cmp.Diff(wantAnnotations, annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != "arm64" || !config.Created.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("made for %s/%s at %v", config.OS, config.Architecture, config.Created)
	}
	want := v1.Config{
		Entrypoint: []string{"/usr/local/bin/ackrail"},
		Cmd:        []string{"worker", "--help"},
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		User:       "65532:65532",
		WorkingDir: "/",
		Labels:     map[string]string{"org.opencontainers.image.title": "Ackrail", "io.example": "a=b"},
	}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	checkFiles(t, img, binary)
}

func checkFiles(t *testing.T, img v1.Image, binary string) {
	t.Helper()
	type entry struct {
		Mode   int64
		Target string
	}
	got := map[string]entry{}
	contents := map[string][]byte{}
	files := mutate.Extract(img)
	defer files.Close()
	for header, r := range entries(t, files) {
		name := strings.TrimSuffix(header.Name, "/")
		got[name] = entry{header.Mode, header.Linkname}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		contents[name] = content
		if header.Uid != 0 || header.Gid != 0 || !header.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%s: owner %d:%d, date %v, want root's and 1970", header.Name, header.Uid, header.Gid, header.ModTime)
		}
	}
	want := map[string]entry{
		"etc": {Mode: 0o755}, "etc/ssl": {Mode: 0o755}, "etc/ssl/certs": {Mode: 0o755},
		"etc/passwd": {Mode: 0o644}, "etc/group": {Mode: 0o644}, "etc/ssl/certs/ca-certificates.crt": {Mode: 0o644},
		"usr": {Mode: 0o755}, "usr/local": {Mode: 0o755}, "usr/local/bin": {Mode: 0o755},
		"usr/local/bin/ackrail":         {Mode: 0o755},
		"usr/local/bin/kubectl-ackrail": {Mode: 0o777, Target: "ackrail"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	packed, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(packed, contents["usr/local/bin/ackrail"]) {
		t.Error("the binary is not the one that was given")
	}
	if !strings.Contains(string(contents["etc/passwd"]), "nonroot:x:65532:65532:") {
		t.Errorf("/etc/passwd does not know the user:\n%s", contents["etc/passwd"])
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(contents["etc/ssl/certs/ca-certificates.crt"]) {
		t.Error("no certificate authorities")
	}
	if n := bytes.Count(contents["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN CERTIFICATE")); n < 100 {
		t.Errorf("%d certificate authorities, want Mozilla's hundred and more", n)
	}
}

func TestSameInputSameBytes(t *testing.T) {
	binary := compile(t, nil)
	var archives [2][]byte
	for i := range archives {
		// Another folder, and another date of the binary.
		copied := filepath.Join(t.TempDir(), "hello")
		content, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, content, 0o600+os.FileMode(i)*0o100); err != nil {
			t.Fatal(err)
		}
		date := time.Unix(int64(1e9*(i+1)), 0)
		if err := os.Chtimes(copied, date, date); err != nil {
			t.Fatal(err)
		}
		archive := filepath.Join(t.TempDir(), "image.tar")
		mustRun(t, "-o", archive, "-name", "docker.io/ackrail/test:dev", "-binary", copied, "-label", "a.b=1", "-label", "c.d=2", "-label", "e.f=3")
		if archives[i], err = os.ReadFile(archive); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of one binary differ")
	}
}

func TestWithoutCertificates(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "image.tar")
	mustRun(t, "-o", archive, "-name", "registry.example/pause:1", "-binary", compile(t, nil), "-certificates=false", "-user", "0:0")
	img, annotations := unpack(t, archive)
	if name := annotations["io.containerd.image.name"]; name != "registry.example/pause:1" {
		t.Errorf("name %q", name)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "0:0" {
		t.Errorf("user %q, want 0:0", config.Config.User)
	}
	files := mutate.Extract(img)
	defer files.Close()
	for header := range entries(t, files) {
		if strings.HasPrefix(header.Name, "etc/ssl") {
			t.Errorf("has %s", header.Name)
		}
	}
}

func TestRefusals(t *testing.T) {
	static := compile(t, nil)
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no output", []string{"-name", "a.example/b:c", "-binary", static}, "-o is required"},
		{"no name", []string{"-o", "OUT", "-binary", static}, "-name is required"},
		{"no binary", []string{"-o", "OUT", "-name", "a.example/b:c"}, "-binary is required"},
		{"argument", []string{"-o", "OUT", "-name", "a.example/b:c", "-binary", static, "more"}, `unexpected argument "more"`},
		{"no tag", []string{"-o", "OUT", "-name", "a.example/b", "-binary", static}, "-name: "},
		{"missing binary", []string{"-o", "OUT", "-name", "a.example/b:c", "-binary", static + "x"}, "no such file"},
		{"script", []string{"-o", "OUT", "-name", "a.example/b:c", "-binary", "image_test.go"}, "is no Linux binary"},
		{"asks for a loader", []string{"-o", "OUT", "-name", "a.example/b:c", "-binary", compile(t, []string{"-buildmode=pie"})}, "is not static: build it with CGO_ENABLED=0"},
		{"other architecture", []string{"-o", "OUT", "-name", "a.example/b:c", "-binary", compile(t, nil, "GOARCH=386")}, "EM_386, which is not supported"},
		{"link with a folder", []string{"-o", "OUT", "-name", "a.example/b:c", "-binary", static, "-link", "../x"}, `"../x" is no file name`},
		{"link over the binary", []string{"-o", "OUT", "-name", "a.example/b:c", "-binary", static, "-link", "hello"}, `the name "hello" is given twice`},
		{"user's name", []string{"-o", "OUT", "-name", "a.example/b:c", "-binary", static, "-user", "nonroot"}, "-user: must be numbers"},
		{"label without value", []string{"-o", "OUT", "-name", "a.example/b:c", "-binary", static, "-label", "title"}, "-label: must be key=value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			folder := t.TempDir()
			args := append([]string(nil), tc.args...)
			for i := range args {
				if args[i] == "OUT" {
					args[i] = filepath.Join(folder, "image.tar")
				}
			}
			err := run(args, io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
	t.Run("date", func(t *testing.T) {
		t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
		err := run([]string{"-o", filepath.Join(t.TempDir(), "x"), "-name", "a.example/b:c", "-binary", static}, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH: must be seconds since 1970") {
			t.Errorf("error %v", err)
		}
	})
}

// Nobody needs to remember that there are two ways to one image.
func TestDockerfileMakesTheSame(t *testing.T) {
	dockerfile, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, stage, found := strings.Cut(string(dockerfile), "\nFROM gcr.io/distroless/static-debian12:nonroot\n")
	if !found {
		t.Fatal("the last stage is another one")
	}
	for _, want := range []string{"\nUSER " + nonroot + "\n", "\nENTRYPOINT [\"/" + programs + "/ackrail\"]\n", " /" + programs + "/ackrail\n"} {
		if !strings.Contains(stage, want) {
			t.Errorf("the Dockerfile has no %q", want)
		}
	}
	script, err := os.ReadFile("make")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(keys(`-label "?([a-z]+)=`, string(script)), keys(`org\.opencontainers\.image\.([a-z]+)=`, stage)); diff != "" {
		t.Errorf("labels (-make +Dockerfile):\n%s", diff)
	}
}

// keys returns what the first group of a pattern matches, in order.
func keys(pattern, text string) []string {
	var found []string
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	slices.Sort(found)
	return found
}
