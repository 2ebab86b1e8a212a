"""A pod that runs as a process, without a kubelet and a container runtime.

The pod is the one that the API server has stored, with all changes of admission. Its image is a
root in which the deb is installed as in the Containerfile. Its volumes have the owners and modes
that kubelets set (pkg/volume/util/atomic_writer.go). The folder of a ConfigMap or an emptyDir is
open to all users. So is, with the sticky bit, the root of the tmpfs of a Secret or a projected
volume. The process has its service account's token, its user and only the capabilities that it
requests. Its root is read-only if the pod says so, and its variables are its own and those of every
pod."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.real.http_api import Json
from tests.real.namespaces import REPOSITORY
from tests.real.package_roots import Root
from tests.real.programs import HUNG
from tests.real.rig import PORT, Rig

CONTAINERFILE = (REPOSITORY / "deploy" / "Containerfile").read_text()
SERVICE = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(PORT)}
# A runtime's default for an image that sets none.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
Answer = subprocess.CompletedProcess[str]


def install_image(root: Root, package: Path) -> None:
    """Plays the Containerfile's steps in a root, except for apt: the root has those packages."""
    root.put(package, "/tmp/dnm.deb")
    root("dpkg -i /tmp/dnm.deb")
    for command in re.findall(
        r"^ +&& ((?:group|user)add .*?)(?: \\)?$", CONTAINERFILE, re.MULTILINE
    ):
        root(command)


def entrypoint() -> list[str]:
    (result,) = re.findall(r"^ENTRYPOINT (.*)$", CONTAINERFILE, re.MULTILINE)
    return list(json.loads(result))


def run_pod(rig: Rig, root: Root, pod: Json, directory: Path, *arguments: str) -> Answer:
    """Runs the command of the pod's container, with `arguments` if there are any."""
    spec = pod["spec"]
    (container,) = spec["containers"]
    volumes = {
        volume["name"]: make_volume(rig, pod, volume, directory / volume["name"])
        for volume in spec["volumes"]
    }  # fmt: skip
    mounts = [
        f"mount_one {shlex.quote(str(volumes[item['name']] / item.get('subPath', '')))} "
        f"{shlex.quote(item['mountPath'])} {'ro' if item.get('readOnly') else 'rw'}"
        for item in container["volumeMounts"]
        if (volumes[item["name"]] / item.get("subPath", "")).exists()
    ]
    command = [
        *set_rights(spec, container), "env", "-i", *variables(pod, container),
        *(container.get("command") or entrypoint()), *(arguments or container.get("args", [])),
    ]  # fmt: skip
    read_only = container["securityContext"].get("readOnlyRootFilesystem")
    script = SCRIPT.format(
        root=root.path,
        mounts="\n".join(mounts),
        read_only='mount -o remount,bind,ro "$root"' if read_only else "",
        command=shlex.join(command),
    )
    return subprocess.run(
        ["nsenter", "-t", root.inside, "-m", "--", "unshare", "--mount", "--pid", "--fork",
         "--kill-child", "bash", "-euc", script],
        capture_output=True, text=True, timeout=HUNG, stdin=subprocess.DEVNULL,
    )  # fmt: skip


SCRIPT = """
root={root}
umount "$root/tmp" "$root/run"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777,size=64m tmpfs "$root/dev/shm"
# Links are those of the image: /var/run is one.
mount_one() {{
    place="$root$(chroot "$root" realpath -m "$2")"
    mkdir -p "$(dirname "$place")"
    if [ -d "$1" ]; then mkdir -p "$place"; else touch "$place"; fi
    mount --bind "$1" "$place"
    mount -o "remount,bind,$3" "$place"
}}
{mounts}
{read_only}
cd /
exec chroot "$root" {command}
"""


def set_rights(spec: Json, container: Json) -> list[str]:
    """Returns the `setpriv` prefix for the user, groups and capabilities of a pod's security
    contexts. Raises KeyError if they set none."""
    both = {**spec["securityContext"], **container["securityContext"]}
    assert both["capabilities"] == {"drop": ["ALL"]} and not both.get("privileged")
    assert not both["allowPrivilegeEscalation"] and both["runAsNonRoot"]
    groups = str(spec["securityContext"].get("fsGroup", both["runAsGroup"]))
    return ["setpriv", f"--reuid={both['runAsUser']}", f"--regid={both['runAsGroup']}",
            f"--groups={groups}", "--no-new-privs", "--bounding-set=-all",
            "--inh-caps=-all"]  # fmt: skip


def variables(pod: Json, container: Json) -> list[str]:
    """Returns the environment variables from the image, from Kubernetes, and of the container."""
    own = {item["name"]: item["value"] for item in container.get("env", [])}
    always = {"PATH": PATH, "HOSTNAME": pod["metadata"]["name"], "HOME": "/nonexistent"}
    return [f"{name}={value}" for name, value in {**always, **SERVICE, **own}.items()]


# --- volumes -------------------------------------------------------------------------------------


def make_volume(rig: Rig, pod: Json, volume: Json, directory: Path) -> Path:
    """Creates the folder of a volume as a kubelet does, and returns it."""
    directory.mkdir(parents=True)
    group = int(pod["spec"]["securityContext"].get("fsGroup", 0))
    if "configMap" in volume:
        source = volume["configMap"]
        data = object_data(rig, pod, "configmaps", source["name"])
        write_all(directory, {name: text.encode() for name, text in data.items()}, source, group)
    elif "secret" in volume:
        source = volume["secret"]
        data = object_data(rig, pod, "secrets", source["secretName"], bool(source.get("optional")))
        decoded = {name: base64.b64decode(text) for name, text in data.items()}
        write_all(directory, decoded, source, group)
    elif "projected" in volume:
        for item in volume["projected"]["sources"]:
            write_all(directory, projected(rig, pod, item), volume["projected"], group)
    elif "emptyDir" not in volume:
        raise AssertionError(f"a volume of another kind: {volume}")
    directory.chmod(0o1777 if volume.keys() & {"secret", "projected"} else 0o777)
    return directory


def object_data(
    rig: Rig, pod: Json, kind: str, name: str, optional: bool = False
) -> Mapping[str, str]:
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/{kind}"
    names = [item["metadata"]["name"] for item in rig.api.get(path)["items"]]
    if optional and name not in names:
        return {}
    return dict(rig.api.get(f"{path}/{name}")["data"])


def projected(rig: Rig, pod: Json, source: Json) -> Mapping[str, bytes]:
    """Creates the volume with token, CA and namespace that every pod gets for its account."""
    namespace = pod["metadata"]["namespace"]
    if "serviceAccountToken" in source:
        account = pod["spec"]["serviceAccountName"]
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"],
                 "uid": pod["metadata"]["uid"]}  # fmt: skip
        seconds = source["serviceAccountToken"]["expirationSeconds"]
        answer = rig.api.post(
            path, {"spec": {"expirationSeconds": seconds, "boundObjectRef": bound}}
        )
        return {source["serviceAccountToken"]["path"]: answer["status"]["token"].encode()}
    if "configMap" in source:
        data = object_data(rig, pod, "configmaps", source["configMap"]["name"])
        return {item["path"]: data[item["key"]].encode() for item in source["configMap"]["items"]}
    return {item["path"]: namespace.encode() for item in source["downwardAPI"]["items"]}


def write_all(directory: Path, files: Mapping[str, bytes], source: Json, group: int) -> None:
    for name, content in files.items():
        path = directory / name
        path.write_bytes(content)
        os.chown(path, 0, group)
        path.chmod(source["defaultMode"] | (0o440 if group else 0))
