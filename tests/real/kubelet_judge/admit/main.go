// Judges with the kubelet's own topology, CPU and memory managers whether a kubelet admits a pod.
// For each line of JSON it prints `admitted` or the reason of the refusal. The machine is simulated
// and empty, the policy is single-numa-node, and a simulated device plugin spreads the devices
// evenly over the NUMA nodes. tests/kubelet/admitting.py runs this program.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

type question struct {
	CPUs, Zones, GPUs, Reserved    int
	Memory                         uint64 // of one zone
	CPUPolicy, MemoryPolicy, Scope string
	Pod                            v1.PodSpec
	Guaranteed                     bool
}

// A fake container runtime that accepts each update of the managers.
type rt struct{}

func (rt) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return nil
}

type status struct{}

func (status) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

// A fake device manager that only returns topology hints.
type gpus struct{ each, zones int }

func (g gpus) hints(n int) map[string][]topologymanager.TopologyHint {
	if n == 0 {
		return nil
	}
	hints := []topologymanager.TopologyHint{}
	least := g.zones + 1
	var all []int
	for i := 0; i < g.zones; i++ {
		all = append(all, i)
	}
	bitmask.IterateBitMasks(all, func(m bitmask.BitMask) {
		if m.Count()*g.each >= n {
			if m.Count() < least {
				least = m.Count()
			}
			hints = append(hints, topologymanager.TopologyHint{NUMANodeAffinity: m})
		}
	})
	for i := range hints {
		hints[i].Preferred = hints[i].NUMANodeAffinity.Count() == least
	}
	return map[string][]topologymanager.TopologyHint{"example.com/gpu": hints}
}
func of(c *v1.Container) int { q := c.Resources.Limits["example.com/gpu"]; return int(q.Value()) }
func (g gpus) GetTopologyHints(p *v1.Pod, c *v1.Container) map[string][]topologymanager.TopologyHint {
	return g.hints(of(c))
}
func (g gpus) GetPodTopologyHints(p *v1.Pod) map[string][]topologymanager.TopologyHint {
	n := 0
	for i := range p.Spec.Containers {
		n += of(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		if m := of(&p.Spec.InitContainers[i]); m > n {
			n = m
		}
	}
	return g.hints(n)
}
func (g gpus) Allocate(p *v1.Pod, c *v1.Container) error { return nil }

func judge(q question) string {
	dir, _ := os.MkdirTemp("", "tm")
	defer os.RemoveAll(dir)
	info := &cadvisorapi.MachineInfo{MemoryCapacity: q.Memory * uint64(q.Zones), NumSockets: q.Zones, NumCores: q.CPUs, NumPhysicalCores: q.CPUs}
	core := 0
	for z := 0; z < q.Zones; z++ {
		n := cadvisorapi.Node{Id: z, Memory: q.Memory}
		for i := 0; i < q.CPUs/q.Zones; i++ {
			n.Cores = append(n.Cores, cadvisorapi.Core{Id: core, Threads: []int{core}, SocketID: z})
			core++
		}
		info.Topology = append(info.Topology, n)
	}
	tm, err := topologymanager.NewManager(info.Topology, "single-numa-node", q.Scope, nil)
	if err != nil {
		return err.Error()
	}
	reserved := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(q.Reserved), resource.DecimalSI), v1.ResourceMemory: resource.MustParse("1Gi")}
	cm, err := cpumanager.NewManager(q.CPUPolicy, nil, time.Hour, info, cpuset.New(), reserved, dir, tm)
	if err != nil {
		return err.Error()
	}
	mm, err := memorymanager.NewManager(context.Background(), q.MemoryPolicy, info, reserved, []kubeletconfig.MemoryReservation{{NumaNode: 0, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}}, dir, tm)
	if err != nil {
		return err.Error()
	}
	pods := func() []*v1.Pod { return nil }
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return true })
	if err := cm.Start(pods, ready, status{}, rt{}, containermap.NewContainerMap()); err != nil {
		return err.Error()
	}
	if err := mm.Start(context.Background(), pods, ready, status{}, rt{}, containermap.NewContainerMap()); err != nil {
		return err.Error()
	}
	tm.AddHintProvider(cm)
	tm.AddHintProvider(mm)
	tm.AddHintProvider(gpus{q.GPUs / q.Zones, q.Zones})
	pod := &v1.Pod{Spec: q.Pod}
	pod.UID = "u"
	pod.Name = "p"
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Name = fmt.Sprint("c", i)
	}
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].Name = fmt.Sprint("i", i)
	}
	r := tm.Admit(&lifecycle.PodAdmitAttributes{Pod: pod})
	if r.Admit {
		return "admitted"
	}
	return r.Reason
}

func main() {
	s := bufio.NewScanner(os.Stdin)
	s.Buffer(nil, 1<<22)
	for s.Scan() {
		var q question
		if err := json.Unmarshal(s.Bytes(), &q); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(judge(q))
	}
}
