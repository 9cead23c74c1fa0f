// What OpenShift's router makes of a certificate and a key, asked of the Go libraries that it is
// built on.
//
// The router itself is in no registry. This follows what its check of a Route does since OpenShift
// 4.21, step by step, with crypto/x509, crypto/tls and encoding/pem doing the judging, so that
// tests/tls_properties/router.rs can compare src/tls with them.
//
// Each line of standard input is a case: certificate, key and caCertificate, each in base64,
// separated by single spaces. Each line of standard output answers one: "served", or "refused" and
// why.
package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Within the validity of everything that the tests make: the router does not look at dates.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	answers := bufio.NewWriter(os.Stdout)
	defer answers.Flush()
	for lines.Scan() {
		var texts [3][]byte
		for i, field := range strings.SplitN(lines.Text(), " ", 3) {
			text, err := base64.StdEncoding.DecodeString(field)
			if err != nil {
				fmt.Fprintln(os.Stderr, "not a case:", err)
				os.Exit(1)
			}
			texts[i] = text
		}
		if err := check(texts[0], texts[1], texts[2]); err != nil {
			fmt.Fprintf(answers, "refused: %s\n", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Fprintln(answers, "served")
		}
	}
}

func check(certificate, key, ca []byte) error {
	leafFirst, err := certificates(certificate)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	if err := signatures(leafFirst); err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	if len(ca) > 0 {
		if err := signedBy(leafFirst[0], ca); err != nil {
			return fmt.Errorf("caCertificate: %w", err)
		}
	}
	ofCertificate, err := rewrite(certificate)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	ofKey, err := rewrite(key)
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	served, keys := split(ofCertificate)
	keys = append(keys, ofKey...)
	if err := only("CERTIFICATE", served); err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	if err := only("PRIVATE KEY", keys); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	_, err = tls.X509KeyPair(encoded(served), encoded(keys))
	return err
}

// The router takes keys that stand beside the certificate, and prefers them.
func split(blocks []*pem.Block) (others, keys []*pem.Block) {
	for _, block := range blocks {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			keys = append(keys, block)
		} else {
			others = append(others, block)
		}
	}
	return others, keys
}

// Since OpenShift 4.21: a block of another kind, a public key for one, refuses the Route.
func only(kind string, blocks []*pem.Block) error {
	for _, block := range blocks {
		if !strings.Contains(block.Type, kind) {
			return fmt.Errorf("block %q", block.Type)
		}
	}
	return nil
}

func encoded(blocks []*pem.Block) []byte {
	var text []byte
	for _, block := range blocks {
		text = append(text, pem.EncodeToMemory(block)...)
	}
	return text
}

// The CERTIFICATE blocks of a text; others, and those with headers, are passed over.
func certificates(text []byte) ([]*x509.Certificate, error) {
	var found []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	if len(found) == 0 {
		return nil, errors.New("no certificate")
	}
	return found, nil
}

// No weak signature, except on a certificate that vouches for itself.
func signatures(chain []*x509.Certificate) error {
	for _, one := range chain {
		named := bytes.Equal(one.RawIssuer, one.RawSubject)
		keyed := one.AuthorityKeyId == nil || bytes.Equal(one.AuthorityKeyId, one.SubjectKeyId)
		if named && keyed && fits(one) {
			continue
		}
		switch one.SignatureAlgorithm {
		case x509.SHA1WithRSA, x509.DSAWithSHA1, x509.ECDSAWithSHA1, x509.MD5WithRSA, x509.MD2WithRSA:
			return fmt.Errorf("weak signature %v", one.SignatureAlgorithm)
		}
	}
	return nil
}

// Whether a certificate's own key is of the kind that its signature was made with.
func fits(one *x509.Certificate) bool {
	name := one.SignatureAlgorithm.String()
	switch one.PublicKeyAlgorithm {
	case x509.RSA:
		return strings.HasSuffix(name, "-RSA") || strings.HasSuffix(name, "-RSAPSS")
	case x509.ECDSA, x509.DSA:
		return strings.HasPrefix(name, one.PublicKeyAlgorithm.String()+"-")
	case x509.Ed25519:
		return one.SignatureAlgorithm == x509.PureEd25519
	}
	return false
}

// The pool's own certificates alone must do; that they are out of date does not matter.
func signedBy(leaf *x509.Certificate, ca []byte) error {
	authorities, err := certificates(ca)
	if err != nil {
		return err
	}
	if _, err := rewrite(ca); err != nil {
		return err
	}
	if err := signatures(authorities); err != nil {
		return err
	}
	pool := x509.NewCertPool()
	for _, authority := range authorities {
		pool.AddCert(authority)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: pool, CurrentTime: noon})
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return nil
	}
	return err
}

// Every block, parsed and written again as HAProxy gets it; what can't be parsed is refused.
func rewrite(text []byte) ([]*pem.Block, error) {
	var out []*pem.Block
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		again, err := rewriteBlock(block)
		if err != nil {
			return nil, err
		}
		if again != nil {
			out = append(out, again)
		}
	}
	return out, nil
}

func rewriteBlock(block *pem.Block) (*pem.Block, error) {
	switch block.Type {
	case "CERTIFICATE":
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return &pem.Block{Type: block.Type, Bytes: one.Raw}, nil
	case "PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "ECDSA PRIVATE KEY":
		return rewriteKey(block.Bytes)
	case "PUBLIC KEY", "RSA PUBLIC KEY", "DSA PUBLIC KEY", "ECDSA PUBLIC KEY":
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		bytes, err := x509.MarshalPKIXPublicKey(key)
		return &pem.Block{Type: "PUBLIC KEY", Bytes: bytes}, err
	case "EC PARAMETERS":
		return nil, nil
	}
	return nil, fmt.Errorf("unknown block %q", block.Type)
}

func rewriteKey(der []byte) (*pem.Block, error) {
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		if key, err = x509.ParsePKCS1PrivateKey(der); err != nil {
			if key, err = x509.ParseECPrivateKey(der); err != nil {
				return nil, errors.New("unreadable key")
			}
		}
	}
	switch key := key.(type) {
	case *rsa.PrivateKey:
		return &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}, nil
	case *ecdsa.PrivateKey:
		bytes, err := x509.MarshalECPrivateKey(key)
		return &pem.Block{Type: "EC PRIVATE KEY", Bytes: bytes}, err
	}
	return nil, fmt.Errorf("key of type %T", key)
}
