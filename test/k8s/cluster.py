# SPDX-License-Identifier: Apache-2.0
"""cluster BUILD [WORD...]: vgpu's node side in a cluster of one node, made of the real programs of
Kubernetes (peers.py). Run by scripts/test-cluster, which makes namespaces and removes all files."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
# pylint: disable=wrong-import-position
import tap  # noqa: E402
from tap import equal, needed, test, true

from control_plane import wait_for
from hami import ALLOCATED, LOCK, PHASE, TO_ALLOCATE, device
from node import IMAGE
from world import NAMESPACE, World, share

SPLIT, CARDS_COUNT = 10, 2


@needed
def starts():
    """a cluster of one node starts, and runs a Pod from our image"""
    World.start(sys.argv[1])
    World.api.call("POST", NAMESPACE, {"metadata": {"name": "plain"}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": IMAGE, "imagePullPolicy": "Never", "command": ["vgpu", "--version"]}]}})
    wait_for("the Pod has ended", lambda: World.pod("plain")["status"]["phase"] == "Succeeded")
    equal(World.plane.kubectl("logs", "plain").stdout.split()[0], "vgpu")


@needed
def offers():
    """the DaemonSet of deploy/kubernetes offers each card ten times, and registers what HAMi reads"""
    World.need()
    World.install_driver()
    World.apply_daemons()
    wait_for("the kubelet has the devices", lambda: World.allocatable() == SPLIT * CARDS_COUNT, seconds=120)
    wait_for("the register annotation is there", World.hami.devices)
    devices = World.hami.devices()
    equal([(one["index"], one["count"], one["devmem"], one["devcore"], one["type"], one["health"], one["mode"])
           for one in devices],
          [(index, SPLIT, 143771, 100, "NVIDIA H200", True, "hami-core") for index in range(CARDS_COUNT)])
    true(all(re.fullmatch(r"GPU-[0-9a-f-]{36}", one["id"]) for one in devices), devices)
    true(not re.search(r"^(ERROR|WARNING)", World.plugin_log(), re.MULTILINE), World.plugin_log())


@needed
def limits():
    """a program in a Pod sees 3,000 MiB and is refused above, by a library from /etc/ld.so.preload"""
    World.need()
    World.create("one", [share()])
    World.hami.place("one", device(World.uuids()[0], 3000, 30) + ";")
    World.wait_running("one")
    equal(World.run("one", "cat", "/etc/ld.so.preload").stdout.strip(), "/usr/local/vgpu/libvgpu.so")
    text = World.run("one", "vgpu-example-fill", "--step", "100MiB").stdout
    true("sees 3000 MiB" in text, text)
    taken = int(re.search(r"allocated (\d+) MiB", text)[1])
    true(2000 <= taken <= 3000 and "then got CUDA_ERROR_OUT_OF_MEMORY" in text, text)
    annotations = wait_for("the allocation is written", lambda: (
        lambda found: found if found.get(PHASE) == "success" else None)(World.pod("one")["metadata"]["annotations"]))
    true("NVIDIA" not in annotations[TO_ALLOCATE], annotations)
    equal(annotations[ALLOCATED], device(World.uuids()[0], 3000, 30) + ";")
    true(LOCK not in World.api.get("/api/v1/nodes/n1")["metadata"]["annotations"], "the node's lock is free again")


def chosen(words):
    if words:
        tap.TESTS[:] = [one for one in tap.TESTS if one in tap.NEEDED or
                        any(word in tap.sentence_of(one) for word in words)]


chosen(sys.argv[2:])
tap.main()
