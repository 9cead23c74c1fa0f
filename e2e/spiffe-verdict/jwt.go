package main

import (
	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
)

// Its time is go-spiffe's own, with a minute of leeway.
func (asked question) validate() (answer, error) {
	bundle, err := asked.bundle()
	if err != nil {
		return nil, err
	}
	source := jwtbundle.NewSet(bundle.JWTBundle())
	svid, err := jwtsvid.ParseAndValidate(asked.Token, source, []string{asked.Audience})
	if err != nil {
		return nil, err
	}
	return answer{"id": svid.ID.String(), "claims": svid.Claims}, nil
}
