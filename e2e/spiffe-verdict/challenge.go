package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/dynamicpb"
)

// What a client signs, as docs/spiffe.md says it under "What is signed".
func (it attempt) signature(what string, request *dynamicpb.Message, trustDomain string, nonce []byte) ([]byte, error) {
	if it.Solution != nil {
		return it.Solution, nil
	}
	sent := at(request, "init", "join_request").Message()
	chain, csr, token := at(request, "init", "x509_svid").Bytes(), at(sent, "csr").Bytes(), at(sent, "token").String()
	if it.SignedTD != "" {
		trustDomain = it.SignedTD
	}
	if it.SignedNonce != nil {
		nonce = it.SignedNonce
	}
	if what == "forged" {
		nonce = make([]byte, len(nonce))
	}
	if it.SignedToken != nil {
		token = *it.SignedToken
	}
	if it.SignedCSR != nil {
		csr = it.SignedCSR
	}
	role := binary.BigEndian.AppendUint32(nil, uint32(at(sent, "role").Enum()))
	expires := binary.BigEndian.AppendUint64(nil, uint64(at(sent, "expires").Int()))
	digest := sha256.Sum256(laidOut(chain, csr, []byte(token), role, expires))
	message := laidOut([]byte("trustplane.dev/join/v1"), []byte(trustDomain), nonce, digest[:])
	return sign(it.Key, message)
}

// Each part with its length in front of it.
func laidOut(parts ...[]byte) []byte {
	var message []byte
	for _, part := range parts {
		message = binary.BigEndian.AppendUint64(message, uint64(len(part)))
		message = append(message, part...)
	}
	return message
}

// By the one algorithm for the kind of key, which is PKCS#8.
func sign(pkcs8, message []byte) ([]byte, error) {
	key, err := x509.ParsePKCS8PrivateKey(pkcs8)
	if err != nil {
		return nil, errors.New("not a question: key")
	}
	short, long := sha256.Sum256(message), sha512.Sum384(message)
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		if key.Curve == elliptic.P384() {
			return ecdsa.SignASN1(rand.Reader, key, long[:])
		}
		return ecdsa.SignASN1(rand.Reader, key, short[:])
	case *rsa.PrivateKey:
		options := rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}
		return rsa.SignPSS(rand.Reader, key, crypto.SHA256, short[:], &options)
	case ed25519.PrivateKey:
		return ed25519.Sign(key, message), nil
	}
	return nil, fmt.Errorf("not a question: a key of type %T", key)
}
