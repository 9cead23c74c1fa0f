package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/bufbuild/protocompile"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// The one method of the join service, as our .proto has it. Nothing is generated, so nothing is out of date.
type joinMethod struct {
	path              string
	stream            grpc.StreamDesc
	request, response protoreflect.MessageDescriptor
}

func readJoinMethod(folder string) (joinMethod, error) {
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{folder}}}
	files, err := compiler.Compile(context.Background(), "trustplane/join/v1/join.proto")
	if err != nil {
		return joinMethod{}, err
	}
	service := files[0].Services().ByName("JoinService")
	method := service.Methods().ByName("RegisterUsingSPIFFEMethod")
	return joinMethod{
		path: fmt.Sprintf("/%s/%s", service.FullName(), method.Name()),
		stream: grpc.StreamDesc{
			ClientStreams: method.IsStreamingClient(),
			ServerStreams: method.IsStreamingServer(),
		},
		request:  method.Input(),
		response: method.Output(),
	}, nil
}

// A request with this payload, which is JSON.
func (it joinMethod) newRequest(name string, payload any) (*dynamicpb.Message, error) {
	written, err := json.Marshal(map[string]any{name: payload})
	if err != nil {
		return nil, err
	}
	request := dynamicpb.NewMessage(it.request)
	return request, protojson.Unmarshal(written, request)
}

// What stands under these names, one in the other. Panics on a name that is not in the .proto.
func at(message protoreflect.Message, names ...protoreflect.Name) protoreflect.Value {
	value := protoreflect.ValueOfMessage(message)
	for _, name := range names {
		inner := value.Message()
		value = inner.Get(inner.Descriptor().Fields().ByName(name))
	}
	return value
}

func has(message protoreflect.Message, name protoreflect.Name) bool {
	return message.Has(message.Descriptor().Fields().ByName(name))
}
