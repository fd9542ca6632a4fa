# SPDX-License-Identifier: Apache-2.0
"""The programs of Kubernetes and the container runtime of which the test's cluster is made."""
import os
import shutil
import subprocess

PEERS = os.environ.get("VGPU_PEERS", "/opt/k8speer")
BUILT = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet"]
PLUGINS = "/usr/lib/cni"
PACKAGES = {"containerd": "containerd", "ctr": "containerd", "runc": "runc", "openssl": "openssl",
            "busybox": "busybox-static", "ip": "iproute2", "curl": "curl"}
def program(name):
    return os.path.join(PEERS, name)


def why_not():
    """What this machine lacks; None: nothing."""
    if os.getuid() != 0:
        return "needs root"
    absent = [name for name in BUILT if not os.access(program(name), os.X_OK)]
    if absent:
        return f"no {', '.join(absent)} in {PEERS}: scripts/build-peers makes them"
    packages = sorted({package for name, package in PACKAGES.items() if not shutil.which(name)})
    if not os.path.exists(os.path.join(PLUGINS, "bridge")):
        packages.append("containernetworking-plugins")
    if packages:
        return f"needs Debian's {', '.join(packages)}"
    if not os.path.isdir("/sys/fs/cgroup"):
        return "no cgroups are mounted here"
    return None


def versions():
    def first_line(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()
    return [first_line(program("kubelet"), "--version"), first_line(program("kube-apiserver"), "--version"),
            first_line(program("etcd"), "--version"), first_line("containerd", "--version"),
            first_line("runc", "--version"), "Linux " + os.uname().release]
