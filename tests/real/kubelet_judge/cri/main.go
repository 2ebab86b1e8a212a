// A fake container runtime: implements only the part of CRI that a kubelet needs to start and to
// keep running. It listens on the socket that its argument names. It has no containers and cannot
// create any.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type runtime struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer
}

func (runtime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "nothing", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

func (runtime) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Status: true},
	}}}, nil
}

func (runtime) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{}, nil
}

func (runtime) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{}, nil
}

func (runtime) ListContainerStats(context.Context, *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	return &cri.ListContainerStatsResponse{}, nil
}

func (runtime) ListPodSandboxStats(context.Context, *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	return &cri.ListPodSandboxStatsResponse{}, nil
}

func (runtime) UpdateRuntimeConfig(context.Context, *cri.UpdateRuntimeConfigRequest) (*cri.UpdateRuntimeConfigResponse, error) {
	return &cri.UpdateRuntimeConfigResponse{}, nil
}

func (runtime) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	return &cri.ListImagesResponse{}, nil
}

func (runtime) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	place := &cri.FilesystemUsage{Timestamp: time.Now().UnixNano(), FsId: &cri.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes: &cri.UInt64Value{Value: 1}, InodesUsed: &cri.UInt64Value{Value: 1}}
	return &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{place}}, nil
}

func main() {
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, runtime{})
	cri.RegisterImageServiceServer(server, runtime{})
	if err := server.Serve(listener); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
