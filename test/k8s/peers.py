# SPDX-License-Identifier: Apache-2.0
"""The programs of Kubernetes and the container runtime of which the test's cluster is made."""
import os
import shutil
import subprocess

PEERS = os.environ.get("VGPU_PEERS", "/opt/k8speer")
CONTROL = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"]
BUILT = [*CONTROL, "kubelet"]
PLUGINS = "/usr/lib/cni"
CONTROL_PACKAGES = {"openssl": "openssl", "ip": "iproute2"}
PACKAGES = {**CONTROL_PACKAGES, "containerd": "containerd", "ctr": "containerd", "runc": "runc",
            "busybox": "busybox-static", "curl": "curl"}


def program(name):
    return os.path.join(PEERS, name)


def why_not(node=True):
    """What this machine lacks, for a node too or only for the control plane; None: nothing."""
    if os.getuid() != 0:
        return "needs root"
    absent = [name for name in (BUILT if node else CONTROL) if not os.access(program(name), os.X_OK)]
    if absent:
        version = PEERS.rpartition("-")[2] if "-" in os.path.basename(PEERS) else ""
        how = f"KUBERNETES_VERSION={version} " if version else ""
        return f"no {', '.join(absent)} in {PEERS}: {how}scripts/build-peers makes them"
    wanted = PACKAGES if node else CONTROL_PACKAGES
    packages = sorted({package for name, package in wanted.items() if not shutil.which(name)})
    if node and not os.path.exists(os.path.join(PLUGINS, "bridge")):
        packages.append("containernetworking-plugins")
    if packages:
        return f"needs Debian's {', '.join(packages)}"
    if not os.path.isdir("/sys/fs/cgroup"):
        return "no cgroups are mounted here"
    return None


def versions(node=True):
    def first_line(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()
    names = BUILT if node else CONTROL
    found = [first_line(program(name), "--version") for name in ("kubelet", "kube-apiserver", "kube-scheduler",
                                                                 "kube-controller-manager", "etcd") if name in names]
    if node:
        found += [first_line("containerd", "--version"), first_line("runc", "--version")]
    return [*found, "Linux " + os.uname().release]
