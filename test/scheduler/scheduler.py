# SPDX-License-Identifier: Apache-2.0
"""scheduler BUILD: vgpu-scheduler as a black box between HTTP clients and a fake API server."""
import base64
import datetime
import hashlib
import hmac
import json
import os
import socket
import subprocess
import time

from scheduler_world import (ALLOCATED, BUILD, LOCK, NODE, PLUGIN, REGISTER, TIME, TO_ALLOCATE, Later, World, api_server,
                             make_node, make_pod, tap, until)

equal, test, true = tap.equal, tap.test, tap.true
LIMITS, GRANT = "vgpu.io/limits", "vgpu.io/grant"
KEY = "0123456789abcdef0123456789abcdef"


def used(world, node="n1", card=0):
    return world.metric(f'hami_gpu_memory_allocated_bytes{{node="{node}",device_uuid="GPU-{node}-{card}"') / 2**20


@test
def a_filter_makes_no_request_and_a_bind_makes_one():
    """a filter makes no API request, and a bind makes one"""
    with World([("nodes", make_node("n1"))]) as world:
        pod = world.create("pods", make_pod("p"))
        until(lambda: world.metric("vgpu_scheduler_pods_waiting") == 1, "the Pod")
        before = len(world.requests("pods|nodes"))
        answer = world.filter(pod, ["n1"])
        equal(answer, {"Nodes": None, "NodeNames": ["n1"], "FailedNodes": None,
                       "FailedAndUnresolvableNodes": None, "Error": ""})
        equal(len(world.requests("pods|nodes")), before, "requests")
        equal(used(world), 1000)
        equal(world.bind(pod, "n1"), "")
        equal(world.requests("pods|nodes")[before:before + 1], ["POST /api/v1/namespaces/default/pods/p/binding"])
        said = world.said("p")
        equal(said[ALLOCATED], "GPU-n1-0,NVIDIA,1000,0:;")
        equal(said[TO_ALLOCATE], said[ALLOCATED])
        equal((said[NODE], said["hami.io/bind-phase"]), ("n1", "allocating"))
        true(abs(int(said[TIME]) - time.time()) < 600 and said["hami.io/bind-time"].isdigit(), "times")
        true("vgpu.io/proof" not in said, "a proof without a key")
        equal(world.pod("p")["spec"]["nodeName"], "n1")
        until(lambda: world.pod("p")["metadata"].get("labels", {}).get(NODE) == "n1", "the label")
        equal(used(world), 1000)
        equal(world.metric("vgpu_scheduler_pods_waiting"), 0)


@test
def forged_reservations():
    """what was reserved for a Pod that is not as the real one is not bound"""
    with World([("nodes", make_node("n1"))], key=KEY) as world:
        def forge(name, change):
            pod = world.create("pods", make_pod(name, memory=1000))
            until(lambda: world.metric("vgpu_scheduler_pods_waiting") == 1, "the Pod")
            forged = json.loads(json.dumps(pod))
            change(forged)
            answer = world.filter(forged, ["n1"])
            equal((answer["NodeNames"], answer["Error"]), (["n1"], ""), name)
            equal(world.bind(pod, "n1"), "", name)
            equal(world.said(name)[ALLOCATED], "GPU-n1-0,NVIDIA,1000,0:;", name)
            refits.append(world.metric("vgpu_scheduler_refits_total"))

        refits = []
        forge("more", lambda pod: pod["spec"]["containers"][0]["resources"]["limits"].update({"nvidia.com/gpumem": "5000"}))
        forge("space", lambda pod: pod["metadata"].update(namespace="other"))
        forge("name", lambda pod: pod["metadata"].update(name="other"))
        forge("wish", lambda pod: pod["metadata"].update(annotations={"nvidia.com/nouse-gpuuuid": "GPU-x"}))
        equal(refits, [1, 2, 3, 4])
        forge("same", lambda pod: pod["metadata"].update(labels={"app": "x"}))
        equal(refits[-1], 4, "a reservation that is right")
        used_of = lambda space: world.metric(f'hami_resource_quota_used{{namespace="{space}"')
        equal(used_of("other"), None, "what is charged to another namespace")


@test
def labels_that_come_with_the_binding():
    """a label that the API server takes from the Binding is not patched"""
    with World([("nodes", make_node("n1"))]) as world:
        world.server.store.binding_labels = True
        equal(world.place("p", ["n1"])[1], "")
        equal(world.place("q", ["n1"])[1], "")
        until(lambda: used(world) == 2000)
        equal([r for r in world.requests("pods") if r.startswith("PATCH")], [])


@test
def a_proof():
    """with a key the binding has a proof, and annotations without it do not count before it"""
    forged = {ALLOCATED: "GPU-n1-0,NVIDIA,9000,0:;", NODE: "n1"}
    with World([("nodes", make_node("n1")), ("pods", make_pod("forged", **forged))], key=KEY) as world:
        equal(used(world), 0)
        pod, error = world.place("p", ["n1"], memory=9000)
        equal(error, "")
        text = world.said("p")[ALLOCATED]
        message = b"vgpu.io/proof/1\n"
        for part in (pod["metadata"]["uid"], "n1", text):
            message += b"%d:%s\n" % (len(part), part.encode())
        equal(world.said("p")["vgpu.io/proof"], hmac.new(KEY.encode(), message, hashlib.sha256).hexdigest())


@test
def named_but_never_bound():
    """annotations of a Pod that is not bound hold devices for five minutes from their time, or the Pod's creation"""
    def named(name, at, age=0):
        pod = make_pod(name, **{ALLOCATED: "GPU-n1-0,NVIDIA,1000,0:;", NODE: "n1", **({TIME: str(int(at))} if at else {})})
        made = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=age)
        pod["metadata"]["creationTimestamp"] = made.strftime("%Y-%m-%dT%H:%M:%SZ")
        return "pods", pod

    now = time.time()
    pods = [named("old", now - 1000), named("future", now + 10**6, 1000), named("no-time", 0, 1000), named("bad", -1, 400),
            named("soon", now - 285), named("new", now, 1000), named("new-no-time", 0)]
    with World([("nodes", make_node("n1")), *pods]) as world:
        true(used(world) in (2000, 3000), used(world))
        until(lambda: used(world) == 2000, "the end of the one that is soon over")
        world.annotate("pods", "default", "soon", other="x")
        world.annotate("pods", "default", "no-time", other="x")
        equal(world.place("p", ["n1"], memory=8000)[1], "")


@test
def another_key():
    """a key that replaces the one before is used without a restart, and a bad one is not"""
    with World([("nodes", make_node("n1"))], key=KEY) as world:
        path = os.path.join(world.directory, "key")

        def write(text):
            with open(path + ".new", "w", encoding="ascii") as file:
                file.write(text)
            os.replace(path + ".new", path)

        def proof(name, key):
            message = b"vgpu.io/proof/1\n"
            for part in (world.pod(name)["metadata"]["uid"], "n1", world.said(name)[ALLOCATED]):
                message += b"%d:%s\n" % (len(part), part.encode())
            return hmac.new(key.encode(), message, hashlib.sha256).hexdigest()

        write("short")
        until(lambda: any("stays as it was" in line for line in world.lines), "the refusal")
        equal(world.place("p", ["n1"])[1], "")
        equal(world.said("p")["vgpu.io/proof"], proof("p", KEY))
        write("another key, another key")
        until(lambda: any("another key from now on" in line for line in world.lines), "the other key")
        equal(world.place("q", ["n1"])[1], "")
        equal(world.said("q")["vgpu.io/proof"], proof("q", "another key, another key"))


@test
def limits():
    """a running Pod's wish for more is granted where there is room, counts from then on, and after a restart"""
    def proof(name, text):
        message = b"vgpu.io/proof/1\n"
        for part in (world.pod(name)["metadata"]["uid"], "n1", text):
            message += b"%d:%s\n" % (len(part), part.encode())
        return hmac.new(KEY.encode(), message, hashlib.sha256).hexdigest()

    def wish(name, **of_c):
        text = json.dumps({"c": of_c})
        world.annotate("pods", "default", name, **{LIMITS: text})
        return text

    def told(reason):
        return sum(e.get("count", 1) for e in world.server.store.items("events") if e["reason"] == reason)

    quota = {"metadata": {"name": "q", "namespace": "default"},
             "spec": {"hard": {"limits.nvidia.com/gpumem": "9500"}}}
    with World([("nodes", make_node("n1")), ("resourcequotas", quota)], key=KEY) as world:
        for name in "ab":
            equal(world.place(name, ["n1"], memory=3000)[1], "")
            world.serve(name)
        text = wish("a", gpumem=6000)
        until(lambda: world.said("a").get(GRANT) == proof("a", text), "the consent")
        until(lambda: used(world) == 9000, "what a has now")
        until(lambda: told("LimitsGranted") == 1, "the event")
        equal(world.said("a")[ALLOCATED], "GPU-n1-0,NVIDIA,3000,0:;")
        true("ResourceQuotaNotFit" in world.place("c", ["n1"], memory=2000)[1], "c does not fit")
        wish("b", gpumem=3600)  # the card has room, the quota has none
        until(lambda: told("LimitsNotGranted") == 1, "the refusal")
        world.annotate("pods", "default", "b", other="x")
        world.kill()
        world.start()
        until(lambda: used(world) == 9000, "what a has after a restart")
        until(lambda: told("LimitsNotGranted") == 2, "the refusal of the scheduler after")
        true(GRANT not in world.said("b"), "b's consent")
        world.annotate("pods", "default", "b", **{LIMITS: "{", GRANT: world.said("a")[GRANT]})
        until(lambda: told("LimitsNotGranted") == 3, "the refusal of what is no JSON")
        world.annotate("pods", "default", "b", **{LIMITS: text})  # another Pod's wish with its consent
        until(lambda: told("LimitsNotGranted") == 4, "the refusal of another Pod's consent")
        equal(used(world), 9000)
        wish("a", gpumem=1000)  # less: what was assigned is kept for it
        until(lambda: used(world) == 6000, "what a was assigned")
        wish("b", gpumem=3400)
        until(lambda: used(world) == 6400, "b's wish")
        world.server.faults.append(api_server.Fault("PATCH", "/pods/a$", status=409, count=2))
        text = wish("a", gpumem=3500, gpucores=50)  # there are no cores to raise: it has no limit
        until(lambda: world.said("a").get(GRANT) == proof("a", text), "the consent after conflicts")
        world.server.store.delete("pods", "default", "a", {"gracePeriodSeconds": 0})
        until(lambda: used(world) == 3400, "a's end")


@test
def mig_instances():
    """instances that HAMi's plugin has made on demand are shown, those without identity are not"""
    instance = {"containerIndex": 0, "deviceIndex": 0, "gpuUUID": "GPU-n1-0", "profile": "2g.10gb",
                "placement": {"start": 2, "size": 2}}
    made = dict(instance, migUUID="MIG-1", gpuInstanceID=4, computeInstanceID=0)
    text = json.dumps([made, instance, {"gpuUUID": "x"}, 7])
    pods = [make_pod(name, **{NODE: "n1", ALLOCATED: "GPU-n1-0,NVIDIA,1000,0:;", "hami.io/vgpu-mig-allocations": value})
            for name, value in (("p", text), ("q", "["))]
    for pod in pods:
        pod["spec"]["nodeName"] = "n1"
    with World([("nodes", make_node("n1")), *(("pods", pod) for pod in pods)], ["--legacy-metrics"]) as world:
        lines = [line for line in world.get("/metrics", world.metrics_port)[1].splitlines()
                 if line.startswith(("hami_node_gpu_mig_instance_info", "nodeGPUMigInstance"))]
        equal(lines, ['hami_node_gpu_mig_instance_info{node="n1",device_uuid="GPU-n1-0",device_index="0",mig_uuid="MIG-1",'
                      'profile="2g.10gb",gpu_instance_id="4",compute_instance_id="0",placement_start="2",'
                      'placement_size="2",zone="vGPU"} 1',
                      'nodeGPUMigInstance{nodeid="n1",deviceuuid="GPU-n1-0",deviceidx="0",migname="2g.10gb-4",zone="vGPU"} 1'])


@test
def devices_come_back():
    """a Pod gives its devices back when it ends or goes, and holds them while it terminates"""
    with World([("nodes", make_node("n1"))]) as world:
        for name in "abc":
            equal(world.place(name, ["n1"], memory=3000)[1], "")
        until(lambda: used(world) == 9000)
        world.server.store.patch("pods", "default", "a", "application/merge-patch+json",
                                 {"status": {"phase": "Succeeded"}}, "status")
        until(lambda: used(world) == 6000)
        world.server.store.delete("pods", "default", "b", {"gracePeriodSeconds": 0})
        until(lambda: used(world) == 3000)
        world.serve("c")
        true("CardInsufficientMemory" in world.place("d", ["n1"], memory=7001)[1], "d does not fit")
        equal(world.place("e", ["n1"], memory=7000)[1], "")


@test
def no_reservation():
    """a bind without a reservation chooses again, or refuses"""
    with World([("nodes", make_node("n1")), ("nodes", make_node("n2"))]) as world:
        pod = world.create("pods", make_pod("p", memory=6000))
        equal(world.filter(pod, ["n1", "n2"])["NodeNames"], ["n1"])
        equal(world.bind(pod, "n2"), "")
        equal(world.said("p")[ALLOCATED], "GPU-n2-0,NVIDIA,6000,0:;")
        equal((used(world, "n1"), used(world, "n2")), (0, 6000))
        other = world.create("pods", make_pod("q", memory=6000))
        error = world.bind(other, "n2")
        equal(error, "the Pod does not fit any more: 1/1 CardInsufficientMemory")
        true("nodeName" not in world.pod("q")["spec"], "q is not bound")
        plain = world.create("pods", make_pod("plain", cards=0))
        equal(world.bind(plain, "n1"), "")
        true(ALLOCATED not in world.said("plain"), "no devices")
        gone = make_pod("gone")
        gone["metadata"]["uid"] = "u"
        true("404" in world.bind(gone, "n1"), "a Pod that is gone")


@test
def a_restart():
    """a scheduler that is killed knows all after its start, bound a moment ago or long"""
    with World([("nodes", make_node("n1", count=100))]) as world:
        total = 0
        for number in range(6):
            equal(world.place(f"p{number}", ["n1"])[1], "")
            total += 1000
            if number % 2:
                world.kill()
                world.start()
                equal(used(world), total)
        pod = world.create("pods", make_pod("late"))
        equal(world.filter(pod, ["n1"])["NodeNames"], ["n1"])
        world.kill()
        world.start()
        equal(used(world), total, "a reservation that is gone")
        equal(world.bind(pod, "n1"), "")
        equal(used(world), total + 1000)


@test
def lost_answers():
    """a binding whose answer is lost counts once, and one that is refused gives its devices back"""
    with World([("nodes", make_node("n1"))]) as world:
        world.server.faults.append(api_server.Fault("POST", "/binding", cut="after"))
        equal(world.place("p", ["n1"])[1], "")
        until(lambda: used(world) == 1000)
        world.server.faults.append(api_server.Fault("POST", "/binding", status=403))
        true("403" in world.place("q", ["n1"])[1], "q is refused")
        equal(used(world), 1000)
        world.server.faults.append(api_server.Fault("POST", "/binding", count=2, status=503))
        equal(world.place("r", ["n1"])[1], "")
        until(lambda: used(world) == 2000)


@test
def while_it_is_bound():
    """nothing takes the place of a reservation while its Binding is under way"""
    with World([("nodes", make_node("n1"))]) as world:
        pod = world.create("pods", make_pod("p", memory=6000))
        equal(world.filter(pod, ["n1"])["NodeNames"], ["n1"])
        world.server.faults.append(api_server.Fault("POST", "/binding", delay=3))
        binds = Later(world.bind, pod, "n1")
        until(lambda: world.requests("/binding"), "the Binding")
        equal(world.filter(pod, ["n1"])["Error"], "the Pod is being bound to node n1 already")
        true("being bound" in world.bind(pod, "n1"), "a second bind")
        true("CardInsufficientMemory" in world.place("q", ["n1"], memory=6000)[1], "q fits beside p")
        equal(binds.get(), "")
        equal(used(world), 6000)
        world.serve("p")
        world.server.faults.append(api_server.Fault("POST", "/binding", status=403))
        true("403" in world.place("r", ["n1"])[1], "r is refused")
        equal(world.filter(world.pod("r"), ["n1"])["NodeNames"], ["n1"], "a filter after a bind that failed")


@test
def bound_by_somebody_else():
    """a Pod that is bound without annotations gives back what was reserved for it"""
    with World([("nodes", make_node("n1"))]) as world:
        pod = world.create("pods", make_pod("p"))
        equal(world.filter(pod, ["n1"])["NodeNames"], ["n1"])
        equal(used(world), 1000)
        world.server.store.bind("default", "p", {"target": {"kind": "Node", "name": "n1"}})
        until(lambda: used(world) == 0, "the end of the reservation")


@test
def successors():
    """what is written to a Pod does not come to another one that has its name since"""
    with World([("nodes", make_node("n1"))], ["--compat-filter-patch=true"]) as world:
        old = world.create("pods", make_pod("p"))
        world.server.store.delete("pods", "default", "p", {"gracePeriodSeconds": 0})
        new = world.create("pods", make_pod("p"))
        true("409" in world.filter(old, ["n1"])["Error"], "the patch of a filter")
        equal(world.said("p"), {})
        equal(used(world), 0)
        equal(world.filter(new, ["n1"])["NodeNames"], ["n1"])
        equal(world.bind(new, "n1"), "")
        until(lambda: world.pod("p")["metadata"].get("labels", {}).get(NODE) == "n1", "the label")
        patches = [json.loads(e["body"]) for e in world.server.log() if e["method"] == "PATCH" and e["path"].endswith("/p")]
        equal([patch["metadata"]["uid"] for patch in patches], [pod["metadata"]["uid"] for pod in (old, new)])
    with World([("nodes", make_node("n1"))]) as world:
        equal(world.place("p", ["n1"])[1], "")
        until(lambda: world.pod("p")["metadata"].get("labels", {}).get(NODE) == "n1", "the label")
        patches = [json.loads(e["body"]) for e in world.server.log() if e["method"] == "PATCH" and e["path"].endswith("/p")]
        equal([patch["metadata"]["uid"] for patch in patches], [world.pod("p")["metadata"]["uid"]])


@test
def the_node_lock():
    """HAMi's node lock is taken where the plugin is HAMi's, and only there"""
    objects = [("nodes", make_node("n1", ours=False)), ("nodes", make_node("n2"))]
    with World(objects) as world:
        equal(world.place("a", ["n1"])[1], "")
        true(world.node("n1")["metadata"]["annotations"][LOCK].endswith(",default,a"), "the lock's value")
        error = world.place("b", ["n1"])[1]
        equal(error, "node n1 has been locked within 5m0s: node lock contention")
        equal(world.place("c", ["n2"])[1], "")
        true(LOCK not in world.node("n2")["metadata"]["annotations"], "no lock on n2")
        world.server.store.delete("pods", "default", "a", {"gracePeriodSeconds": 0})
        equal(world.bind(world.pod("b"), "n1"), "")
        lock = lambda: world.node("n1")["metadata"]["annotations"][LOCK]
        true(lock().endswith(",default,b"), "taken over")
        world.server.store.patch("pods", "default", "b", "application/merge-patch+json",
                                 {"status": {"phase": "Failed"}}, "status")
        equal(world.place("d", ["n1"])[1], "", "after a Pod that has ended")
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        world.annotate("nodes", "", "n1", **{LOCK: now + ",default,c"})
        equal(world.place("e", ["n1"])[1], "", "after a Pod that is bound to n2")
        true(lock().endswith(",default,e"), "e's lock")


@test
def pods_that_differ():
    """Pods that plugins could take for one another are not bound to a node before the first is served"""
    with World([("nodes", make_node(name, cards=2)) for name in ("n1", "n2")]) as world:
        for name in ("a", "b"):
            equal(world.place(name, ["n1"])[1], "", "equal Pods at once")
        equal(world.place("two", ["n1"], cards=2, memory=500)[1], "", "another number of devices")
        waits = Later(world.place, "c", ["n1"])
        equal(waits.get()[1], "", "a third one")
        pods = {name: world.create("pods", make_pod(name, memory=memory)) for name, memory in
                (("d", 2000), ("e", 1000), ("f", 2000))}
        for pod in pods.values():
            equal(world.filter(pod, ["n1"])["NodeNames"], ["n1"])
        differs = Later(world.bind, pods["d"], "n1")
        true(not differs.is_over(0.5), "d did not wait")
        behind = Later(world.bind, pods["e"], "n1")
        true(not behind.is_over(0.3), "e has overtaken d")
        equal(world.place("g", ["n2"], memory=2000)[1], "", "another node")
        world.serve("a")
        world.server.store.delete("pods", "default", "b", {"gracePeriodSeconds": 0})
        true(not differs.is_over(0.3), "d did not wait for c")
        world.kill()
        world.start()
        again = Later(world.bind, pods["d"], "n1")
        true(not again.is_over(0.5), "d did not wait after a restart")
        world.server.store.patch("pods", "default", "c", "application/merge-patch+json",
                                 {"status": {"phase": "Failed"}}, "status")
        equal(again.get(), "")
        equal(world.pod("d")["spec"]["nodeName"], "n1")
        waits = Later(world.bind, pods["e"], "n1")
        true(not waits.is_over(0.3), "e did not wait")
        world.server.store.delete("pods", "default", "d", {})  # it terminates
        equal(waits.get(), "")
        waits = Later(world.bind, pods["f"], "n1")
        true(not waits.is_over(0.3), "f did not wait")
        world.annotate("nodes", "", "n1", **{PLUGIN: None})
        equal(waits.get(), "", "by the lock, where the plugin is HAMi's now")
        true(world.node("n1")["metadata"]["annotations"][LOCK].endswith(",default,f"), "the lock's value")


@test
def beside_others():
    """under binpack a Pod goes to the fullest node on which it need not wait for one in flight that differs"""
    nodes = [("nodes", make_node(name)) for name in ("n1", "n2", "n3")]
    names = ["n1", "n2", "n3"]
    with World(nodes) as world:
        def chosen(name, memory, among=tuple(names)):
            return world.filter(world.create("pods", make_pod(name, memory=memory)), list(among))["NodeNames"]
        equal(world.place("a", names, memory=3000)[1], "")
        equal(world.pod("a")["spec"]["nodeName"], "n1")
        equal(chosen("equal", 3000), ["n1"], "an equal one goes along")
        equal(chosen("b", 2000), ["n2"], "one that differs goes elsewhere")
        equal(chosen("only", 1000, ["n1"]), ["n1"], "where there is no other node it waits there")
        waits = Later(world.bind, world.pod("only"), "n1")
        true(not waits.is_over(0.3), "it did not wait")
        equal(chosen("too", 3000), ["n2"], "a bind that waits is in the way, too")
        equal(world.metric("vgpu_scheduler_pods_in_flight"), 1, "Pods in flight")
        world.serve("a")
        equal(waits.get(), "")
        world.serve("only")
        until(lambda: world.metric("vgpu_scheduler_pods_in_flight") == 0, "the end of the flight")
        until(lambda: chosen("late" + str(time.monotonic_ns()), 2500) == ["n1"], "the fullest node again")


@test
def spread_beside_others():
    """under spread the emptiest node is taken, whoever is in flight there"""
    with World([("nodes", make_node(name)) for name in ("n1", "n2")], ["--node-scheduler-policy=spread"]) as world:
        equal(world.place("a", ["n1"], memory=3000)[1], "")
        equal(world.place("b", ["n2"], memory=9000)[1], "")
        equal(world.filter(world.create("pods", make_pod("c", memory=2000)), ["n1", "n2"])["NodeNames"], ["n1"])


@test
def a_dead_plugin():
    """a Pod that is never served holds others up for a while only"""
    with World([("nodes", make_node("n1"))], ["--allocate-timeout=1s"]) as world:
        equal(world.place("a", ["n1"])[1], "")
        start = time.monotonic()
        waits = Later(world.place, "b", ["n1"], 2000)
        until(lambda: waits.is_over() or world.metric("vgpu_scheduler_binds_waiting") == 1, "the wait")
        equal(waits.get()[1], "")
        true(time.monotonic() - start < 30, "b waited long")
        equal(world.metric("vgpu_scheduler_binds_waiting"), 0)
        world.annotate("pods", "default", "a", other="x")  # it does not take off again
        time.sleep(1.2)
        equal(world.place("c", ["n1"], memory=3000)[1], "")


@test
def containers_that_differ():
    """equal Pods whose containers differ among themselves are kept apart, too"""
    def twin(name):
        pod = make_pod(name)
        pod["spec"]["containers"].append({"name": "d", "image": "i", "resources": {
            "limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "2000"}}})
        return world.create("pods", pod)

    with World([("nodes", make_node("n1"))]) as world:
        first, second = twin("a"), twin("b")
        for pod in (first, second):
            equal(world.filter(pod, ["n1"])["NodeNames"], ["n1"])
        equal(world.bind(first, "n1"), "")
        waits = Later(world.bind, second, "n1")
        true(not waits.is_over(0.5), "b did not wait")
        said = world.said("a")[TO_ALLOCATE]
        world.annotate("pods", "default", "a", **{TO_ALLOCATE: ";" + said.split(";", 1)[1]})
        true(not waits.is_over(0.3), "b did not wait for a's second container")
        world.serve("a")
        equal(waits.get(), "")


@test
def a_group_waits_for_the_lock():
    """Pods of a group wait for a node's lock, others fail at once; the lock of HAMi's scheduler counts on our nodes"""
    objects = [("nodes", make_node("n1", ours=False)),
               ("nodes", make_node("n2", **{LOCK: time.strftime("%Y-%m-%dT%H:%M:%SZ,default,hami", time.gmtime())})),
               ("pods", make_pod("hami", cards=0))]
    with World(objects, ["--node-lock-retry-timeout=2s"]) as world:
        def grouped(name, **spec):
            pod = make_pod(name)
            if spec:
                pod["spec"].update(spec)
            else:
                pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "g"}
            pod = world.create("pods", pod)
            equal(world.filter(pod, ["n1"])["NodeNames"], ["n1"])
            return pod

        equal(world.place("a", ["n1"])[1], "")
        waits = Later(world.bind, grouped("b"), "n1")
        true(not waits.is_over(0.3), "b did not wait")
        world.annotate("nodes", "", "n1", **{LOCK: None})
        equal(waits.get(), "")
        true(world.node("n1")["metadata"]["annotations"][LOCK].endswith(",default,b"), "b's lock")
        equal(world.bind(grouped("c", schedulingGroup={"podGroupName": "g"}), "n1"),
              "timed out after 2s waiting for node n1 to be unlocked: node lock contention")
        error = world.place("d", ["n2"])[1]
        equal(error, "node n2 has been locked within 5m0s: node lock contention")
        world.server.store.delete("pods", "default", "hami", {})
        equal(world.bind(world.pod("d"), "n2"), "")


@test
def a_lock_after_a_failure():
    """the node lock is given back when the binding fails"""
    with World([("nodes", make_node("n1", ours=False))]) as world:
        world.server.faults.append(api_server.Fault("POST", "/binding", status=403))
        true("403" in world.place("a", ["n1"])[1], "refused")
        until(lambda: LOCK not in world.node("n1")["metadata"]["annotations"], "the lock's end")


@test
def a_lock_on_a_busy_node():
    """other writes of a node hinder neither the taking nor the release of its lock"""
    with World([("nodes", make_node("n1", ours=False))]) as world:
        lock = lambda: world.node("n1")["metadata"]["annotations"].get(LOCK)
        world.server.faults.append(api_server.Fault("PATCH", "nodes/n1", status=409, count=3))
        equal(world.place("a", ["n1"])[1], "")
        true(lock().endswith(",default,a"), "a's lock")
        world.annotate("nodes", "", "n1", **{LOCK: None})
        world.server.faults.append(api_server.Fault("POST", "b/binding", status=403, delay=2))
        binds = Later(world.place, "b", ["n1"])
        until(lambda: world.requests("b/binding"), "the Binding")
        true(lock().endswith(",default,b"), "b's lock")
        world.annotate("nodes", "", "n1", other="x")
        true("403" in binds.get()[1], "b is refused")
        until(lambda: not lock(), "the lock's end")
        world.server.faults.append(api_server.Fault("POST", "c/binding", status=403, delay=2))
        binds = Later(world.place, "c", ["n1"])
        until(lambda: world.requests("c/binding"), "the Binding")
        taken = time.strftime("%Y-%m-%dT%H:%M:%SZ,default,other", time.gmtime())
        world.annotate("nodes", "", "n1", **{LOCK: taken})
        true("403" in binds.get()[1], "c is refused")
        until(lambda: [r for r in world.requests("nodes/n1") if r.startswith("PATCH")][6:], "the release")
        equal(lock(), taken, "another one's lock")
        world.annotate("nodes", "", "n1", **{LOCK: time.strftime("%Y-%m-%dT%H:%M:%SZ,default,d", time.gmtime())})
        world.server.faults.append(api_server.Fault("POST", "d/binding", status=403))
        true("403" in world.place("d", ["n1"])[1], "d is refused")
        until(lambda: not lock(), "the end of a lock that d had before")


@test
def locks_of_predecessors():
    """a lock that is older than the Pod of its name is that of an earlier Pod"""
    old = time.strftime("%Y-%m-%dT%H:%M:%SZ,default,s", time.gmtime(time.time() - 100))
    with World([("nodes", make_node("n1", ours=False, **{LOCK: old}))]) as world:
        lock = lambda: world.node("n1")["metadata"]["annotations"].get(LOCK)
        world.create("pods", make_pod("s"))
        equal(world.place("b", ["n1"])[1], "", "the lock of a Pod s that is gone")
        true(lock().endswith(",default,b"), "b's lock")
        world.annotate("nodes", "", "n1", **{LOCK: old})
        world.server.store.delete("pods", "default", "s", {"gracePeriodSeconds": 0})
        equal(world.place("s", ["n1"])[1], "")
        true(lock() != old and lock().endswith(",default,s"), "s has a lock of its own")


@test
def nodes_change():
    """a node whose devices go, or whose kubelet offers none, is not registered"""
    with World([("nodes", make_node("n1"))]) as world:
        pod = world.create("pods", make_pod("p"))
        world.server.store.patch("nodes", "", "n1", "application/merge-patch+json",
                                 {"status": {"allocatable": {"nvidia.com/gpu": "0"}}}, "status")
        until(lambda: world.filter(pod, ["n1"])["FailedNodes"] == {"n1": "node unregistered"}, "the node's end")
        world.server.store.patch("nodes", "", "n1", "application/merge-patch+json",
                                 {"status": {"allocatable": {"nvidia.com/gpu": "5"}}}, "status")
        until(lambda: world.filter(pod, ["n1"])["NodeNames"] == ["n1"], "the node's return")
        world.annotate("nodes", "", "n1", **{"hami.io/device-cordon": "GPU-n1-0"})
        until(lambda: world.filter(pod, ["n1"])["FailedNodes"] == {"n1": "1/1 CardCordoned"}, "the cordon")
        world.annotate("nodes", "", "n1", **{REGISTER: "{", "hami.io/device-cordon": None})
        until(lambda: world.filter(pod, ["n1"])["FailedNodes"] == {"n1": "node unregistered"}, "the bad text")


@test
def quotas_change():
    """quotas come, change and go"""
    quota = {"metadata": {"name": "q", "namespace": "default"},
             "spec": {"hard": {"limits.nvidia.com/gpumem": "500"}}}
    with World([("nodes", make_node("n1"))]) as world:
        pod = world.create("pods", make_pod("p"))
        equal(world.filter(pod, ["n1"])["NodeNames"], ["n1"])
        world.create("resourcequotas", quota)
        until(lambda: world.filter(pod, ["n1"])["FailedNodes"] == {"n1": "1/1 ResourceQuotaNotFit"}, "the quota")
        world.server.store.delete("resourcequotas", "default", "q", {})
        until(lambda: world.filter(pod, ["n1"])["NodeNames"] == ["n1"], "the quota's end")


@test
def all_nodes():
    """--filter-all-nodes answers with all nodes that fit, and a bind may take another one"""
    objects = [("nodes", make_node(name, memory=memory)) for name, memory in
               (("n1", 10000), ("n2", 500), ("n3", 10000))]
    with World(objects, ["--filter-all-nodes"]) as world:
        pod = world.create("pods", make_pod("p"))
        equal(world.filter(pod, ["n3", "n2", "n1"])["NodeNames"], ["n3", "n1"])
        equal(world.bind(pod, "n3"), "")
        equal((used(world, "n1"), used(world, "n3")), (0, 1000))


@test
def hostile_requests():
    """requests that are wrong get an error and harm nobody"""
    with World([("nodes", make_node("n1"))]) as world:
        for body in ("", "{", "[]", '"x"', '{"Pod": 1}', '{"Pod": {}, "NodeNames": 1}', '{"Pod": {}, "NodeNames": [1]}',
                     '{"Pod":{"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":2147483647}}}]}}}',
                     "[" * 100000):
            for path in ("/filter", "/bind"):
                status, text = world.request("POST", path, body)
                equal(status, 200)
                true(json.loads(text)["Error"], f"{path}: no error for {body[:60]}")
        equal(world.request("GET", "/filter")[0], 405)
        equal(world.get("/healthz")[0], 200)
        equal(world.post("/filter", {"pod": make_pod("x", cards=0), "nodenames": ["b", "a"], "NODES": None})["NodeNames"],
              ["b", "a"])


@test
def many_values():
    """bodies of very many small values take little memory, and a filter of 5,000 long names is answered"""
    with World([("nodes", make_node("n1"))], ["--extender-bind=127.0.0.1:0"]) as world:
        def peak_mib():
            with open(f"/proc/{world.process.pid}/status", encoding="ascii") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024

        before = peak_mib()
        names = [f"{i:06}" + "x" * 247 for i in range(4999)] + ["n1"]
        answer = world.filter(make_pod("p", **{"large": "y" * (1 << 20)}), names)
        equal(answer["NodeNames"], ["n1"])
        for body in ("[" + "{}," * (1 << 20) + "{}]", '{"x":[' + "[]," * (1 << 20) + "[]]}",
                     "{" + ",".join(f'"{i}":{{}}' for i in range(290000)) + "}"):
            status, text = world.request("POST", "/filter", body, world.extender_port)
            equal(status, 200)
            true("JSON values" in json.loads(text)["Error"], text[:200])
            for path in ("/webhook", "/validate"):
                status, text = world.request("POST", path, body)
                true(status == 200 and "JSON values" in text or status == 413, f"{status} {text[:200]}")
        true(peak_mib() < before + 100, f"{peak_mib()} MiB, {before} at first")


@test
def flags():
    """each flag of HAMi's scheduler is accepted, with one line where it means nothing here"""
    given = ["--device-config-file=", "--default-mem=0", "--default-cores=0", "--default-gpu=1", "--kube-qps=5.5",
             "--kube-burst=10", "--kube-timeout=30", "--node-lock-timeout=5m", "--node-lock-retry-timeout=28s", "--profiling",
             "--force-overwrite-default-scheduler=true", "--legacy-metrics=false", "--leader-elect=false", "--enable-ascend=true",
             "--enable-iluvatar", "--leader-elect-resource-name=hami-scheduler", "--leader-elect-resource-namespace=kube-system",
             "--resource-name=nvidia.com/vgpu", "--resource-mem=nvidia.com/gpumem", "--resource-cores=nvidia.com/gpucores",
             "--resource-mem-percentage=nvidia.com/gpumem-percentage", "--resource-priority=nvidia.com/priority",
             "--overwrite-env=true", "--cambricon-mlu-name=cambricon.com/vmlu", "--dcu-name=x", "--metax-vcore", "x",
             "--scheduler-name=hami-scheduler", "--node-scheduler-policy=binpack", "--gpu-scheduler-policy=spread",
             "--node-label-selector=gpu=on,zone=a", "--debug", "-v=4", "--logtostderr=true", "--add_dir_header=false"]
    node = make_node("n1")
    node["metadata"]["labels"] = {"gpu": "on", "zone": "a"}
    node["status"]["allocatable"] = {"nvidia.com/vgpu": "10"}
    with World([("nodes", node), ("nodes", make_node("other"))], given) as world:
        unused = [line for line in world.lines if "settings:" in line]
        equal(len(unused), 12, "\n".join(unused))
        pod = make_pod("p", cards=0)
        pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/vgpu": 1, "nvidia.com/gpumem": 500}}
        pod = world.create("pods", pod)
        equal(world.filter(pod, ["n1", "other"])["NodeNames"], ["n1"])
        equal(world.bind(pod, "n1"), "")
    for flag, text in (("--node-scheduler-policy=best", "binpack spread"), ("--http_bind=nowhere", "nowhere"),
                       ("--gpu-scheduler-policy=fast", "topology-aware"), ("--nonsense=1", "nonsense"),
                       ("--leader-elect=perhaps", "perhaps"), ("--proof-key-file=/nowhere", "/nowhere")):
        ended = subprocess.run([os.path.join(BUILD, "src/daemon/vgpu-scheduler"), "--http_bind=127.0.0.1:0",
                                "--metrics-bind-address=127.0.0.1:0", flag], stderr=subprocess.PIPE, text=True, timeout=60,
                               env={**os.environ, "KUBECONFIG": "/nowhere"}, check=False)
        true(ended.returncode in (1, 2) and text in ended.stderr and len(ended.stderr.splitlines()) == 1, ended.stderr)


@test
def slow_clients():
    """clients that begin requests and do not end them hold nobody else, and requests have a largest size"""
    with World([("nodes", make_node("n1"))]) as world:
        pod, held = world.create("pods", make_pod("p")), []
        address = ("127.0.0.1", world.port)
        for number in range(1100):
            connection = socket.create_connection(address, timeout=60, source_address=("127.0.0.2", 0))
            try:
                connection.sendall(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"[:number % 60 + 1])
            except OSError:
                pass  # it is one too many
            held.append(connection)
        start = time.monotonic()
        for _ in range(20):
            equal(world.filter(pod, ["n1"])["NodeNames"], ["n1"])
        equal(world.get("/readyz")[0], 200)
        true(time.monotonic() - start < 5, "others wait")
        status = 413
        try:
            status = world.request("POST", "/filter", " " * ((4 << 20) + 1))[0]
        except OSError:
            pass  # it was cut while it was sent
        equal(status, 413)
        equal(world.filter(pod, ["n1"])["NodeNames"], ["n1"])
        held[-1].settimeout(60)
        try:
            rest = held[-1].recv(1)
        except OSError:
            rest = b""
        equal(rest, b"", "one connection too many of an address")
        for connection in held:
            connection.close()


@test
def events():
    """what happens to a Pod stands in its events, with reasons that a person understands"""
    nodes = [make_node("small", memory=500), make_node("n1"), make_node("n2"),
             make_node("cordoned", **{"hami.io/device-cordon": "GPU-cordoned-0"}), make_node("old", ours=False)]
    nodes[-1]["metadata"]["annotations"].pop(REGISTER)
    names = [node["metadata"]["name"] for node in nodes] + ["nowhere"]
    with World([("nodes", node) for node in nodes], ["--scheduler-name=ours"]) as world:
        def event(pod, reason):
            def find():
                return [e for e in world.server.store.items("events")
                        if e["involvedObject"]["name"] == pod and e["reason"] == reason]
            found = until(find, f"{pod}'s {reason}")[0]
            equal((found["involvedObject"]["kind"], found["source"]["component"]), ("Pod", "ours"))
            return found["type"], found["message"]

        pod = world.create("pods", make_pod("large", memory=20000, cards=1))
        world.filter(pod, names)
        equal(event("large", "FilteringFailed"), ("Warning",
              "no available node, 6 nodes do not meet; "
              "1 node CardCordoned(cordoned): the node's annotation hami.io/device-cordon names the card; "
              "3 nodes CardInsufficientMemory(small,n1,n2): too little of the card's memory is left; "
              "2 nodes node unregistered(old,nowhere): no device plugin has registered cards, or the kubelet offers none"))
        pod = world.create("pods", make_pod("many", cards=3))
        world.filter(pod, ["n1"])
        equal(event("many", "FilteringFailed"), ("Warning", "no available node, 1 node does not meet; 1 node "
              "NodeInsufficientDevice(n1): the node has fewer cards than the container asks for"))
        equal(world.place("p", ["n1"])[1], "")
        equal(event("p", "FilteringSucceed"), ("Normal", "find fit node(n1:0.00) of 1 node"))
        equal(event("p", "BindingSucceed"), ("Normal", "Successfully binding node [n1] to default/p"))
        world.server.faults.append(api_server.Fault("POST", "/binding", status=403))
        world.place("q", ["n2"])
        kind, message = event("q", "BindingFailed")
        true(kind == "Warning" and message.startswith("POST /api/v1/namespaces/default/pods/q/binding: 403"), message)
        pod = world.create("pods", make_pod("weighed", **{"hami.io/device-scoring-weights": "slot=1"}))
        true("hami.io/device-scoring-weights" in world.filter(pod, ["n1"])["Error"], "an annotation that is wrong")


@test
def whole_nodes():
    """whole nodes, as an autoscaler sends them, are judged as they come, and nothing is kept"""
    with World([("nodes", make_node("n1"))]) as world:
        nodes = [make_node("x", memory=10), make_node("y")]
        answer = world.post("/filter", {"Pod": make_pod("p"), "Nodes": {"items": nodes}})
        equal([n["metadata"]["name"] for n in answer["Nodes"]["items"]], ["y"])
        equal(answer["FailedNodes"], {"x": "1/1 CardInsufficientMemory"})
        equal(used(world), 0)


@test
def the_webhook():
    """the webhook names the scheduler, knows the quota, and keeps owned keys from others"""
    quota = {"metadata": {"name": "q", "namespace": "default"},
             "spec": {"hard": {"limits.nvidia.com/gpumem": "1500"}}}
    options = ["--scheduler-name=ours", "--owners=system:serviceaccount:v:plugin,system:serviceaccount:v:scheduler"]
    with World([("nodes", make_node("n1")), ("resourcequotas", quota)], options) as world:
        def review(pod, path="/webhook", user="somebody"):
            return world.post(path, {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
                "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "default",
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "operation": "CREATE", "userInfo": {"username": user}, "object": pod}})["response"]
        answer = review(make_pod("a"))
        true(answer["allowed"] and b"ours" in base64.b64decode(answer["patch"]), answer)
        equal(world.place("p", ["n1"])[1], "")
        answer = review(make_pod("b"))
        equal((answer["allowed"], answer["status"]["message"]), (False, "exceeding resource quota"))
        forged = make_pod("c", 100, **{ALLOCATED: "x"})
        equal(review(forged, "/validate")["allowed"], False)
        equal(review(forged, "/validate", "system:serviceaccount:v:plugin")["allowed"], True)


@test
def standby():
    """a standby is healthy and not ready, answers reviews with the quota, and refuses to filter"""
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "1500"}}}
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease = {"metadata": {"name": "l", "namespace": "v"}, "spec": {
        "holderIdentity": "pod-b_1", "leaseDurationSeconds": 3600, "leaseTransitions": 1, "renewTime": now}}
    options = ["--leader-elect", "--pod-namespace=v", "--leader-elect-resource-name=l", "--leader-elect-resource-namespace=v",
               "--pod-name=pod-a"]
    with World([("nodes", make_node("n1")), ("resourcequotas", quota), ("leases", lease)], options, ready=False) as world:
        def allowed(memory):
            return world.post("/webhook", {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
                "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "default",
                "resource": {"group": "", "version": "v1", "resource": "pods"}, "operation": "CREATE",
                "userInfo": {"username": "somebody"}, "object": make_pod("a", memory=memory)}})["response"]["allowed"]
        until(lambda: any("quotas: all" in line for line in world.lines), "the quotas")
        equal((world.get("/healthz")[0], world.get("/readyz")[0] == 200), (200, False))
        equal((allowed(1500), allowed(1501)), (True, False))
        true("read" in world.filter(make_pod("p"), ["n1"])["Error"], "a standby filters")


@test
def the_leader():
    """only the leader acts; a new one has read what the old one did, an old one stops before its lease ends"""
    def lease(holder, transitions, age=0, duration=3600):
        renewed = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=age)
        return {"holderIdentity": holder, "leaseDurationSeconds": duration, "leaseTransitions": transitions,
                "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}

    def take(world, *arguments, **more):
        found = world.server.store.get("leases", "v", "l")
        world.server.store.replace("leases", "v", "l", dict(found, spec=lease(*arguments, **more)))

    objects = [("nodes", make_node("n1")), ("pods", make_pod("pod-a", cards=0, namespace="v")),
               ("leases", {"metadata": {"name": "l", "namespace": "v"}, "spec": lease("pod-b_1", 1)})]
    role = lambda: world.pod("pod-a", "v")["metadata"].get("labels", {}).get("hami.io/scheduler-role")
    options = ["--leader-elect", "--pod-namespace=v", "--leader-elect-resource-name=l", "--leader-elect-resource-namespace=v"]
    with World(objects, options + ["--pod-name=pod-a"], ready=False) as world:
        until(lambda: any("quotas: all" in line for line in world.lines), "the quotas")
        pod = world.create("pods", make_pod("p"))
        true("read" in world.filter(pod, ["n1"])["Error"], "a follower answers")
        true(world.bind(pod, "n1"), "a follower binds")
        until(lambda: role() == "follower", "the label of a follower")
        take(world, "pod-a_7", 2)
        world.wait_ready()
        equal(world.filter(pod, ["n1"])["NodeNames"], ["n1"])
        until(lambda: role() == "leader", "the label of a leader")
        take(world, "pod-ab_7", 3)
        world.wait_ready(False)
        true(world.bind(pod, "n1"), "an old leader binds")
        other = world.create("pods", make_pod("q", memory=9500, **{NODE: "n1", ALLOCATED: "GPU-n1-0,NVIDIA,9500,0:;"}))
        take(world, "pod-a_7", 4)
        world.wait_ready()
        equal(used(world), 9500, "what the new leader knows")
        true("does not fit" in world.bind(pod, "n1"), "a reservation of an earlier term")
        late = world.create("pods", make_pod("late", memory=400))
        equal(world.filter(late, ["n1"])["NodeNames"], ["n1"])
        world.server.faults.append(api_server.Fault("POST", "late/binding", delay=5))
        binds = Later(world.bind, late, "n1")
        until(lambda: world.requests("late/binding"), "the Binding")
        take(world, "pod-a_8", 5)
        until(lambda: sum("pod-a leads" in line for line in world.lines) == 3, "the next term")
        world.wait_ready()
        equal(used(world), 9900, "what the leader itself may yet bind")
        binds.get()
        take(world, "pod-a_8", 5, age=15, duration=16)
        world.wait_ready(False)
        true(other and "read" in world.filter(pod, ["n1"])["Error"], "a leader whose lease is about to end")


@test
def a_lease_that_is_given_away():
    """when the Lease goes to another one before its end, binds are answered at once and sent no more"""
    def lease(holder, transitions):
        now = datetime.datetime.now(datetime.timezone.utc)
        return {"holderIdentity": holder, "leaseDurationSeconds": 3600, "leaseTransitions": transitions,
                "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}

    def give(world, spec):
        found = world.server.store.get("leases", "v", "l")
        world.server.store.replace("leases", "v", "l", dict(found, spec=spec))

    objects = [("nodes", make_node("n1")), ("nodes", make_node("n2", ours=False)),
               ("leases", {"metadata": {"name": "l", "namespace": "v"}, "spec": lease("pod-a_1", 1)})]
    with World(objects, ["--leader-elect", "--pod-name=pod-a", "--leader-elect-resource-name=l",
                         "--leader-elect-resource-namespace=v"]) as world:
        pods = [world.create("pods", make_pod(name)) for name in ("p", "q")]
        for pod, node in zip(pods, ("n1", "n2")):
            equal(world.filter(pod, [node])["NodeNames"], [node])
        world.server.faults.append(api_server.Fault("POST", "p/binding", status=503, count=1000))
        world.server.faults.append(api_server.Fault("GET", "nodes/n2", status=503, count=1000))
        binds = [Later(world.bind, pod, node) for pod, node in zip(pods, ("n1", "n2"))]
        until(lambda: len(world.requests("p/binding")) > 1 and len(world.requests("nodes/n2")) > 1, "the requests")
        start = time.monotonic()
        give(world, lease("", 1))
        for bind in binds:
            equal(bind.get(), "another scheduler leads now")
        equal(used(world), 1000, "what may have been bound")
        true(time.monotonic() - start < 8, "they were answered late")
        give(world, lease("pod-a_1", 3))
        world.wait_ready()
        world.server.silence_watches()
        give(world, lease("pod-b_1", 4))
        start = time.monotonic()
        world.wait_ready(False)
        true(time.monotonic() - start < 40, "a watch of the Lease that has died is held for long")
        sent = len(world.requests("p/binding|nodes/n2"))
        time.sleep(3)
        equal(len(world.requests("p/binding|nodes/n2")), sent, "requests of one that does not lead")


@test
def many_in_a_row():
    """no device is over-committed by many Pods, with watches that die and binds that fail"""
    with World([("nodes", make_node(f"n{i}", cards=2)) for i in range(3)]) as world:
        names, placed = [f"n{i}" for i in range(3)], 0
        for number in range(80):
            if number % 9 == 4:
                world.server.cut_watches()
            if number % 7 == 3:
                world.server.faults.append(api_server.Fault("POST", "/binding", status=409))
            placed += world.place(f"p{number}", names, memory=1900)[1] == ""
            sums = {}
            for pod in world.server.store.items("pods"):
                text = (pod["metadata"].get("annotations") or {}).get(ALLOCATED, "")
                if pod["spec"].get("nodeName"):
                    sums[text.split(",")[0]] = sums.get(text.split(",")[0], 0) + 1900
            true(all(total <= 10000 for total in sums.values()), f"over-committed: {sums}")
        equal(placed, 3 * 2 * 5)


@test
def extender_alone():
    """with --extender-bind, filter and bind are at that port alone, and the webhooks at the other"""
    with World([("nodes", make_node("n1"))], ["--extender-bind=127.0.0.1:0"]) as world:
        true(world.extender_port != world.port, "one port")
        pod = world.create("pods", make_pod("p"))
        for path in ("/filter", "/bind"):
            equal(world.request("POST", path, "{}", world.port)[0], 404, path)
        for path in ("/webhook", "/validate"):
            equal(world.request("POST", path, "{}", world.extender_port)[0], 404, path)
        equal(world.get("/readyz")[0], 200)
        equal(world.filter(pod, ["n1"])["NodeNames"], ["n1"])


tap.main()
