# SPDX-License-Identifier: Apache-2.0
"""cluster BUILD [WORD...]: vgpu's node side in a cluster of one node, made of the real programs of
Kubernetes (peers.py). Run by scripts/test-cluster, which makes namespaces and removes all files. The
first two tests always run."""
import glob
import json
import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
# pylint: disable=wrong-import-position
import tap  # noqa: E402
from tap import equal, true

import pod_resources
from control_plane import wait_for
from hami import ALLOCATED, LOCK, PHASE, TO_ALLOCATE, device
from node import IMAGE
from share_check import fill, filled, held_to, restarts
from world import MACHINE, NAMESPACE, World, share

SPLIT, CARDS_COUNT = 10, 2
NOBODY = 65534
LIVES_S = 15  # after which the monitor, which is told 2 s here, would have removed a directory
PRELOAD = "/etc/ld.so.preload"
SAY = ("sh", "-c", "vgpu-example-fill --step 100MiB; exec sleep infinity")


def run_one(name, memory=3000, cores=30, card=0, **more):
    """A Pod of one container on a card, placed as HAMi does it."""
    World.need()
    World.create(name, [share(memory=memory, cores=cores, **more)])
    World.hami.place(name, device(World.uuids()[card], memory, cores) + ";")
    World.wait_running(name)


def succeeded(name):
    """The Pod's annotations when the plugin has written all."""
    return wait_for(f"the allocation of {name} is written", lambda: (
        lambda found: found if found.get(PHASE) == "success" else None)(World.pod(name)["metadata"]["annotations"]))


def records():
    """Of the plugin's allocations, by Pod UID and container."""
    found = {}
    for path in glob.glob("/usr/local/vgpu/grants/*/allocation.json"):
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        found[record["uid"], record["container"]] = record
    return found


def test(function):
    """One that begins without Pods of others."""
    def alone():
        if World.api:
            World.clean()
        function()
    alone.__doc__ = function.__doc__
    return tap.test(alone)


@test
def starts():
    """a cluster of one node starts, and runs a Pod from our image"""
    World.start(sys.argv[1])
    World.api.call("POST", NAMESPACE, {"metadata": {"name": "plain"}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": IMAGE, "imagePullPolicy": "Never", "command": ["vgpu", "--version"]}]}})
    wait_for("the Pod has ended", lambda: World.pod("plain")["status"]["phase"] == "Succeeded")
    equal(World.plane.kubectl("logs", "plain").stdout.split()[0], "vgpu")


@test
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
    World.wait_daemons()
    true(not re.search(r"^(ERROR|WARNING)", World.plugin_log(), re.MULTILINE), World.plugin_log())
    os.chmod(MACHINE + "/machine", 0o666)  # of a driver's devices everybody is a user


@test
def limits():
    """a program in a Pod sees 3,000 MiB and is refused above, by a library from /etc/ld.so.preload"""
    run_one("one")
    equal(World.run("one", "cat", PRELOAD).stdout.strip(), "/usr/local/vgpu/libvgpu.so")
    held_to("one", 3000)
    annotations = succeeded("one")
    true("NVIDIA" not in annotations[TO_ALLOCATE], annotations)
    equal(annotations[ALLOCATED], device(World.uuids()[0], 3000, 30) + ";")
    wait_for("the node's lock is free", lambda: LOCK not in World.hami.annotations())
    World.delete("one")


@test
def two_pods():
    """two Pods on one card have each its own limit, whoever's user they run as"""
    run_one("first", 3000)
    run_one("second", 5000, user=NOBODY)
    held_to("first", 3000)
    held_to("second", 5000)


@test
def two_containers():
    """two containers of one Pod, on two cards, have each its own limit"""
    World.need()
    World.create("double", [share("a", 2000, 10), share("b", 4000, 20)])
    cards = World.uuids()
    World.hami.place("double", device(cards[0], 2000, 10) + ";" + device(cards[1], 4000, 20) + ";")
    World.wait_running("double")
    held_to("double", 2000, "a")
    # The simulator shows each container both cards, as a runtime without NVIDIA's hook: of the one that
    # is not its own it gets nothing.
    wanted = {"a": "0", "b": "1"}
    for container, card in wanted.items():
        for index in "01":
            done = World.run("double", "env", "CUDA_VISIBLE_DEVICES=" + index, "vgpu-example-fill",
                             container=container, check=False)
            equal(done.returncode == 0, index == card, f"{container} has card {index}: {done.stdout} {done.stderr}")
    equal(fill("double", "b", "env", "CUDA_VISIBLE_DEVICES=1")[0], 4000, "what b sees")
    succeeded("double")


@test
def identity():
    """two Pods that are bound at once, with the lock of one, have each its own limit from its program's start on"""
    World.need()
    card = World.uuids()[0]
    wanted = {"left": 2000, "right": 6000}
    for name, memory in wanted.items():
        World.create(name, [share(memory=memory, command=SAY)])
        World.hami.filter(f"{NAMESPACE}/{name}", device(card, memory, 30) + ";")
    wait_for("the node's lock is free", lambda: World.hami.lock("default", "left"))
    for name in wanted:
        World.hami.set_phase(f"{NAMESPACE}/{name}")
    for name in ("right", "left"):
        World.hami.post_binding(f"{NAMESPACE}/{name}", "default", name)
    for name, memory in wanted.items():
        World.wait_running(name)
        text = wait_for(f"what {name} says", lambda name=name: (
            lambda text: text if "then got" in text else None)(World.plane.kubectl("logs", name).stdout))
        equal(filled(text)[0], memory, f"what {name}'s program saw at its start")
        succeeded(name)
        equal(records()[World.pod(name)["metadata"]["uid"], "main"]["sure"], True, f"the record of {name} is sure")
    right = [line for line in World.plugin_log().splitlines() if "the devices of Pod" in line]
    print(f"# chosen for another Pod at first, and put right before its program started: {right}")
    true("Issuing a PreStartContainer call" in World.plane.log("kubelet"), "the kubelet's log has no PreStartContainer")
    true("is not known yet" not in World.plugin_log(), World.plugin_log())


@test
def init_container():
    """an init container has its own limit; what pod-resources lists of it while it runs"""
    World.need()
    wait = f"vgpu-example-fill --step 100MiB; until [ -e {MACHINE}/go ]; do sleep 0.1; done"
    World.create("stages", [share("main", 4000, 20)], init=[share("before", 2000, 10, command=("sh", "-c", wait))])
    card = World.uuids()[0]
    World.hami.place("stages", device(card, 2000, 10) + ";" + device(card, 4000, 20) + ";")
    text = wait_for("what the init container says", lambda: (
        lambda text: text if "then got" in text else None)(
            World.plane.kubectl("logs", "stages", "-c", "before", check=False).stdout))
    equal(filled(text)[0], 2000, "what the init container saw at its start")
    listed = pod_resources.listed().get(("default", "stages"))
    print(f"# while an init container runs, pod-resources lists of its Pod: {listed}")
    true(listed is not None and listed["main"]["nvidia.com/gpu"], listed)
    with open(MACHINE + "/go", "w", encoding="ascii"):
        pass
    World.wait_running("stages")
    print(f"# and when it has ended: {pod_resources.listed()[('default', 'stages')]}")
    uid = World.pod("stages")["metadata"]["uid"]
    ids = {name: one["ids"] for (owner, name), one in records().items() if owner == uid}
    print(f"# the IDs that Allocate had: {ids}")
    held_to("stages", 4000)
    succeeded("stages")


@test
def root_in_container():
    """root in a container cannot lift its limit"""
    run_one("root")
    tries = {
        "the grant is written": "echo > /etc/vgpu/limits.d/grant",
        "the grant is removed": "rm -f /etc/vgpu/limits.d/grant",
        "a file is put beside it": "echo > /etc/vgpu/limits.d/zzz",
        "it is mounted writable": "mount -o remount,rw /etc/vgpu/limits.d",
        "it is unmounted": "umount -l /etc/vgpu/limits.d",
        "the account is deleted": "rm -f /etc/vgpu/account",
        "the preload is written": f"echo > {PRELOAD}",
        "the preload is deleted": f"rm -f {PRELOAD}",
        "the library is written": "echo > /usr/local/vgpu/libvgpu.so",
        "the library is deleted": "rm -f /usr/local/vgpu/libvgpu.so",
    }
    for what, command in tries.items():
        true(World.run("root", "sh", "-c", command, check=False).returncode != 0, f"{what}: it could")
        held_to("root", 3000)
    environment = ["CUDA_DEVICE_MEMORY_LIMIT=100g", "CUDA_DEVICE_MEMORY_LIMIT_0=0",
                   "CUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp/other", "CUDA_DISABLE_CONTROL=true", "LD_PRELOAD=",
                   "VGPU_LEDGER=api", "CUDA_OVERSUBSCRIBE=true"]
    for variables in [[one] for one in environment] + [environment]:
        total, taken = fill("root", "main", "env", *variables)
        true(total == 3000 and taken <= 3000, f"{variables}: sees {total} MiB, got {taken}")
    for command in ("rm -rf /usr/local/vgpu/*.cache", "rm -rf /tmp/vgpulock/*", "vgpu set --memory 100g",
                    "for f in /usr/local/vgpu/*.cache /etc/vgpu/account; do : > $f; done"):
        World.run("root", "sh", "-c", command, check=False)
        held_to("root", 3000)


@test
def kubelet_restarts():
    """after a restart of the kubelet the plugin registers again; Pods run on, and new ones come"""
    run_one("before", 3000)
    count = World.plugin_log().count("is registered")
    World.plane.stop("kubelet", signal.SIGKILL)
    started = time.monotonic()
    World.node.start_kubelet()
    wait_for("the plugin has registered again", lambda: World.plugin_log().count("is registered") > count, seconds=120)
    print(f"# registered {time.monotonic() - started:.1f} s after the start of the kubelet")
    wait_for("the node is ready", World.node.is_ready)
    wait_for("the kubelet has the devices", lambda: World.allocatable() == SPLIT * CARDS_COUNT)
    wait_for("the kubelet knows its Pods", lambda: World.run("before", "true", check=False).returncode == 0)
    equal(restarts("before"), 0, "restarts of the Pod that ran")
    held_to("before", 3000)
    run_one("after", 5000)
    held_to("after", 5000)


@test
def plugin_restarts():
    """a restart of the plugin loses no allocation and no Pod; a container that starts again keeps its limit"""
    run_one("stays", 3000)
    uid = World.pod("stays")["metadata"]["uid"]
    record = records()[uid, "main"]
    old = World.daemon_pods()[0]["metadata"]["name"]
    World.api.call("DELETE", f"/api/v1/namespaces/kube-system/pods/{old}")
    wait_for("another Pod of the plugin runs", lambda: [
        one for one in World.daemon_pods() if one["metadata"]["name"] != old and one["status"]["phase"] == "Running"])
    World.wait_daemons()
    wait_for("the plugin has registered", lambda: "is registered" in World.plugin_log())
    wait_for("the kubelet has the devices", lambda: World.allocatable() == SPLIT * CARDS_COUNT)
    equal(records()[uid, "main"]["id"], record["id"], "the record")
    equal(restarts("stays"), 0, "restarts of the Pod that ran")
    held_to("stays", 3000)
    run_one("new", 5000)
    held_to("new", 5000)
    World.end_container("stays", "main")
    wait_for("the container has started again", lambda: restarts("stays") == 1)
    World.wait_running("stays")
    held_to("stays", 3000)


@test
def api_server_restarts():
    """while the API server is away Pods run on, and afterwards new ones come"""
    run_one("through", 3000)
    World.plane.stop("apiserver", signal.SIGKILL)
    time.sleep(5)
    World.plane.start_api_server()
    wait_for("the node is ready", World.node.is_ready)
    equal(restarts("through"), 0, "restarts of the Pod that ran")
    held_to("through", 3000)
    run_one("later", 5000)
    held_to("later", 5000)
    succeeded("later")
    time.sleep(LIVES_S)
    for name in ("through", "later"):
        uid = World.pod(name)["metadata"]["uid"]
        true(os.path.isdir(f"/usr/local/vgpu/containers/{uid}_main"), f"{name} lives, and its directory is removed")


@test
def metrics():
    """the monitor tells limit and use of a Pod by HAMi's names"""
    run_one("seen", 3000)
    sample = re.compile(r"^hami_vgpu_memory_limit_bytes\{(.*)\} ([0-9.e+]+)$", re.MULTILINE)

    def look():
        for labels, value in sample.findall(World.metrics()):
            if 'pod="seen"' in labels and 'container="main"' in labels and 'namespace="default"' in labels:
                return float(value)
        return None
    fill("seen")  # the library makes the region what the monitor reads
    equal(wait_for("the Pod is in the metrics", look, seconds=60), 3000 * (1 << 20), "the limit")


@test
def directories():
    """of a Pod that was deleted nothing is left on the node after five minutes"""
    run_one("gone", 3000)
    uid = World.pod("gone")["metadata"]["uid"]

    def left():
        grants = [one["id"] for (owner, _), one in records().items() if owner == uid]
        return glob.glob(f"/usr/local/vgpu/containers/*{uid}*") + grants
    time.sleep(LIVES_S)
    equal(len(left()), 2, f"directories while it lives: {left()}")
    World.delete("gone")
    wait_for("its directories have gone", lambda: not left(), seconds=500, pause=2)


def chosen(words):
    if words:
        tap.TESTS[2:] = [one for one in tap.TESTS[2:] if any(word in tap.sentence_of(one) for word in words)]


chosen(sys.argv[2:])
tap.main()
