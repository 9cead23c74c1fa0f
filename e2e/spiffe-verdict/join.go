package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Longer than the server's own patience, which ends a silent stream.
const joinTimeout = 60 * time.Second

// A try to join. Its fields say what it does wrong.
type attempt struct {
	// Of the server.
	Address string `json:"address"`
	// RegisterUsingSPIFFEMethodInitialRequest, as protobuf's JSON.
	Init json.RawMessage `json:"init"`
	// Of the SVID, PKCS#8.
	Key []byte `json:"key"`
	// What goes over the stream, in this order; init and solution if it is left out.
	//
	//	init       what Init says
	//	solution   the signature over the challenge
	//	forged     a signature over another nonce
	//	truncated  the first half of init's bytes
	Sends []string `json:"sends"`
	// Signed in place of what was sent and received, where they are there.
	SignedTD    string  `json:"signed_td"`
	SignedNonce []byte  `json:"signed_nonce"`
	SignedToken *string `json:"signed_token"`
	SignedCSR   []byte  `json:"signed_csr"`
	// Sent in place of a signature.
	Solution []byte `json:"solution"`
}

// What an attempt led to.
type result struct {
	// RegisterUsingSPIFFEMethodResponse, as protobuf's JSON.
	Received []json.RawMessage `json:"received"`
	// gRPC's; 0 if the server ended the stream without an error, or goes on to send bundles.
	Code    uint32 `json:"code"`
	Message string `json:"message"`
}

// Makes all attempts at once, over one connection for each address.
func (asked question) join() (answer, error) {
	method, err := readJoinMethod(asked.Proto)
	if err != nil {
		return nil, err
	}
	bundle, err := asked.bundle()
	if err != nil {
		return nil, err
	}
	id, err := spiffeid.FromString(asked.EndpointID)
	if err != nil {
		return nil, err
	}
	config := tlsconfig.TLSClientConfig(bundle, tlsconfig.AuthorizeID(id))
	connections := map[string]*grpc.ClientConn{}
	for _, attempt := range asked.Attempts {
		if connections[attempt.Address] != nil {
			continue
		}
		secure := grpc.WithTransportCredentials(credentials.NewTLS(config))
		connection, err := grpc.NewClient(attempt.Address, secure)
		if err != nil {
			return nil, err
		}
		defer connection.Close()
		connections[attempt.Address] = connection
	}
	results, failures := make([]result, len(asked.Attempts)), make([]error, len(asked.Attempts))
	var all sync.WaitGroup
	for number, attempt := range asked.Attempts {
		all.Go(func() {
			defer func() {
				if cause := recover(); cause != nil {
					failures[number] = fmt.Errorf("panic: %v", cause)
				}
			}()
			connection := connections[attempt.Address]
			results[number], failures[number] = attempt.make(method, connection, asked.TD)
		})
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	return answer{"results": results}, nil
}

// One stream. It fails only if the attempt itself can't be made.
func (it attempt) make(method joinMethod, connection *grpc.ClientConn, trustDomain string) (result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	stream, err := connection.NewStream(ctx, &method.stream, method.path)
	if err != nil {
		return result{}.endedBy(err), nil
	}
	init, err := method.newRequest("init", it.Init)
	if err != nil {
		return result{}, fmt.Errorf("not a question: init: %w", err)
	}
	talk := talk{method: method, stream: stream}
	for _, what := range it.sends() {
		request := init
		switch what {
		case "init":
		case "truncated":
			request, err = firstHalf(init)
		case "solution", "forged":
			var signature []byte
			signature, err = it.signature(what, init, trustDomain, talk.awaitNonce())
			if err == nil {
				payload := map[string][]byte{"signed_nonce": signature}
				request, err = method.newRequest("challenge_solution", payload)
			}
		default:
			err = fmt.Errorf("not a question: sends %q", what)
		}
		if err != nil {
			return result{}, err
		}
		// If the server has ended the stream, what is received next says why.
		_ = stream.SendMsg(request)
	}
	follows := at(init, "init", "join_request", "follow").Bool()
	for !talk.isOver && !(follows && talk.hasBundles) {
		talk.receive()
	}
	return talk.result, nil
}

func (it attempt) sends() []string {
	if it.Sends == nil {
		return []string{"init", "solution"}
	}
	return it.Sends
}

// Fields that no message has are written as they are.
func firstHalf(whole *dynamicpb.Message) (*dynamicpb.Message, error) {
	written, err := proto.Marshal(whole)
	half := dynamicpb.NewMessage(whole.Descriptor())
	half.SetUnknown(written[:len(written)/2])
	return half, err
}

// The client's side of a stream.
type talk struct {
	method     joinMethod
	stream     grpc.ClientStream
	result     result
	nonce      []byte
	hasBundles bool
	isOver     bool
}

func (it *talk) awaitNonce() []byte {
	for it.nonce == nil && !it.isOver {
		it.receive()
	}
	return it.nonce
}

func (it *talk) receive() {
	response := dynamicpb.NewMessage(it.method.response)
	if err := it.stream.RecvMsg(response); err != nil {
		it.isOver = true
		it.result = it.result.endedBy(err)
		return
	}
	if has(response, "challenge") {
		it.nonce = at(response, "challenge", "nonce").Bytes()
	}
	it.hasBundles = has(response, "trust_bundles")
	written, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(response)
	if err != nil {
		panic(err)
	}
	it.result.Received = append(it.result.Received, written)
}

func (it result) endedBy(err error) result {
	if err == io.EOF {
		return it
	}
	told := status.Convert(err)
	it.Code, it.Message = uint32(told.Code()), told.Message()
	return it
}
