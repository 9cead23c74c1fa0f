// A service that learns whose a token is by client-go, as services do: the code that the design of `trustplane
// review` shows (docs/review.md), with another Host, CAFile and BearerTokenFile and no other change.
//
//	review-caller json|protobuf --host URL --ca-file FILE --bearer-token-file FILE [--audience NAME]...
//
// The token is all of standard input. `json` is client-go's default; `protobuf` asks as controller-runtime does.
// Standard output is one JSON object:
//
//	{"protocol":"h2","status":{...}}                     the review's status, as client-go decoded it
//	{"protocol":"h2","failure":{"code":503,...}}         client-go's error, after its own retries
//
// protocol is what client and server agreed on by ALPN.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http/httptrace"
	"os"

	authv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

type failure struct {
	// 0 if the server did not answer.
	Code    int32  `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type answer struct {
	Protocol string                    `json:"protocol"`
	Status   *authv1.TokenReviewStatus `json:"status,omitempty"`
	Failure  *failure                  `json:"failure,omitempty"`
}

type names []string

func (all *names) String() string { return fmt.Sprint(*all) }

func (all *names) Set(name string) error {
	*all = append(*all, name)
	return nil
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("usage: review-caller json|protobuf FLAGS <TOKEN")
	}
	config := &rest.Config{}
	switch arguments[0] {
	case "json":
	case "protobuf":
		config.ContentType = runtime.ContentTypeProtobuf
	default:
		return fmt.Errorf("json or protobuf, not %q", arguments[0])
	}
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	flags.StringVar(&config.Host, "host", "", "")
	flags.StringVar(&config.CAFile, "ca-file", "", "")
	flags.StringVar(&config.BearerTokenFile, "bearer-token-file", "", "")
	var audiences names
	flags.Var(&audiences, "audience", "")
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	token, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	answer := answer{}
	// Looks at the connection from outside, so that the configuration stays as a service has it.
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		TLSHandshakeDone: func(state tls.ConnectionState, _ error) {
			answer.Protocol = state.NegotiatedProtocol
		},
	})
	result, err := review(ctx, config, string(token), audiences)
	switch {
	case err == nil:
		answer.Status = &result.Status
	default:
		answer.Failure = told(err)
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

// What the design calls "After", which is also what it calls "Before".
func review(ctx context.Context, config *rest.Config, clientToken string, audiences []string) (*authv1.TokenReview, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client.AuthenticationV1().TokenReviews().Create(ctx, &authv1.TokenReview{
		Spec: authv1.TokenReviewSpec{Token: clientToken, Audiences: audiences},
	}, metav1.CreateOptions{})
}

func told(err error) *failure {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		of := status.Status()
		return &failure{Code: of.Code, Reason: string(of.Reason), Message: of.Message}
	}
	return &failure{Message: err.Error()}
}
