package keys

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// lifetime outlasts any test cluster.
const lifetime = 365 * 24 * time.Hour

// Authority signs certificates. Its key is nowhere but in memory: a cluster
// makes all that it needs at once.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	// PEM is the authority's own certificate.
	PEM []byte
}

// NewAuthority makes a certificate authority.
func NewAuthority(name string) (*Authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{certificate: template, key: key}
	der, err := a.sign(template, key)
	if err != nil {
		return nil, err
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.PEM = encode("CERTIFICATE", der)
	return a, nil
}

// Pair is a certificate and its private key, in PEM.
type Pair struct {
	Certificate, Key []byte
}

// Client makes a certificate for a user of the API with groups.
func (a *Authority) Client(user string, groups ...string) (Pair, error) {
	return a.pair(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Server makes a certificate for a server with names, of which some may be IP
// addresses.
func (a *Authority) Server(commonName string, names ...string) (Pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return a.pair(template)
}

func (a *Authority) pair(template *x509.Certificate) (Pair, error) {
	template.KeyUsage = x509.KeyUsageDigitalSignature
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	der, err := a.sign(template, key)
	if err != nil {
		return Pair{}, err
	}
	encoded, err := privateKey(key)
	return Pair{Certificate: encode("CERTIFICATE", der), Key: encoded}, err
}

func (a *Authority) sign(template *x509.Certificate, key crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	// A little back, for clocks that are set right after the start.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = template.NotBefore.Add(lifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate of %s: %w", template.Subject.CommonName, err)
	}
	return der, nil
}

// NewSigningKey makes an RSA key, in PEM, that signs service account tokens;
// who has the public key only cannot issue any.
func NewSigningKey() (private, public []byte, err error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, nil, err
	}
	if private, err = privateKey(key); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	return private, encode("PUBLIC KEY", der), err
}

func privateKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return encode("PRIVATE KEY", der), err
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Write writes the pair to path.crt and path.key.
func (p Pair) Write(path string) error {
	if err := os.WriteFile(path+".crt", p.Certificate, 0o600); err != nil {
		return err
	}
	return os.WriteFile(path+".key", p.Key, 0o600)
}
