package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
)

const (
	updateTimeout = 30 * time.Second
	peerTimeout   = 30 * time.Second
)

var errNoSubscription = errors.New("not a question: subscribe comes first")

// This process as a workload, once it has subscribed.
var self *workload

// A workload with one subscription. Its TLS always uses what it was told last.
type workload struct {
	lock    sync.Mutex
	newest  *workloadapi.X509Context
	updates chan told
}

// Either of the two.
type told struct {
	context *workloadapi.X509Context
	err     error
}

func (asked question) subscribe() (answer, error) {
	if self != nil {
		return nil, errors.New("not a question: there is a subscription already")
	}
	ctx := context.Background()
	client, err := workloadapi.New(ctx, workloadapi.WithAddr("unix://"+asked.Socket))
	if err != nil {
		return nil, err
	}
	self = &workload{updates: make(chan told, 1024)}
	// Ends with the process.
	go func() { _ = client.WatchX509Context(ctx, self) }()
	return asked.update()
}

func (asked question) update() (answer, error) {
	if self == nil {
		return nil, errNoSubscription
	}
	select {
	case update := <-self.updates:
		if update.err != nil {
			return nil, update.err
		}
		return identities(update.context)
	case <-time.After(updateTimeout):
		return nil, fmt.Errorf("no update within %s", updateTimeout)
	}
}

// The key is for the test, which looks for it in every output.
func identities(context *workloadapi.X509Context) (answer, error) {
	svid := context.DefaultSVID()
	_, key, err := svid.MarshalRaw()
	if err != nil {
		return nil, err
	}
	var chain [][]byte
	for _, certificate := range svid.Certificates {
		chain = append(chain, certificate.Raw)
	}
	bundles := map[string][][]byte{}
	for _, bundle := range context.Bundles.Bundles() {
		var authorities [][]byte
		for _, authority := range bundle.X509Authorities() {
			authorities = append(authorities, authority.Raw)
		}
		bundles[bundle.TrustDomain().Name()] = authorities
	}
	return answer{"id": svid.ID.String(), "chain": chain, "key": key, "bundles": bundles}, nil
}

// Of workloadapi.X509ContextWatcher.
func (it *workload) OnX509ContextUpdate(context *workloadapi.X509Context) {
	it.lock.Lock()
	it.newest = context
	it.lock.Unlock()
	it.updates <- told{context: context}
}

// Of workloadapi.X509ContextWatcher.
func (it *workload) OnX509ContextWatchError(err error) {
	it.updates <- told{err: err}
}

func (it *workload) latest() (*workloadapi.X509Context, error) {
	it.lock.Lock()
	defer it.lock.Unlock()
	if it.newest == nil {
		return nil, errors.New("the Workload API has told nothing yet")
	}
	return it.newest, nil
}

// Of x509svid.Source.
func (it *workload) GetX509SVID() (*x509svid.SVID, error) {
	newest, err := it.latest()
	if err != nil {
		return nil, err
	}
	return newest.DefaultSVID(), nil
}

// Of x509bundle.Source.
func (it *workload) GetX509BundleForTrustDomain(of spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	newest, err := it.latest()
	if err != nil {
		return nil, err
	}
	return newest.Bundles.GetX509BundleForTrustDomain(of)
}

// Serves until the process ends, and tells each client its SPIFFE ID.
func (asked question) serve() (answer, error) {
	if self == nil {
		return nil, errNoSubscription
	}
	trustDomain, err := spiffeid.TrustDomainFromString(asked.TD)
	if err != nil {
		return nil, err
	}
	config := tlsconfig.MTLSServerConfig(self, self, tlsconfig.AuthorizeMemberOf(trustDomain))
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go tellItsID(connection.(*tls.Conn))
		}
	}()
	return answer{"address": listener.Addr().String()}, nil
}

// The client hears of a failed handshake by TLS.
func tellItsID(connection *tls.Conn) {
	defer connection.Close()
	if connection.SetDeadline(time.Now().Add(peerTimeout)) != nil || connection.Handshake() != nil {
		return
	}
	id, err := x509svid.IDFromCert(connection.ConnectionState().PeerCertificates[0])
	if err == nil {
		_, _ = io.WriteString(connection, id.String())
	}
}

func (asked question) dial() (answer, error) {
	if self == nil {
		return nil, errNoSubscription
	}
	id, err := spiffeid.FromString(asked.EndpointID)
	if err != nil {
		return nil, err
	}
	config := tlsconfig.MTLSClientConfig(self, self, tlsconfig.AuthorizeID(id))
	dialer := net.Dialer{Timeout: peerTimeout}
	connection, err := tls.DialWithDialer(&dialer, "tcp", asked.Address, config)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(peerTimeout)); err != nil {
		return nil, err
	}
	// Only this shows that the server has accepted our SVID.
	seenAs, err := io.ReadAll(connection)
	if err != nil {
		return nil, err
	}
	return answer{"seen_as": string(seenAs)}, nil
}
