# SPDX-License-Identifier: Apache-2.0
"""interop BUILD: vgpu-scheduler beside HAMi's plugin and HAMi's scheduler, which are played here by what their
protocol says, and with the real vgpu-device-plugin on simulated cards."""
import os
import sys
import time

from scheduler_world import (ALLOCATED, LOCK, NODE, PHASE, PLUGIN, REGISTER, ROOT, TIME, TO_ALLOCATE, Later, World,
                             make_node, make_pod, tap, until)

sys.path.insert(0, os.path.join(ROOT, "test/node"))
import plugin_bed  # noqa: E402

equal, true = tap.equal, tap.true
BIND_TIME = "hami.io/bind-time"
MERGE = "application/merge-patch+json"


def decode(text):
    """As Go's split by ";" has it: what follows the last one is a container, too."""
    return [[tuple(device.split(",")) for device in place.split(":") if "," in device] for place in text.split(";")]


def encode(places):
    return "".join("".join(",".join(device) + ":" for device in place) + ";" for place in places)


def hami_allocate(world, node, count):
    """HAMi 2.10's plugin at an Allocate: the Pod that the lock names; (name, devices) of the container, or a text."""
    lock = world.node(node)["metadata"]["annotations"].get(LOCK)
    if not lock:
        return "no lock"
    _, space, name = lock.split(",")
    said = world.pod(name, space)["metadata"]["annotations"]
    if said[NODE] != node or said[PHASE] not in ("allocating", "success") or not said[BIND_TIME].isdigit():
        return f"{name} is not bound here"
    places = decode(said[TO_ALLOCATE])
    place = next((p for p in places if any(device[1] == "NVIDIA" for device in p)), None)
    if place is None or len(place) != count:
        return "device number not matched"
    places[places.index(place)] = []
    text = encode(places)
    world.annotate("pods", space, name, **{TO_ALLOCATE: text})
    if "NVIDIA" not in text:
        world.annotate("pods", space, name, **{PHASE: "success"})
        world.annotate("nodes", "", node, **{LOCK: None})
    return name, place


def hami_bind(world, pod, node, devices, lock=True):
    """HAMi's scheduler: annotations at its filter, lock and phase at its bind, then the Binding."""
    name, now = pod["metadata"]["name"], str(int(time.time()))
    world.server.store.patch("pods", "default", name, MERGE, {"metadata": {
        "annotations": {NODE: node, TIME: now, TO_ALLOCATE: devices, ALLOCATED: devices}, "labels": {NODE: node}}})
    if lock:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        world.annotate("nodes", "", node, **{LOCK: f"{stamp},default,{name}"})
        world.annotate("pods", "default", name, **{PHASE: "allocating", BIND_TIME: now})
        world.server.store.bind("default", name, {"metadata": {"uid": pod["metadata"]["uid"]},
                                                  "target": {"kind": "Node", "name": node}})


def used(world, node, card=0):
    return world.metric(f'hami_gpu_memory_allocated_bytes{{node="{node}",device_uuid="GPU-{node}-{card}"') / 2**20


@tap.test
def hamis_plugin():
    """HAMi's plugin finds the Pod of each Allocate by the lock, container by container, and the next Pod follows"""
    with World([("nodes", make_node("n1", cards=2, ours=False))]) as world:
        pod = make_pod("a", memory=1000)
        pod["spec"]["initContainers"] = [{"name": "i", "resources": {}}]
        pod["spec"]["containers"] += [
            {"name": "plain", "resources": {}},
            {"name": "two", "resources": {"limits": {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "500"}}}]
        pod = world.create("pods", pod)
        equal(world.bind(pod, world.filter(pod, ["n1"])["NodeNames"][0]), "")
        text = world.said("a")[ALLOCATED]
        equal([len(place) for place in decode(text)], [0, 1, 0, 2, 0])
        equal(hami_allocate(world, "n1", 2), "device number not matched")
        name, devices = hami_allocate(world, "n1", 1)
        equal((name, [d[1:] for d in devices]), ("a", [("NVIDIA", "1000", "0")]))
        true(LOCK in world.node("n1")["metadata"]["annotations"], "the lock until the last container")
        true("contention" in world.place("b", ["n1"])[1], "b meanwhile")
        equal([d[2] for d in hami_allocate(world, "n1", 2)[1]], ["500", "500"])
        equal(world.said("a")[PHASE], "success")
        equal(world.said("a")[ALLOCATED], text)
        equal(world.bind(world.pod("b"), "n1"), "")
        equal(hami_allocate(world, "n1", 1)[0], "b")
        equal(used(world, "n1", 0) + used(world, "n1", 1), 3000)


@tap.test
def an_older_plugin():
    """the register of plugins up to 2.7 is read, and so is one of a model without NVIDIA in its name"""
    node = make_node("n1", ours=False)
    node["metadata"]["annotations"].update({
        REGISTER: "GPU-n1-0,10,10000,100,NVIDIA-NVIDIA A10,0,true,0,hami-core:GPU-n1-1,10,5000,100,NVIDIA-Tesla,1,true:",
        "hami.io/node-handshake": "Reported 2026-11-26 12:00:00.0 +0000 UTC"})
    with World([("nodes", node)]) as world:
        equal(world.place("a", ["n1"], memory=8000)[1], "")
        equal(world.said("a")[ALLOCATED], "GPU-n1-0,NVIDIA,8000,0:;")
        hami_allocate(world, "n1", 1)
        equal(world.place("b", ["n1"], memory=5000)[1], "")
        equal(world.said("b")[ALLOCATED], "GPU-n1-1,NVIDIA,5000,0:;")


@tap.test
def hamis_scheduler():
    """what HAMi's scheduler gives counts from its filter on, with the places that it leaves out, and its lock is kept"""
    with World([("nodes", make_node("n1", cards=2))]) as world:
        pods = {name: make_pod(name, memory=3000) for name in "abc"}
        pods["b"]["spec"]["containers"].insert(0, {"name": "plain", "resources": {}})
        pods = {name: world.create("pods", pod) for name, pod in pods.items()}
        hami_bind(world, pods["a"], "n1", "GPU-n1-0,NVIDIA,3000,0:;", lock=False)  # it is not bound yet
        until(lambda: used(world, "n1") == 3000, "a's memory")
        hami_bind(world, pods["b"], "n1", "GPU-n1-1,NVIDIA,3000,0:;")  # the first place is left out
        until(lambda: used(world, "n1", 1) == 3000, "b's memory")
        error = world.place("ours", ["n1"], memory=3000)[1]
        equal(error, "node n1 has been locked within 5m0s: node lock contention")
        until(lambda: LOCK in world.node("n1")["metadata"]["annotations"], "b's lock")
        hami_allocate(world, "n1", 1)
        equal(world.bind(world.pod("ours"), "n1"), "")
        true(LOCK not in world.node("n1")["metadata"]["annotations"], "a lock of ours on our node")
        error = world.place("large", ["n1"], memory=8000)[1]
        true("2/2 CardInsufficientMemory" in error, error)
        world.server.store.delete("pods", "default", "b", {"gracePeriodSeconds": 0})
        until(lambda: used(world, "n1", 1) in (0, 3000) and used(world, "n1") + used(world, "n1", 1) == 6000, "b's end")
        # A Pod that HAMi's scheduler has given up is chosen anew by ours.
        equal(world.filter(world.pod("a"), ["n1"])["NodeNames"], ["n1"])
        world.serve("ours")
        equal(world.bind(world.pod("a"), "n1"), "")
        until(lambda: used(world, "n1") + used(world, "n1", 1) == 6000, "a counts once")


@tap.test
def before_the_binding():
    """with --compat-filter-patch the annotations are there before the binding, and a failed patch reserves nothing"""
    with World([("nodes", make_node("n1"))], ["--compat-filter-patch"]) as world:
        pod = world.create("pods", make_pod("a"))
        equal(world.filter(pod, ["n1"])["NodeNames"], ["n1"])
        said = world.said("a")
        equal((said[NODE], said[ALLOCATED], said[TO_ALLOCATE]), ("n1", *["GPU-n1-0,NVIDIA,1000,0:;"] * 2))
        equal(world.pod("a")["metadata"]["labels"], {NODE: "n1"})
        true(PHASE not in said and "nodeName" not in world.pod("a")["spec"], "a binding")
        equal(world.bind(pod, "n1"), "")
        equal(world.said("a")[PHASE], "allocating")
        pod = world.create("pods", make_pod("b"))
        world.server.store.delete("pods", "default", "b", {})
        true("404" in world.filter(pod, ["n1"])["Error"], "the filter of a Pod that is gone")
        equal(used(world, "n1"), 1000)


@tap.test
def our_plugin():
    """with our plugin: register, filter, bind by one request, Allocate; Pods that differ get their own limits"""
    with plugin_bed.Node() as node:
        node.start()
        cards = [card["id"] for card in node.wait_registered(lambda cards: len(cards) == 2)]
        until(lambda: node.annotation(PLUGIN), "the plugin's name")
        ids = iter(node.wait_devices(lambda devices: len(devices) == 6))
        node.server.store.patch("nodes", "", "n1", MERGE, {"status": {"allocatable": {"nvidia.com/gpu": "6"}}}, "status")
        with World((), ["--gpu-scheduler-policy=spread"], server=node.server) as world:
            def allocate():
                since = node.kubelet.events.count()
                node.kubelet.do("allocate", resource="nvidia.com/gpu", containers=[[next(ids)]])
                answer = node.kubelet.wait("allocate", since)
                equal(answer["status"], "OK", f"status of {answer}")
                envs = answer["containers"][0]["envs"]
                return envs["CUDA_DEVICE_MEMORY_LIMIT_0"], envs["NVIDIA_VISIBLE_DEVICES"]

            pods = {}
            for name, memory in (("a", 1000), ("b", 2000), ("c", 2000)):
                pods[name] = world.create("pods", make_pod(name, memory=memory))
                until(lambda pod=pods[name]: world.filter(pod, ["n1"])["NodeNames"], "the node")
            equal(world.bind(pods["a"], "n1"), "")
            waiting = [Later(world.bind, pods[name], "n1") for name in "bc"]
            true(not waiting[0].is_over(0.5) and not waiting[1].is_over(), "b and c did not wait for a")
            equal(allocate()[0], "1000m")
            equal([later.get() for later in waiting], ["", ""])  # equal ones go together
            got = [allocate() for _ in "bc"]
            equal([memory for memory, _ in got], ["2000m", "2000m"])
            true({card for _, card in got} <= set(cards), "cards")
            for name in "abc":
                until(lambda name=name: world.said(name)[PHASE] == "success", f"{name}'s success")
            true(LOCK not in world.node("n1")["metadata"]["annotations"], "a node lock")


@tap.test
def limits_that_change():
    """a running Pod's wish for more goes from its annotation over the scheduler's consent to the plugin's grant"""
    key = "0123456789abcdef0123456789abcdef"
    with plugin_bed.Node() as node:
        node.write("key", key)
        plugin = node.start("--proof-key-file", node.path("key"), "--require-proof")
        node.wait_registered(lambda cards: len(cards) == 2)
        until(lambda: node.annotation(PLUGIN), "the plugin's name")
        first = next(iter(node.wait_devices(lambda devices: len(devices) == 6)))
        node.server.store.patch("nodes", "", "n1", MERGE, {"status": {"allocatable": {"nvidia.com/gpu": "6"}}}, "status")
        with World((), server=node.server, key=key) as world:
            pod = world.create("pods", make_pod("a"))
            until(lambda: world.filter(pod, ["n1"])["NodeNames"], "the node")
            equal(world.bind(pod, "n1"), "")
            since = node.kubelet.events.count()
            node.kubelet.do("allocate", resource="nvidia.com/gpu", containers=[[first]])
            equal(node.kubelet.wait("allocate", since)["status"], "OK")
            until(lambda: world.said("a")[PHASE] == "success", "its success")
            world.annotate("pods", "default", "a", **{"vgpu.io/limits": '{"c": {"gpumem": 5000}}'})
            plugin.wait_line("Pod default/a, container c: its limits have changed")
            until(lambda: sum(world.metric(f'hami_gpu_memory_allocated_bytes{{node="n1",device_uuid="{card["id"]}"')
                              for card in node.registered()) == 5000 * 2**20, "the scheduler's count")


tap.main()
