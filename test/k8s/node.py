# SPDX-License-Identifier: Apache-2.0
"""The node n1: containerd and the kubelet, with the test's images."""
import json
import os
import subprocess
import sys

from control_plane import wait_for
from machine import NODE_ADDRESS
from peers import PLUGINS, program

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(ROOT, "deploy/image"))
from docker_archive import Archive, Layer  # pylint: disable=wrong-import-position,import-error

IMAGE = "vgpu:0.1.0"  # which the manifests name
PAUSE = "localhost/pause:test"
# Where this machine does not let a process lower its own oom_score_adj (CAP_SYS_RESOURCE), containers
# would not start: restrict_oom_score_adj.
CONTAINERD = """version = 2
root = "{directory}/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
    "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  tolerate_missing_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{directory}/cni"
"""
NETWORK = {"cniVersion": "0.4.0", "name": "test", "plugins": [
    {"type": "bridge", "bridge": "test0", "isGateway": True, "ipMasq": False, "hairpinMode": True,
     "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "10.244.77.0/24"}]],
              "routes": [{"dst": "0.0.0.0/0"}]}}]}


def kubelet_configuration(pki, cgroup):
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd.sock",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                           "x509": {"clientCAFile": f"{pki}/ca.crt"}},
        "authorization": {"mode": "Webhook"}, "address": NODE_ADDRESS, "healthzBindAddress": "127.0.0.1",
        "tlsCertFile": f"{pki}/node.crt", "tlsPrivateKeyFile": f"{pki}/node.key",
        "cgroupDriver": "cgroupfs", "cgroupRoot": "/" + cgroup, "cgroupsPerQOS": True, "enforceNodeAllocatable": [],
        "failCgroupV1": False, "failSwapOn": False, "oomScoreAdj": 0, "maxOpenFiles": 20000,
        "makeIPTablesUtilChains": False, "resolvConf": "", "serializeImagePulls": True,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100, "localStorageCapacityIsolation": False,
        "syncFrequency": "5s", "nodeStatusUpdateFrequency": "3s"}


def make_pause(archive, layer):
    """The sandbox's image, of busybox alone."""
    with Layer(layer) as content:
        content.file("bin/busybox", "/bin/busybox")
        content.link("bin/sleep", "busybox")
        for name in ("proc", "sys", "dev", "etc", "tmp"):
            content.directory(name)
    with Archive(archive) as images:
        images.image(PAUSE, [layer], ["/bin/sleep", "infinity"], "/bin")


class Node:
    def __init__(self, plane, build):
        self.plane, self.machine, self.build = plane, plane.machine, build
        self.directory = plane.machine.directory

    def write(self, name, text):
        path = self.machine.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        return path

    def make_image(self):
        """The reason why it cannot; None where it is made."""
        done = subprocess.run([os.path.join(ROOT, "deploy/image/make-rootfs"), "--simulator", self.build,
                               self.machine.path("image.tar")],
                              capture_output=True, text=True, check=False)
        if done.returncode == 77:
            return done.stderr.strip()
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        make_pause(self.machine.path("pause.tar"), self.machine.path("pause-layer.tar"))
        return None

    def start_runtime(self):
        self.write("cni/10-test.conflist", json.dumps(NETWORK))
        path = self.write("containerd.toml", CONTAINERD.format(directory=self.directory, pause=PAUSE, plugins=PLUGINS))
        self.plane.start("containerd", "containerd", "-c", path, "-l", "warn")
        wait_for("containerd answers", lambda: self.ctr("version").returncode == 0)
        for name in ("pause.tar", "image.tar"):
            done = self.ctr("images", "import", "--no-unpack", self.machine.path(name))
            if done.returncode:
                raise RuntimeError(f"ctr images import {name}: {done.stderr}")

    @staticmethod
    def ctr(*arguments):
        return subprocess.run(["ctr", "--address", "/run/containerd.sock", "-n", "k8s.io", *arguments],
                              capture_output=True, text=True, check=False, timeout=300)

    def start_kubelet(self):
        pki = self.plane.pki
        path = self.write("kubelet.yaml", json.dumps(kubelet_configuration(pki, self.machine.cgroup)))
        self.plane.start("kubelet", program("kubelet"), f"--config={path}", f"--kubeconfig={pki}/node.kubeconfig",
                         "--hostname-override=n1", f"--node-ip={NODE_ADDRESS}", "-v=4",
                         "--node-labels=nvidia.com/gpu.present=true,gpu=on")

    def is_ready(self):
        node = self.plane.api.found("/api/v1/nodes/n1")
        return node and any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
