package keys

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func newAuthority(t *testing.T) (*Authority, *x509.CertPool) {
	t.Helper()
	authority, err := NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority.PEM) {
		t.Fatal("the authority's PEM holds no certificate")
	}
	return authority, pool
}

func parse(t *testing.T, p Pair) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

func TestClient(t *testing.T) {
	authority, pool := newAuthority(t)
	pair, err := authority.Client("system:node:one", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	certificate := parse(t, pair)
	if got := certificate.Subject; got.CommonName != "system:node:one" || !slices.Equal(got.Organization, []string{"system:nodes"}) {
		t.Errorf("the subject is %s", got)
	}
	client := x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := certificate.Verify(client); err != nil {
		t.Error(err)
	}
	server := x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if _, err := certificate.Verify(server); err == nil {
		t.Error("a client's certificate is good for a server")
	}
	_, others := newAuthority(t)
	client.Roots = others
	if _, err := certificate.Verify(client); err == nil {
		t.Error("another authority accepts the certificate")
	}
}

func TestServer(t *testing.T) {
	authority, pool := newAuthority(t)
	pair, err := authority.Server("apiserver", "127.0.0.1", "kubernetes.default")
	if err != nil {
		t.Fatal(err)
	}
	certificate := parse(t, pair)
	for name, good := range map[string]bool{"127.0.0.1": true, "kubernetes.default": true, "127.0.0.2": false, "kubernetes": false} {
		_, err := certificate.Verify(x509.VerifyOptions{Roots: pool, DNSName: name})
		if (err == nil) != good {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

func TestWriteKeepsTheKeySecret(t *testing.T) {
	authority, _ := newAuthority(t)
	pair, err := authority.Client("one")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "one")
	if err := pair.Write(path); err != nil {
		t.Fatal(err)
	}
	if _, err := tls.LoadX509KeyPair(path+".crt", path+".key"); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(path + ".key")
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		t.Errorf("others may use the key: %s", info.Mode())
	}
}

func TestKubeconfig(t *testing.T) {
	authority, _ := newAuthority(t)
	client, err := authority.Client("admin")
	if err != nil {
		t.Fatal(err)
	}
	content, err := Kubeconfig("https://10.0.0.1:6443", authority, client)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server    string
				Authority []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Certificate []byte `json:"client-certificate-data"`
				Key         []byte `json:"client-key-data"`
			}
		}
	}
	if err := json.Unmarshal(content, &config); err != nil {
		t.Fatal(err)
	}
	if got := config.Clusters[0].Cluster; got.Server != "https://10.0.0.1:6443" || string(got.Authority) != string(authority.PEM) {
		t.Errorf("the cluster is %+v", got)
	}
	if _, err := tls.X509KeyPair(config.Users[0].User.Certificate, config.Users[0].User.Key); err != nil {
		t.Error(err)
	}
}
