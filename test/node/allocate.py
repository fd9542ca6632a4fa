# SPDX-License-Identifier: Apache-2.0
"""allocate BUILD: from Allocate to the container's limits, between a fake kubelet and a fake API server."""
import json
import os
import stat
import time

from plugin_world import (ALLOCATED, CONSENT, KEY, LIMITS, LOCK, MIB, PHASE, QUIET_S, TO_ALLOCATE, World, device,
                          device_id, proof, tap, until, uuid)

equal, test, true = tap.equal, tap.test, tap.true

# Where the plugin can be killed in an Allocate: before it is durable, and after.
BEFORE = ("allocation_files_make", "allocation_files_make:after", "grant_write", "grant_write:after",
          "allocation_files_save")
AFTER = ("allocation_files_save:after", "kubelet_answer_allocate", "kubelet_answer_allocate:after",
         "kube_client_start", "kube_client_start:after")


def patches(world, path):
    return world.server.log("PATCH", path)


@test
def by_lock():
    """the Pod of the node's lock is served, without a request before the answer"""
    with World() as world:
        world.pod("p", device(1, 3000, 30) + ";", lock=True)
        world.pod("other", device(1, 1000, 10) + ";", seconds=1)
        world.settle()
        world.server.clear_log()
        world.server.fault(method="PATCH", delay=1, count=10)
        answer = world.allocate(device_id(1, 0))
        equal([e["path"] for e in world.server.log("GET")], [], "requests before the answer")
        equal(answer.envs["NVIDIA_VISIBLE_DEVICES"], uuid(1))
        equal(answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"], "3000m")
        grant = answer.grant()
        equal(grant.devices, [(uuid(1), 3000, 30)])
        equal((grant.pod, grant.namespace, grant.uid, grant.container), ("p", "default", "uid-p", "main"))
        equal(grant.region, "/etc/vgpu/account")
        equal(grant.priority_set, 0)
        world.told("p")
        world.unlocked()
        equal(world.annotation("other", PHASE), "allocating")
        equal(world.node_annotation("other"), "kept")
        equal(len(patches(world, "/pods/")), 1, "PATCHes of Pods")
        equal(len(patches(world, "/nodes/")), 1, "PATCHes of the Node")


@test
def files():
    """directory, region and grant exist with their modes when kubelet has its answer"""
    with World() as world:
        world.pod("p", device(1, 3000) + ";", lock=True)
        answer = world.allocate(device_id(1, 0))
        own = answer.mounts[world.hook + "/vgpu"]["host_path"]
        equal(own, world.hook + "/vgpu/containers/uid-p_main")
        cache = os.path.basename(answer.envs["CUDA_DEVICE_MEMORY_SHARED_CACHE"])
        region, account = os.stat(f"{own}/{cache}"), os.stat(answer.mounts["/etc/vgpu/account"]["host_path"])
        equal((region.st_ino, region.st_nlink, region.st_size), (account.st_ino, 2, 0))
        equal(stat.S_IMODE(os.stat(own).st_mode), 0o777)
        equal(stat.S_IMODE(region.st_mode), 0o666)
        equal(stat.S_IMODE(os.stat(answer.limits_directory).st_mode), 0o755)
        equal(stat.S_IMODE(os.stat(answer.limits_directory + "/grant").st_mode), 0o644)
        true(answer.mounts["/etc/vgpu/limits.d"]["read_only"], "limits.d can be written")
        true(not answer.mounts["/etc/vgpu/account"]["read_only"], "account cannot be written")
        record = world.records()[0]
        equal((record["ids"], record["uid"], record["container"]), ([device_id(1, 0)], "uid-p", "main"))


@test
def without_lock():
    """without a lock the Pod that waits longest is served, and only one that was bound here"""
    with World() as world:
        world.pod("late", device(1, 2000) + ";", seconds=1764150009)
        world.pod("early", device(1, 1000) + ";", seconds=1764150001)
        world.pod("failed", device(1, 500) + ";", seconds=1, phase="failed")
        world.pod("running", device(1, 600) + ";", seconds=1, status="Running")
        equal(world.allocate(device_id(1, 0)).grant().who, ("early", "main"))
        equal(world.allocate(device_id(1, 1)).grant().who, ("late", "main"))
        told = world.allocate_raw(device_id(1, 2))
        equal(told["status"], "UNKNOWN")
        true("no binding pod found on node n1" in told["text"], told["text"])
        equal(world.annotation("failed", PHASE), "failed")
        equal(world.annotation("running", PHASE), "allocating")


@test
def forged():
    """with --require-proof a Pod that forges its annotations gets nothing"""
    with World(require_proof=True) as world:
        devices = device(1, 3000) + ";"
        good = proof("uid-good", devices)
        world.pod("forged", device(1, 24000) + ";", seconds=1)
        world.pod("stolen", devices, seconds=2, annotations={"vgpu.io/proof": good})
        world.pod("changed", device(1, 20000) + ";", seconds=3,
                  annotations={"vgpu.io/proof": proof("uid-changed", devices)})
        world.pod("weak", devices, seconds=4, annotations={"vgpu.io/proof": proof("uid-weak", devices, key="")})
        told = world.allocate_raw(device_id(1, 0))
        equal(told["status"], "UNKNOWN", told)
        equal(world.records(), [])
        world.pod("good", devices, annotations={"vgpu.io/proof": good})
        answer = world.allocate(device_id(1, 1))
        equal(answer.grant().who, ("good", "main"))
        record = world.records()[0]
        equal(record["directory"], record["id"], "an opaque directory")
        world.write("key", "another key, another key")
        os.utime(world.path("key"), (time.time() - 700,) * 2)
        world.pod("old", devices, annotations={"vgpu.io/proof": proof("uid-old", devices)})
        equal(world.allocate_raw(device_id(1, 2))["status"], "UNKNOWN", "by the key before")
        world.pod("locked", devices, lock=True)
        equal(world.allocate(device_id(1, 3)).grant().who, ("locked", "main"))


@test
def other_key():
    """the key before holds for ten minutes beside a new one, and a file that is too short replaces none"""
    second, third = "another key, another key", "a third one, not the others"
    with World(require_proof=True, cards=[{"uuid": uuid(1), "replicas": 20}]) as world:
        devices = device(1, 100) + ";"
        steps = ((KEY, 0, (KEY,)), (second, 0, (KEY, second)), ("short", 0, (KEY, second)),
                 ("", 0, (KEY, second)), (third, 0, (second, third)), (KEY, 700, (KEY,)))
        for number, (key, age, good) in enumerate(steps):
            with open(world.path("key.new"), "w", encoding="utf-8") as file:
                file.write(key)
            os.utime(world.path("key.new"), (time.time() - age,) * 2)
            os.replace(world.path("key.new"), world.path("key"))
            for at, k in enumerate((KEY, second, third)):
                name = f"p{number}-{at}"
                world.pod(name, devices, annotations={"vgpu.io/proof": proof("uid-" + name, devices, key=k)})
                told = world.allocate_raw(device_id(1, 3 * number + at))
                equal(told["status"], "OK" if k in good else "UNKNOWN", f"step {number}, key {k}")
                world.remove(name)
        true(any("has 5 bytes" in line for line in world.log.lines), "no word of the short key")


@test
def disable_control():
    """CUDA_DISABLE_CONTROL lifts a Pod's limits, as with HAMi, and not where the node says so, with an event"""
    for ignored in (False, True):
        with World(ignore_disable_control=ignored) as world:
            for name, value in (("p", "true"), ("q", "false")):
                world.pod(name, device(1, 3000) + ";", lock=True,
                          env={"main": [{"name": "CUDA_DISABLE_CONTROL", "value": value}]})
                answer = world.allocate(device_id(1, 0 if name == "p" else 1))
                equal("/etc/ld.so.preload" in answer.mounts, ignored or name == "q", f"{name}, ignored {ignored}")
                world.told(name)
            if ignored:
                until(lambda: world.reported("DisableControlIgnored"), "the event")
            time.sleep(QUIET_S)
            equal(len(world.reported("DisableControlIgnored")), 1 if ignored else 0, "events")


@test
def several_containers():
    """init containers, sidecars and containers each get their own"""
    with World() as world:
        world.pod("p", device(1, 100) + ";" + device(1, 200) + ";;" + device(2, 300, 20) + ";" + device(2, 400) + ";",
                  init=("setup", "proxy"), sidecars=("proxy",), containers=("plain", "a", "b"), lock=True,
                  env={"a": [{"name": "CUDA_TASK_PRIORITY", "value": "1"}]})
        got = [world.allocate(i) for i in (device_id(1, 0), device_id(1, 1), device_id(2, 0), device_id(2, 1))]
        equal([a.grant().who[1] for a in got], ["setup", "proxy", "a", "b"])
        equal([a.grant().devices[0][1] for a in got], [100, 200, 300, 400])
        equal([(a.grant().priority_set, a.grant().priority) for a in got], [(0, 0), (0, 0), (1, 1), (0, 0)])
        equal([(r["init"], r["sidecar"]) for r in world.records()],
              [(True, False), (True, True), (False, False), (False, False)])
        world.told("p")
        world.unlocked()


@test
def part_of_a_pod():
    """the lock stays until the last container has its devices, and each place is erased"""
    with World() as world:
        world.pod("p", device(1, 100) + ";" + device(2, 200) + ";", containers=("a", "b"), lock=True)
        world.allocate(device_id(1, 0))
        until(lambda: world.annotation("p", TO_ALLOCATE) == ";" + device(2, 200) + ";", "the erasure")
        time.sleep(QUIET_S)
        true(world.node_annotation(LOCK), "the lock is gone")
        equal(world.annotation("p", PHASE), "allocating")
        world.allocate(device_id(2, 0))
        world.told("p")
        world.unlocked()


@test
def swapped():
    """two equal Pods that kubelet takes in the other order are put right before they start"""
    with World() as world:
        world.pod("a", device(1, 1000, 10) + ";", seconds=1)
        world.pod("b", device(1, 2000, 20) + ";", seconds=2)
        first, second = world.allocate(device_id(1, 0)), world.allocate(device_id(1, 1))
        equal([first.grant().who[0], second.grant().who[0]], ["a", "b"])
        world.told("a")
        world.told("b")
        world.resources(a=[("main", [device_id(1, 1)])], b=[("main", [device_id(1, 0)])])
        world.pre_start(device_id(1, 0))
        equal(first.grant().who + tuple(first.grant().devices), ("b", "main", (uuid(1), 2000, 20)))
        equal(second.grant().who + tuple(second.grant().devices), ("a", "main", (uuid(1), 1000, 10)))
        true(all(r["sure"] for r in world.records()), "still guesses")
        world.kubelet.say(do="mute", on=True)
        world.pre_start(device_id(1, 0))  # kubelet starts it again: nobody needs to be asked
        equal(world.annotation("a", PHASE), "success")
        true("NVIDIA" not in world.annotation("a", TO_ALLOCATE), "a was restored")


@test
def swapped_cards():
    """of equal Pods each is told the cards that it has, with a proof where there was one"""
    with World() as world:
        for name, card, seconds in (("a", 1, 1), ("b", 2, 2)):
            text = device(card, 1000, 10) + ";"
            said = {"vgpu.io/proof": proof("uid-" + name, text if name == "a" else "forged")}
            world.pod(name, text, seconds=seconds, annotations=said)
        first, second = world.allocate(device_id(1, 0)), world.allocate(device_id(2, 0))
        equal([first.grant().who[0], second.grant().who[0]], ["a", "b"])
        world.told("a")
        world.told("b")
        world.resources(a=[("main", [device_id(2, 0)])], b=[("main", [device_id(1, 0)])])
        world.pre_start(device_id(1, 0))
        equal(first.grant().who + tuple(first.grant().devices), ("b", "main", (uuid(1), 1000, 10)))
        texts = {"a": device(2, 1000, 10) + ";", "b": device(1, 1000, 10) + ";"}
        for name, text in texts.items():
            until(lambda name=name, text=text: world.annotation(name, ALLOCATED) == text, f"{name}'s cards")
        equal(world.annotation("a", "vgpu.io/proof"), proof("uid-a", texts["a"]))
        equal(world.annotation("b", "vgpu.io/proof"), proof("uid-b", "forged"), "a forged one is not made good")
        world.restart()
        world.settle()
        equal(patches(world, "/pods/"), [], "PATCHes after a restart")


@test
def replayed():
    """what a Pod got is not given again: its own annotation written back, another's proof, another's consent"""
    with World(require_proof=True) as world:
        devices = device(1, 1000) + ";"
        world.pod("p", devices, annotations={"vgpu.io/proof": proof("uid-p", devices)})
        world.allocate(device_id(1, 0))
        world.told("p")
        world.annotate("p", **{TO_ALLOCATE: devices, PHASE: "allocating"})
        until(lambda: "NVIDIA" not in world.annotation("p", TO_ALLOCATE), "the annotation's end")
        equal(world.allocate_raw(device_id(1, 1))["status"], "UNKNOWN", "for the second time")
        equal(len(world.records()), 1)
        world.pod("q", devices, annotations={"vgpu.io/proof": proof("uid-q", devices)})
        answer = world.allocate(device_id(1, 1))
        equal(answer.grant().who, ("q", "main"))
        wish = json.dumps({"main": {"gpumem": 2000}})
        world.annotate("q", **{LIMITS: wish, CONSENT: proof("uid-p", wish)})
        until(lambda: "consent" in " ".join(e["message"] for e in world.server.store.items("events")), "the refusal")
        equal(answer.grant().devices, [(uuid(1), 1000, 0)])


@test
def swapped_early():
    """a Pod whose devices went to another by mistake is a candidate again"""
    with World() as world:
        world.pod("a", device(1, 1000) + ";", seconds=1)
        world.pod("b", device(1, 2000) + ";", seconds=2)
        first = world.allocate(device_id(1, 0))
        world.told("a")
        world.resources(b=[("main", [device_id(1, 0)])])
        world.pre_start(device_id(1, 0))
        equal(first.grant().who, ("b", "main"))
        equal(first.grant().devices, [(uuid(1), 2000, 0)])
        world.told("b")
        until(lambda: world.annotation("a", TO_ALLOCATE) == device(1, 1000) + ";", "a's devices")
        world.restart()
        equal(world.allocate(device_id(1, 1)).grant().who, ("a", "main"))
        world.told("a")


@test
def swapped_init():
    """init containers, which pod-resources does not name, follow the Pod that has their devices"""
    with World() as world:
        for name, seconds in (("a", 1), ("b", 2)):
            world.pod(name, device(1, 100 * seconds) + ";" + device(1, 1000 * seconds) + ";", init=("setup",),
                      seconds=seconds)
        got = [world.allocate(device_id(1, i)) for i in (0, 0, 1, 1)]
        equal([a.grant().who for a in got], [("a", "setup"), ("a", "main"), ("b", "setup"), ("b", "main")])
        world.resources(a=[("main", [device_id(1, 1)])], b=[("main", [device_id(1, 0)])])
        world.pre_start(device_id(1, 0))
        equal([a.grant().who for a in got], [("b", "setup"), ("b", "main"), ("a", "setup"), ("a", "main")])
        equal([a.grant().devices[0][1] for a in got], [200, 2000, 100, 1000])


@test
def passed_by():
    """a Pod without an assignment that takes another's Allocate does not start, and the other gets its own"""
    for required in (False, True):
        with World(cards=[{"uuid": uuid(1), "memory_mib": 10000}], require_proof=required) as world:
            devices = device(1, 6000, 60) + ";"
            world.pod("y", devices, annotations={"vgpu.io/proof": proof("uid-y", devices)})
            world.bare_pod("x")
            first = world.allocate(device_id(1, 0))
            equal(first.grant().who, ("y", "main"))
            world.told("y")
            world.resources(x=[("main", [device_id(1, 0)])])
            for _ in range(2):  # kubelet tries again
                told = world.pre_start_raw(device_id(1, 0))
                equal(told["status"], "FAILED_PRECONDITION")
                true("Pod default/x" in told["text"] and "no device was assigned" in told["text"], told["text"])
            until(lambda: world.reported("DevicesNotAssigned"), "the event")
            equal(len(world.server.log("POST", "/events$")), 1, "events")
            equal([(r["pod"], r["unassigned"]) for r in world.records()], [("x", True)])
            equal(first.grant().who, ("x", "main"))
            until(lambda: world.annotation("y", TO_ALLOCATE) == devices, "y's devices")
            world.restart()
            world.kubelet.say(do="mute", on=True)
            equal(world.pre_start_raw(device_id(1, 0))["status"], "FAILED_PRECONDITION", "after a restart")
            world.kubelet.say(do="mute", on=False)
            second = world.allocate(device_id(1, 1))
            equal(second.grant().who, ("y", "main"))
            world.told("y")
            world.resources(x=[("main", [device_id(1, 0)])], y=[("main", [device_id(1, 1)])])
            world.pre_start(device_id(1, 1))
            world.remove("y")
            until(lambda: len(world.grants()) == 1, "the end of y's grant")
            equal([r["pod"] for r in world.records()], ["x"])
            world.remove("x")
            until(lambda: not world.grants(), "the end of x's grant")


@test
def passed_by_forged():
    """a Pod that takes another's Allocate does not start with limits that nobody proved, or has room for"""
    with World(require_proof=True) as world:
        mine, forged = device(1, 1000) + ";", device(1, 9000) + ";"
        world.pod("y", mine, annotations={"vgpu.io/proof": proof("uid-y", mine)})
        world.pod("x", forged, annotations={"vgpu.io/proof": proof("uid-y", mine)})
        answer = world.allocate(device_id(1, 0))
        equal(answer.grant().who, ("y", "main"))
        world.resources(x=[("main", [device_id(1, 0)])])
        told = world.pre_start_raw(device_id(1, 0))
        equal(told["status"], "FAILED_PRECONDITION")
        true("not proven" in told["text"], told["text"])
        equal(answer.grant().devices, [(uuid(1), 1000, 0)])
        equal(world.allocate(device_id(1, 1)).grant().who, ("y", "main"))
        world.annotate("x", **{"vgpu.io/proof": proof("uid-x", forged)})
        world.settle()
        time.sleep(QUIET_S)
        world.pre_start(device_id(1, 0))
        equal(answer.grant().devices, [(uuid(1), 9000, 0)])
    with World(cards=[{"uuid": uuid(1), "memory_mib": 10000}]) as world:
        world.pod("r", device(1, 5000) + ";", seconds=1)
        world.allocate(device_id(1, 0))
        world.pod("x", device(1, 9000) + ";", seconds=2)
        world.pod("y", device(1, 4000) + ";", seconds=3)
        answer = world.allocate(device_id(1, 1))
        equal(answer.grant().who, ("y", "main"))
        world.resources(r=[("main", [device_id(1, 0)])], x=[("main", [device_id(1, 1)])])
        told = world.pre_start_raw(device_id(1, 1))
        equal(told["status"], "FAILED_PRECONDITION")
        true("9000 MiB more are asked for, of 10000 MiB" in told["text"], told["text"])
        equal(answer.grant().devices, [(uuid(1), 4000, 0)])
        equal(world.allocate(device_id(1, 2)).grant().who, ("y", "main"))
        world.set_phase("r", "Succeeded")
        world.set_phase("y", "Succeeded")
        time.sleep(QUIET_S)
        world.pre_start(device_id(1, 1))
        equal(answer.grant().devices, [(uuid(1), 9000, 0)])


@test
def passed_by_late():
    """an Allocate that finds nobody asks pod-resources who took the Pod's devices, also of Pods that are news"""
    for behind in (False, True):
        with World(require_proof=True) as world:
            devices = device(1, 1000) + ";"
            world.pod("y", devices, annotations={"vgpu.io/proof": proof("uid-y", devices)})
            world.settle()
            if behind:
                world.server.silence_watches()
            world.bare_pod("x")
            equal(world.allocate(device_id(1, 0)).grant().who, ("y", "main"))
            world.resources(x=[("main", [device_id(1, 0)])])
            equal(world.allocate(device_id(1, 1)).grant().who, ("y", "main"))
            equal([(r["pod"], r.get("unassigned", False)) for r in world.records()], [("x", True), ("y", False)])
            equal(world.pre_start_raw(device_id(1, 0))["status"], "FAILED_PRECONDITION")


@test
def passed_by_running():
    """what a Pod without an assignment has got before anybody could tell stays its, and counts, as long as it lives"""
    with World(cards=[{"uuid": uuid(1), "memory_mib": 10000}]) as world:
        world.pod("y", device(1, 6000) + ";")
        world.bare_pod("x")
        answer = world.allocate(device_id(1, 0))
        world.told("y")
        world.kubelet.say(do="mute", on=True)
        world.pre_start(device_id(1, 0))
        world.resources(x=[("main", [device_id(1, 0)])])
        world.set_phase("y", "Failed")
        world.remove("y")
        world.settle()
        time.sleep(QUIET_S)
        equal(answer.grant().devices, [(uuid(1), 6000, 0)])
        world.kubelet.say(do="mute", on=False)
        world.pod("z", device(1, 4001) + ";", seconds=2)
        told = world.allocate_raw(device_id(1, 1))
        true("4001 MiB more are asked for, of 10000 MiB" in told["text"], told["text"])
        equal(answer.grant().who, ("x", "main"))
        equal(answer.grant().devices, [(uuid(1), 6000, 0)])
        world.set_phase("x", "Running")
        world.restart()
        world.pod("fits", device(1, 4000) + ";", seconds=3)
        equal(world.allocate(device_id(1, 2)).grant().who, ("fits", "main"))
        world.pod("last", device(1, 6000) + ";", seconds=4)
        equal(world.allocate_raw(device_id(1, 3))["status"], "UNKNOWN", "beside x")
        world.set_phase("x", "Succeeded")
        world.pod("next", device(1, 6000) + ";", seconds=5)
        equal(world.allocate(device_id(1, 4)).grant().who, ("next", "main"))


@test
def held():
    """while pod-resources does not answer, the devices of a Pod that was guessed count for a while after its end"""
    with World(cards=[{"uuid": uuid(1), "memory_mib": 10000}], hold_s=8) as world:
        world.kubelet.say(do="mute", on=True)
        world.pod("p", device(1, 6000) + ";")
        world.allocate(device_id(1, 0))
        world.told("p")
        begin = time.monotonic()
        world.set_phase("p", "Succeeded")
        world.remove("p")
        until(lambda: not world.grants(), "the removal")
        true(time.monotonic() - begin > 7, "it was removed early")
        world.pod("q", device(1, 6000) + ";")
        equal(world.allocate(device_id(1, 1)).grant().who, ("q", "main"))


@test
def unknown_owner():
    """a container of a Pod that the API server has not told of starts when it has"""
    with World() as world:
        world.pod("a", device(1, 1000) + ";", seconds=1)
        answer = world.allocate(device_id(1, 0))
        world.resources(b=[("main", [device_id(1, 0)])])
        told = world.pre_start_raw(device_id(1, 0))
        equal(told["status"], "FAILED_PRECONDITION")
        true("default/b" in told["text"] and "has not told" in told["text"], told["text"])
        world.pod("b", device(1, 2000) + ";", seconds=2)
        world.pre_start(device_id(1, 0))
        equal(answer.grant().who + tuple(answer.grant().devices), ("b", "main", (uuid(1), 2000, 0)))


@test
def resources_away():
    """a container starts although pod-resources does not answer, and is put right later"""
    with World() as world:
        world.pod("a", device(1, 1000) + ";", seconds=1)
        world.pod("b", device(1, 2000) + ";", seconds=2)
        answer = world.allocate(device_id(1, 0))
        world.kubelet.say(do="mute", on=True)
        begin = time.monotonic()
        world.pre_start(device_id(1, 0))
        true(time.monotonic() - begin < 20, "it waited long")
        equal(answer.grant().who, ("a", "main"))
        world.resources(b=[("main", [device_id(1, 0)])])
        world.kubelet.say(do="mute", on=False)
        until(lambda: answer.grant().who == ("b", "main"), "the right name")


@test
def api_away():
    """an Allocate does not need the API server; what it is told follows when it is back"""
    with World() as world:
        world.pod("p", device(1, 3000) + ";", lock=True)
        world.settle()
        world.server.fault(status=503, count=1000000)
        world.server.cut_watches()
        equal(world.allocate(device_id(1, 0)).grant().who, ("p", "main"))
        time.sleep(QUIET_S)
        equal(world.annotation("p", PHASE), "allocating")
        world.kill()
        world.start(wait=False)
        world.kubelet.wait("devices", world.kubelet.mark() - 1)
        time.sleep(QUIET_S)
        equal(len(world.records()), 1, "records while the API server is away")
        with world.server.lock:
            world.server.faults.clear()
        world.told("p")
        world.unlocked()


@test
def watch_behind():
    """a Pod and a lock that the watch has not told yet are asked for"""
    with World() as world:
        world.server.silence_watches()
        world.pod("p", device(1, 3000) + ";", lock=True)
        equal(world.allocate(device_id(1, 0)).grant().who, ("p", "main"))
        world.told("p")
        world.unlocked()
        equal(world.allocate_raw(device_id(1, 1))["status"], "UNKNOWN", "a second time")
        equal(len(world.records()), 1)


@test
def holder_gone():
    """a lock whose Pod is gone is no obstacle"""
    with World() as world:
        world.lock("gone")
        world.pod("p", device(1, 3000) + ";")
        equal(world.allocate(device_id(1, 0)).grant().who, ("p", "main"))
        world.told("p")
        true(world.node_annotation(LOCK).endswith("gone"), "another's lock was released")


@test
def other_lock():
    """a lock that another Pod takes meanwhile is not released"""
    with World() as world:
        world.pod("p", device(1, 3000) + ";", lock=True)
        world.settle()
        world.server.silence_watches()
        world.lock("next")
        world.allocate(device_id(1, 0))
        world.told("p")
        time.sleep(QUIET_S)
        true(world.node_annotation(LOCK).endswith("next"), "the next Pod's lock was released")


@test
def mismatch():
    """a Pod whose annotation has another number of devices fails, and its lock is released"""
    with World() as world:
        world.pod("p", device(1, 3000) + device(2, 3000) + ";", lock=True, counts={"main": 1})
        told = world.allocate_raw(device_id(1, 0))
        true("device number not matched" in told["text"], told["text"])
        world.told("p", "failed")
        world.unlocked()
        world.restart()
        equal(world.allocate_raw(device_id(1, 0))["status"], "UNKNOWN")


@test
def over_commit():
    """what would over-commit a card is refused with the figures, unless another Pod fits"""
    cards = [{"uuid": uuid(1), "memory_mib": 10000, "replicas": 3}]
    with World(cards=cards) as world:
        world.pod("a", device(1, 6000, 60) + ";", seconds=1)
        world.allocate(device_id(1, 0))
        world.pod("big", device(1, 4001) + ";", seconds=2)
        world.pod("fits", device(1, 4000, 40) + ";", seconds=3)
        equal(world.allocate(device_id(1, 1)).grant().who, ("fits", "main"))
        told = world.allocate_raw(device_id(1, 2))
        true("4001 MiB more are asked for, of 10000 MiB" in told["text"], told["text"])
        world.told("big", "failed")
        world.set_phase("a", "Succeeded")
        world.pod("next", device(1, 6000, 61) + ";", seconds=4)
        told = world.allocate_raw(device_id(1, 0))
        true("61 % more are asked for, of 100 %" in told["text"], told["text"])
        world.pod("last", device(1, 6000, 60) + ";", seconds=5)
        equal(world.allocate(device_id(1, 0)).grant().who, ("last", "main"))


@test
def over_commit_init():
    """an init container counts beside the sidecars before it, until all init containers have ended well"""
    cards = [{"uuid": uuid(1), "memory_mib": 7000}]
    with World(cards=cards) as world:
        world.pod("p", device(1, 3000) + ";" + device(1, 4001) + ";" + device(1, 100) + ";",
                  init=("proxy", "setup"), sidecars=("proxy",), lock=True)
        world.allocate(device_id(1, 0))
        told = world.allocate_raw(device_id(1, 1))
        true("4001 MiB more are asked for, of 7000 MiB" in told["text"], told["text"])
    with World(cards=cards) as world:
        world.pod("p", device(1, 6000) + ";" + device(1, 1000) + ";", init=("setup",), lock=True)
        world.allocate(device_id(1, 0))
        world.allocate(device_id(1, 0))
        world.told("p")
        world.resources(p=[("main", [device_id(1, 0)])])
        world.pre_start(device_id(1, 0))
        for code, name, good in ((1, "early", False), (0, "late", True)):
            world.server.store.patch("pods", "default", "p", "application/merge-patch+json", {"status": {
                "initContainerStatuses": [{"name": "setup", "state": {"terminated": {"exitCode": code}}}]}}, "status")
            world.pod(name, device(1, 6000) + ";", seconds=5)
            equal(world.allocate_raw(device_id(1, 1))["status"], "OK" if good else "UNKNOWN", name)


@test
def killed():
    """a plugin that is killed at any step of an Allocate loses nothing and serves nobody twice"""
    for step in BEFORE + AFTER:
        with World() as world:
            # The two lists that the watches begin with are requests, too.
            count = 3 if step.startswith("kube_client_start") else 1
            world.restart(KILL_AT=f"{step if ':' in step else step + ':before'}:{count}")
            world.pod("p", device(1, 3000) + ";", lock=True)
            world.settle()
            world.kubelet.start("allocate", containers=[[device_id(1, 0)]])
            world.plugin.wait(60)
            world.server.clear_log()
            world.start()
            records = world.records()
            equal(len(records), 0 if step in BEFORE else 1, f"records after {step}")
            equal(len(world.grants()), len(records), f"directories after {step}")
            if records:
                world.told("p")
                world.unlocked()
                equal(world.allocate_raw(device_id(1, 1))["status"], "UNKNOWN", "a second time")
            else:
                equal(world.allocate(device_id(1, 0)).grant().who, ("p", "main"))
                world.told("p")
            equal(world.records()[0]["uid"], "uid-p")


@test
def spare():
    """the files that are made ahead become a container's, whatever of them is there, and are made anew"""
    with World() as world:
        made = world.hook + "/vgpu/spare"
        for number, missing in enumerate([(), ("account",), ("limits.d/grant", "limits.d"), ("container",)]):
            until(lambda: os.path.isdir(made), "the files made ahead")
            inode = os.stat(made).st_ino
            for path in missing:
                (os.rmdir if os.path.isdir(f"{made}/{path}") else os.remove)(f"{made}/{path}")
            world.pod(f"p{number}", device(1, 3000 + number) + ";", seconds=1000 + number)
            world.settle()
            answer = world.allocate(device_id(1, number))
            grant = os.path.dirname(answer.limits_directory)
            equal(os.stat(grant).st_ino, inode, f"the inode without {missing}")
            equal(sorted(os.listdir(grant)), ["account", "allocation.json", "limits.d"])
            equal(answer.grant().devices, [(uuid(1), 3000 + number, 0)])
            own = answer.mounts[world.hook + "/vgpu"]["host_path"]
            equal(os.listdir(own), [os.path.basename(answer.envs["CUDA_DEVICE_MEMORY_SHARED_CACHE"])])
            equal(stat.S_IMODE(os.stat(own).st_mode), 0o777)
        until(lambda: os.path.isdir(made), "the files made ahead")
        world.kill()
        os.rename(made, made + ".new")
        os.remove(made + ".new/account")
        world.start()
        until(lambda: os.path.isdir(made), "the files made ahead")
        true(not os.path.exists(made + ".new"), "half made files are left")
        equal(sorted(os.listdir(made)), ["account", "allocation.json.new", "container", "limits.d"])


@test
def unnamed():
    """a record whose name was lost with the power is one all the same, and half of one is not"""
    with World() as world:
        world.pod("p", device(1, 3000) + ";", lock=True)
        world.pod("q", device(2, 3000) + ";")
        world.allocate(device_id(1, 0))
        world.allocate(device_id(2, 0))
        world.told("q")
        world.kill()
        for record in world.records():
            path = f"{world.hook}/vgpu/grants/{record['id']}/allocation.json"
            os.rename(path, path + ".new")
            if record["pod"] == "q":
                os.truncate(path + ".new", 100)
        world.start()
        equal([record["pod"] for record in world.records()], ["p"])
        equal(len(world.grants()), 1)


@test
def gone():
    """grants of Pods that are gone are removed, and only after the API server said so"""
    with World() as world:
        world.pod("p", device(1, 3000) + ";", lock=True)
        world.pod("q", device(1, 3000) + ";")
        world.allocate(device_id(1, 0))
        world.allocate(device_id(1, 1))
        world.told("p")
        world.told("q")
        world.remove("p")
        until(lambda: len(world.grants()) == 1, "the removal")
        equal(world.records()[0]["pod"], "q")
        world.kill()
        world.remove("q")
        world.server.fault(status=500, count=1000000)
        world.start(wait=False)
        time.sleep(2 * QUIET_S)
        equal(len(world.grants()), 1, "grants while the API server is away")
        with world.server.lock:
            world.server.faults.clear()
        until(lambda: not world.grants(), "the removal")


@test
def kubelet_again():
    """kubelet's restart changes nothing: its containers' limits stay, and known devices start"""
    with World() as world:
        world.pod("p", device(1, 3000) + ";", lock=True)
        answer = world.allocate(device_id(1, 0))
        world.told("p")
        world.resources(p=[("main", [device_id(1, 0)])])
        world.pre_start(device_id(1, 0))
        mark = world.kubelet.mark()
        world.kubelet.say(do="stop")
        world.kubelet.say(do="start")
        world.kubelet.wait("devices", mark)
        world.kubelet.say(do="mute", on=True)
        before = answer.grant().sequence
        world.pre_start(device_id(1, 0))
        equal(answer.grant().sequence, before)
        equal(answer.grant().who, ("p", "main"))


@test
def lowered():
    """a running Pod's limits are lowered by its annotation, and given back, within a second"""
    with World() as world:
        world.pod("p", device(1, 3000, 30) + ";" + device(1, 500) + ";", containers=("a", "b"), lock=True)
        first, second = world.allocate(device_id(1, 0)), world.allocate(device_id(1, 1))
        world.told("p")
        begin = time.monotonic()
        world.annotate("p", **{LIMITS: json.dumps({"a": {"gpumem": 1000, "gpucores": 10}})})
        until(lambda: first.grant().devices == [(uuid(1), 1000, 10)], "the lower limits")
        true(time.monotonic() - begin < 5, "it took long")
        equal(second.grant().devices, [(uuid(1), 500, 0)])
        world.restart()
        equal(first.grant().devices, [(uuid(1), 1000, 10)])
        world.annotate("p", **{LIMITS: None})
        until(lambda: first.grant().devices == [(uuid(1), 3000, 30)], "the limits before")
        equal(world.server.log("POST", "/events"), [])


@test
def raised():
    """more than was given needs the scheduler's consent to exactly that, and is refused with one event"""
    with World() as world:
        world.pod("p", device(1, 3000, 30) + ";", lock=True)
        answer = world.allocate(device_id(1, 0))
        world.told("p")
        more = json.dumps({"main": {"gpumem": 5000, "gpucores": 20}})
        events = lambda: [json.loads(e["body"]) for e in world.server.log("POST", "/events$")]  # noqa: E731
        world.annotate("p", **{LIMITS: more})
        until(events, "the event")
        equal(answer.grant().devices, [(uuid(1), 3000, 20)])
        equal((events()[0]["reason"], events()[0]["involvedObject"]["name"]), ("LimitsRefused", "p"))
        world.annotate("p", note="nothing that matters")
        world.annotate("p", **{CONSENT: proof("uid-p", json.dumps({"main": {"gpumem": 6000}}))})
        time.sleep(QUIET_S)
        equal(answer.grant().devices, [(uuid(1), 3000, 20)], "by a consent to something else")
        world.annotate("p", **{CONSENT: proof("uid-p", more)})
        until(lambda: answer.grant().devices == [(uuid(1), 5000, 20)], "what was agreed to")
        world.annotate("p", **{LIMITS: more.replace("5000", "9000")})
        until(lambda: answer.grant().devices == [(uuid(1), 3000, 20)], "what needs no consent")
        until(lambda: "9000" in (world.records()[0].get("wish") or ""), "the record, which is saved after the grant")
        count = len(events())
        world.restart()
        time.sleep(QUIET_S)
        equal(len(world.server.log("POST", "/events$")), 0, "events after a restart")
        true(count <= 3, f"{count} events")


@test
def consented():
    """a wish whose consent comes a moment later is refused by no event, one that is taken back neither"""
    with World() as world:
        world.pod("p", device(1, 3000, 30) + ";", lock=True)
        answer = world.allocate(device_id(1, 0))
        world.told("p")
        more, other = (json.dumps({"main": {"gpumem": mib}}) for mib in (5000, 6000))
        world.annotate("p", **{LIMITS: more})
        until(lambda: "5000" in (world.records()[0].get("wish") or ""), "the look at the wish")
        world.annotate("p", **{CONSENT: proof("uid-p", more)})
        until(lambda: answer.grant().devices == [(uuid(1), 5000, 30)], "what was agreed to")
        world.annotate("p", **{LIMITS: other})
        until(lambda: "6000" in (world.records()[0].get("wish") or ""), "the look at the other wish")
        world.annotate("p", **{LIMITS: None, CONSENT: None})
        until(lambda: answer.grant().devices == [(uuid(1), 3000, 30)], "what was assigned")
        time.sleep(11)  # longer than a refusal is put off
        equal(world.server.log("POST", "/events$"), [], "events")


@test
def raised_too_far():
    """consent to more than the card has left is refused, too"""
    cards = [{"uuid": uuid(1), "memory_mib": 8000, "replicas": 4}]
    with World(cards=cards) as world:
        world.pod("p", device(1, 3000) + ";", lock=True)
        answer = world.allocate(device_id(1, 0))
        world.told("p")
        world.pod("q", device(1, 3000) + ";", lock=True)
        world.allocate(device_id(1, 1))
        for mib, holds in ((5001, 3000), (5000, 5000)):
            wish = json.dumps({"main": {"gpumem": mib}})
            world.annotate("p", **{LIMITS: wish, CONSENT: proof("uid-p", wish)})
            time.sleep(QUIET_S)
            until(lambda h=holds: answer.grant().devices == [(uuid(1), h, 0)], f"{holds} MiB")
            tap.checked()


@test
def bad_wishes():
    """a wish that is no JSON, or says what is not known, changes nothing"""
    with World() as world:
        world.pod("p", device(1, 3000) + ";", lock=True)
        answer = world.allocate(device_id(1, 0))
        for bad in ("{", "[]", '{"main": {"gpumem": 0}}', '{"main": {"gpumem": -5}}', '{"main": {"mem": 5}}',
                    '{"main": {"gpumem": 1e30}}', "x" * 100000):
            world.annotate("p", **{LIMITS: bad})
        world.annotate("p", **{LIMITS: '{"main": {"gpumem": 7}}'})
        until(lambda: answer.grant().devices == [(uuid(1), 7, 0)], "the good one")
        tap.checked()


@test
def preferred():
    """kubelet is told to take the cards that the scheduler chose, and its choice is followed"""
    with World(preferred=True) as world:
        world.pod("p", device(2, 100) + ";", lock=True)
        world.settle()
        ids = [device_id(1, 0), device_id(1, 1), device_id(2, 4), device_id(2, 5)]
        told = world.kubelet.call("preferred", containers=[{"available": ids, "must_include": [], "size": 1}])
        equal(told["containers"], [[device_id(2, 4)]])
        answer = world.allocate(device_id(1, 1))
        equal(answer.envs["NVIDIA_VISIBLE_DEVICES"], uuid(1))
        equal(answer.grant().devices, [(uuid(1), 100, 0)])
        told = world.kubelet.call("preferred", containers=[{"available": ids, "must_include": [ids[1]], "size": 2}])
        equal((len(told["containers"][0]), ids[1] in told["containers"][0]), (2, True))


@test
def hostile():
    """Pods with absurd annotations and names harm no other"""
    with World() as world:
        world.pod("big", "x,y" * 80000 + ";", seconds=1, counts={"main": 1})
        world.pod("odd", "GPU-1,NVIDIA,-5,0:;", seconds=1, counts={"main": 1})
        world.pod("slots", ";" * 3000 + device(1, 1) + ";", seconds=1, counts={"main": 1})
        world.pod("p", device(1, 3000) + ";", seconds=5)
        equal(world.allocate(device_id(1, 0)).grant().who, ("p", "main"))
        world.told("p")


@test
def policy():
    """a node that has switched core limits off says so in the grant, too"""
    with World(core_limit_disabled=True) as world:
        world.pod("p", device(1, 3000, 30) + ";", lock=True)
        answer = world.allocate(device_id(1, 0))
        equal(answer.grant().policy, 2)
        equal(answer.envs["GPU_CORE_UTILIZATION_POLICY"], "disable")
    with World(core_policy="force") as world:
        world.pod("p", device(1, 3000, 30) + ";", lock=True)
        equal(world.allocate(device_id(1, 0)).grant().policy, 1)


@test
def many():
    """thirty Pods at once: each gets its own, none is served twice, and all is told"""
    with World(cards=4) as world:
        for i in range(30):
            world.pod(f"p{i}", device(1 + i % 4, 100 + i) + ";", seconds=1000 + i)
        world.settle()
        tags = [world.kubelet.start("allocate", containers=[[device_id(1 + i % 4, i // 4)]]) for i in range(30)]
        got = [world.kubelet.wait("allocate", tag=tag)[0] for tag in tags]
        equal({t["status"] for t in got}, {"OK"})
        records = world.records()
        equal(sorted(r["pod"] for r in records), sorted(f"p{i}" for i in range(30)))
        for i in range(30):
            world.told(f"p{i}")
        equal([r["devices"][0]["memory_mib"] for r in records], [100 + i for i in range(30)])
        equal({ALLOCATED in world.server.store.get("pods", "default", f"p{i}")["metadata"]["annotations"]
               for i in range(30)}, {True})


assert MIB
tap.main()
