// Judges kubelet configuration files with the kubelet's own code: reads one JSON object for each
// line and writes one answer for each line. Decoding is strict. Validation, the CPU, memory and
// topology managers, Node Allocatable and the Node's status are those of the release that this is
// built with. Only the machine is simulated: a fake cadvisor reports the machine of the input line.
//
// The code of `run` in cmd/kubelet/app/server.go between these parts (reservedSystemCPUs replaces
// both CPU reservations) is copied here, because `run` cannot be called without a container
// runtime. tests/real/test_kubelet.py compares the answers with those of a running kubelet.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strconv"
	_ "unsafe" // for go:linkname

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/mount-utils"
	"k8s.io/utils/cpuset"

	_ "k8s.io/kubernetes/cmd/kubelet/app" // go:linkname below uses its parseResourceList
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/kubernetes/pkg/kubelet/nodestatus"
)

//go:linkname parseResourceList k8s.io/kubernetes/cmd/kubelet/app.parseResourceList
func parseResourceList(m map[string]string) (v1.ResourceList, error)

type numaNode struct {
	Memory    uint64            `json:"memory"`
	CPUs      []int             `json:"cpus"`
	HugePages map[uint64]uint64 `json:"hugepages"` // size in KiB -> number
}

type machine struct {
	Memory uint64     `json:"memory"`
	NUMA   []numaNode `json:"numa"`
}

type question struct {
	Config  string  `json:"config"`
	Machine machine `json:"machine"`
}

type answer struct {
	Stage       string            `json:"stage"` // decode | validate | start | "" for a kubelet that runs
	Error       string            `json:"error"`
	Reserved    map[string]string `json:"reserved"`
	Allocatable map[string]int64  `json:"allocatable"`
}

type fakeCadvisor struct {
	cadvisor.Interface
	info *cadvisorapi.MachineInfo
}

func (f fakeCadvisor) MachineInfo() (*cadvisorapi.MachineInfo, error) { return f.info, nil }

func machineInfo(m machine) *cadvisorapi.MachineInfo {
	info := &cadvisorapi.MachineInfo{MemoryCapacity: m.Memory, NumSockets: len(m.NUMA)}
	pages := map[uint64]uint64{}
	core := 0
	for id, one := range m.NUMA {
		node := cadvisorapi.Node{Id: id, Memory: one.Memory}
		for size, count := range one.HugePages {
			node.HugePages = append(node.HugePages, cadvisorapi.HugePagesInfo{PageSize: size, NumPages: count})
			pages[size] += count
		}
		for _, cpu := range one.CPUs {
			node.Cores = append(node.Cores, cadvisorapi.Core{Id: core, Threads: []int{cpu}, SocketID: id})
			core++
		}
		info.Topology = append(info.Topology, node)
	}
	for size, count := range pages {
		info.HugePages = append(info.HugePages, cadvisorapi.HugePagesInfo{PageSize: size, NumPages: count})
	}
	info.NumCores, info.NumPhysicalCores = core, core
	return info
}

func decode(text string) (*kubeletconfig.KubeletConfiguration, error) {
	_, codecs, err := scheme.NewSchemeAndCodecs(serializer.EnableStrict)
	if err != nil {
		return nil, err
	}
	object, err := runtime.Decode(codecs.UniversalDecoder(), []byte(text))
	if err != nil {
		return nil, err
	}
	found, ok := object.(*kubeletconfig.KubeletConfiguration)
	if !ok {
		return nil, fmt.Errorf("a %T", object)
	}
	return found, nil
}

func judge(asked question, directory string) (said answer) {
	stage := "decode"
	refuse := func(err error) answer { return answer{Stage: stage, Error: err.Error()} }
	kc, err := decode(asked.Config)
	if err != nil {
		return refuse(err)
	}
	if kc.EvictionHard == nil { // like loadConfigFile in cmd/kubelet/app/server.go
		kc.EvictionHard = eviction.DefaultEvictionHard
	}
	stage = "validate"
	if err := validation.ValidateKubeletConfiguration(kc, utilfeature.DefaultFeatureGate); err != nil {
		return refuse(err)
	}
	stage = "start"
	defer func() {
		if wrong := recover(); wrong != nil {
			said = refuse(fmt.Errorf("panic: %v", wrong))
		}
	}()
	info := machineInfo(asked.Machine)
	manager, err := containerManager(kc, info, directory)
	if err != nil {
		return refuse(err)
	}
	reserved := manager.GetNodeAllocatableReservation()
	for name, amount := range reserved { // like validateNodeAllocatable, a step of Start
		capacity := cadvisor.CapacityFromMachineInfo(info)[name]
		if capacity.Cmp(amount) < 0 {
			return refuse(fmt.Errorf("invalid Node Allocatable configuration. Resource %q has a reservation of %v but capacity of %v. Expected capacity >= reservation.", name, amount.String(), capacity.String()))
		}
	}
	node := &v1.Node{}
	setter := nodestatus.MachineInfo("n", int(kc.MaxPods), int(kc.PodsPerCore),
		func() (*cadvisorapi.MachineInfo, error) { return info, nil },
		func(bool) v1.ResourceList { return v1.ResourceList{} },
		func() (v1.ResourceList, v1.ResourceList, []string) { return nil, nil, nil },
		manager.GetNodeAllocatableReservation,
		func(string, string, string) {}, false)
	if err := setter(context.Background(), node); err != nil {
		return refuse(err)
	}
	said = answer{Reserved: map[string]string{}, Allocatable: map[string]int64{}}
	for name, amount := range reserved {
		said.Reserved[string(name)] = amount.String()
	}
	for name, amount := range node.Status.Allocatable {
		if name == v1.ResourceCPU {
			said.Allocatable[string(name)] = amount.MilliValue()
		} else {
			said.Allocatable[string(name)] = amount.Value()
		}
	}
	return said
}

func containerManager(kc *kubeletconfig.KubeletConfiguration, info *cadvisorapi.MachineInfo, directory string) (cm.ContainerManager, error) {
	reservedCPUs, err := cpuset.Parse(kc.ReservedSystemCPUs)
	if err != nil {
		return nil, fmt.Errorf("unable to parse reserved-cpus list: %w", err)
	}
	var all []int
	for _, node := range info.Topology {
		for _, core := range node.Cores {
			all = append(all, core.Threads...)
		}
	}
	if !reservedCPUs.IsSubsetOf(cpuset.New(all...)) {
		return nil, fmt.Errorf("reserved-cpus: %s is not a subset of online-cpus: %s", kc.ReservedSystemCPUs, cpuset.New(all...))
	}
	if reservedCPUs.Size() > 0 {
		delete(kc.KubeReserved, "cpu")
		if kc.SystemReserved == nil {
			kc.SystemReserved = map[string]string{}
		}
		kc.SystemReserved["cpu"] = strconv.Itoa(reservedCPUs.Size())
	}
	kubeReserved, err := parseResourceList(kc.KubeReserved)
	if err != nil {
		return nil, fmt.Errorf("--kube-reserved value failed to parse: %w", err)
	}
	systemReserved, err := parseResourceList(kc.SystemReserved)
	if err != nil {
		return nil, fmt.Errorf("--system-reserved value failed to parse: %w", err)
	}
	thresholds, err := eviction.ParseThresholdConfig([]string{}, kc.EvictionHard, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	config := cm.NodeConfig{
		NodeName:       "n",
		KubeletRootDir: directory,
		CgroupDriver:   "cgroupfs",
		NodeAllocatableConfig: cm.NodeAllocatableConfig{
			EnforceNodeAllocatable: sets.New(kc.EnforceNodeAllocatable...),
			KubeReserved:           kubeReserved,
			SystemReserved:         systemReserved,
			ReservedSystemCPUs:     reservedCPUs,
			HardEvictionThresholds: thresholds,
		},
		CPUManagerPolicy:             kc.CPUManagerPolicy,
		CPUManagerPolicyOptions:      kc.CPUManagerPolicyOptions,
		CPUManagerReconcilePeriod:    kc.CPUManagerReconcilePeriod.Duration,
		TopologyManagerPolicy:        kc.TopologyManagerPolicy,
		TopologyManagerScope:         kc.TopologyManagerScope,
		TopologyManagerPolicyOptions: kc.TopologyManagerPolicyOptions,
	}
	set(&config, "MemoryManagerPolicy", kc.MemoryManagerPolicy)
	set(&config, "MemoryManagerReservedMemory", kc.ReservedMemory)
	mounter, machine := mount.NewFakeMounter(nil), fakeCadvisor{info: info}
	return cm.NewContainerManager(mounter, machine, config, false, &record.FakeRecorder{}, nil)
}

// set sets a field of the configuration whose name has the prefix Experimental in 1.30 and 1.31.
func set(config *cm.NodeConfig, name string, value any) {
	fields := reflect.ValueOf(config).Elem()
	field := fields.FieldByName(name)
	if !field.IsValid() {
		field = fields.FieldByName("Experimental" + name)
	}
	field.Set(reflect.ValueOf(value))
}

func main() {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("logtostderr", "false")
	_ = flags.Set("stderrthreshold", "FATAL")
	klog.SetOutput(nobody{})
	gates := utilfeature.DefaultMutableFeatureGate
	if err := gates.Set("DynamicResourceAllocation=false"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	directory, err := os.MkdirTemp("", "kubelet-judge-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer os.RemoveAll(directory)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<22)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for number := 0; lines.Scan(); number++ {
		var asked question
		said := answer{Stage: "question"}
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			said.Error = err.Error()
		} else {
			said = judge(asked, fmt.Sprintf("%s/%d", directory, number))
		}
		text, _ := json.Marshal(said)
		fmt.Fprintf(out, "%s\n", text)
	}
}

type nobody struct{}

func (nobody) Write(text []byte) (int, error) { return len(text), nil }
