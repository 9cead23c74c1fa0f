// Reads a Containerfile as BuildKit does, with all of BuildKit's own rules, and builds nothing.
//
// The file comes on standard input. Each complaint is a line of standard output; none, and the file
// is in order. Base images are not fetched: every one of them counts as an empty Linux image.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/opencontainers/go-digest"
)

type emptyImages struct{}

func (emptyImages) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	return ref, "", []byte(`{"os": "linux", "architecture": "amd64", "config": {}}`), nil
}

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	source := llb.NewSourceMap(nil, "Containerfile", "Dockerfile", text)
	// The linter looks into it, and needs nothing of what it could find there.
	source.Definition = &llb.Definition{}
	found, err := dockerfile2llb.DockerfileLint(context.Background(), text, dockerfile2llb.ConvertOpt{
		MetaResolver: emptyImages{},
		SourceMap:    source,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if found.Error != nil {
		fmt.Printf("error: %s\n", found.Error.Message)
	}
	for _, warning := range found.Warnings {
		line := int32(0)
		if ranges := warning.Location.GetRanges(); len(ranges) > 0 {
			line = ranges[0].GetStart().GetLine()
		}
		fmt.Printf("line %d: %s: %s\n", line, warning.RuleName, warning.Detail)
	}
}
