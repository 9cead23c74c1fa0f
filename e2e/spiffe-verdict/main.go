// What go-spiffe, the library of SPIFFE's own project, makes of IDs, bundle documents, SVIDs, bundle
// endpoints and Workload APIs: the second opinion on src/spiffe and src/authority. workload.go is a workload,
// join.go a client of the join service.
//
// Each line of standard input is a question, a JSON object. Each line of standard output answers one,
// in the same order: {"ok":true, ...}, or {"ok":false,"error":"why"}.
//
//	{"op":"id","text":T}                              td, path
//	{"op":"bundle","td":D,"document":T}               x509, jwt (how many), sequence (text), hint (seconds)
//	{"op":"verify","td":D,"document":T,"chain":[B]}   id; the chain is base64 of DER, the SVID first
//	{"op":"validate","td":D,"document":T,"token":J,"audience":A}
//	                                                  id, claims; of a JWT-SVID
//	{"op":"fetch","td":D,"url":U,"profile":"https_web","roots":PEM}
//	{"op":"fetch","td":D,"url":U,"profile":"https_spiffe","endpoint_id":I,"document":T}
//	                                                  as for bundle, and document: the bundle, written again
//	{"op":"subscribe","socket":S}                     what this workload is told by the Workload API at the socket
//	{"op":"update"}                                   the next thing that it is told; waits for it
//	{"op":"serve","td":D}                             address: TLS for members of the trust domain
//	{"op":"dial","address":A,"endpoint_id":I}         seen_as: our SPIFFE ID, as that server saw it
//	{"op":"join","td":D,"document":T,"endpoint_id":I,"proto":P,"attempts":[...]}
//	                                                  results, in order; join.go says what is in an attempt
//
// sequence and hint are left out if the document does not have them. The document of an https_spiffe
// question is the bundle of the endpoint's own trust domain.
//
// No question ends the program. It ends with its input.
package main

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/federation"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// go-spiffe sets no limit of its own. Long enough for a busy machine.
const fetchTimeout = 30 * time.Second

type question struct {
	Op         string   `json:"op"`
	Text       string   `json:"text"`
	TD         string   `json:"td"`
	Document   string   `json:"document"`
	Chain      []string `json:"chain"`
	URL        string   `json:"url"`
	Profile    string   `json:"profile"`
	Roots      string   `json:"roots"`
	EndpointID string   `json:"endpoint_id"`
	Token      string   `json:"token"`
	Audience   string   `json:"audience"`
	Socket     string   `json:"socket"`
	Address    string   `json:"address"`
	// The folder of our .proto files.
	Proto    string    `json:"proto"`
	Attempts []attempt `json:"attempts"`
}

type answer map[string]any

func main() {
	// Lines may be of any length, so this is no Scanner.
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	answers := json.NewEncoder(out)
	answers.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if err := answers.Encode(answered(line)); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		// Many questions may be on their way; a single one waits for its answer.
		if err != nil || lines.Buffered() == 0 {
			if out.Flush() != nil || err != nil {
				return
			}
		}
	}
}

func answered(line []byte) (given answer) {
	defer func() {
		if cause := recover(); cause != nil {
			given = refused(fmt.Errorf("panic: %v", cause))
		}
	}()
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return refused(fmt.Errorf("not a question: %w", err))
	}
	given, err := asked.answer()
	if err != nil {
		return refused(err)
	}
	given["ok"] = true
	return given
}

func refused(err error) answer {
	return answer{"ok": false, "error": err.Error()}
}

func (asked question) answer() (answer, error) {
	switch asked.Op {
	case "id":
		return asked.id()
	case "bundle":
		bundle, err := asked.bundle()
		if err != nil {
			return nil, err
		}
		return content(bundle), nil
	case "verify":
		return asked.verify()
	case "validate":
		return asked.validate()
	case "fetch":
		return asked.fetch()
	case "subscribe":
		return asked.subscribe()
	case "update":
		return asked.update()
	case "serve":
		return asked.serve()
	case "dial":
		return asked.dial()
	case "join":
		return asked.join()
	}
	return nil, fmt.Errorf("not a question: op %q", asked.Op)
}

func (asked question) id() (answer, error) {
	id, err := spiffeid.FromString(asked.Text)
	if err != nil {
		return nil, err
	}
	return answer{"td": id.TrustDomain().Name(), "path": id.Path()}, nil
}

// The document as a bundle of the trust domain.
func (asked question) bundle() (*spiffebundle.Bundle, error) {
	trustDomain, err := spiffeid.TrustDomainFromString(asked.TD)
	if err != nil {
		return nil, err
	}
	return spiffebundle.Parse(trustDomain, []byte(asked.Document))
}

func content(bundle *spiffebundle.Bundle) answer {
	given := answer{"x509": len(bundle.X509Authorities()), "jwt": len(bundle.JWTAuthorities())}
	if sequence, ok := bundle.SequenceNumber(); ok {
		given["sequence"] = strconv.FormatUint(sequence, 10)
	}
	if hint, ok := bundle.RefreshHint(); ok {
		given["hint"] = int64(hint / time.Second)
	}
	return given
}

func (asked question) verify() (answer, error) {
	bundle, err := asked.bundle()
	if err != nil {
		return nil, err
	}
	var chain [][]byte
	for _, text := range asked.Chain {
		der, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		chain = append(chain, der)
	}
	id, _, err := x509svid.ParseAndVerify(chain, bundle)
	if err != nil {
		return nil, err
	}
	return answer{"id": id.String()}, nil
}

func (asked question) fetch() (answer, error) {
	trustDomain, err := spiffeid.TrustDomainFromString(asked.TD)
	if err != nil {
		return nil, err
	}
	trust, err := asked.trust()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	bundle, err := federation.FetchBundle(ctx, trustDomain, asked.URL, trust)
	if err != nil {
		return nil, err
	}
	document, err := bundle.Marshal()
	if err != nil {
		return nil, err
	}
	given := content(bundle)
	given["document"] = string(document)
	return given, nil
}

// By what the endpoint is known.
func (asked question) trust() (federation.FetchOption, error) {
	switch asked.Profile {
	case "https_web":
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(asked.Roots)) {
			return nil, errors.New("not a question: no certificate in roots")
		}
		return federation.WithWebPKIRoots(roots), nil
	case "https_spiffe":
		id, err := spiffeid.FromString(asked.EndpointID)
		if err != nil {
			return nil, err
		}
		bundle, err := spiffebundle.Parse(id.TrustDomain(), []byte(asked.Document))
		if err != nil {
			return nil, err
		}
		return federation.WithSPIFFEAuth(bundle, id), nil
	}
	return nil, fmt.Errorf("not a question: profile %q", asked.Profile)
}
