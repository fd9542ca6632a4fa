# SPDX-License-Identifier: Apache-2.0
"""cases BUILD [DIRECTORY] [daemon]: behaviour cases of the kinds allocate and plugin.preferred as JSON (a file has
one case or a list of them), against the plugin's allocation between a fake kubelet and a fake API server;
with `daemon` those of the kind allocate against vgpu-device-plugin itself. Without a directory:
test/cluster/cases."""
import glob
import json
import os
import re
import sys
import time

import daemon_world
from plugin_world import ALLOCATED, KEY, LOCK, PHASE, QUIET_S, ROOT, TO_ALLOCATE, World, device_id, proof, tap, until

HAMI_KIND, KIND = "k8s.device-plugin.nvidia.com/gpu", "nvidia.com/gpu"
DIRECTORY = sys.argv[2] if len(sys.argv) > 2 else os.path.join(ROOT, "test", "cluster", "cases")
DAEMON = "daemon" in sys.argv[3:]
CARDS = daemon_world.uuids() if DAEMON else []


def physical(identifier):
    if identifier.startswith("MIG-"):
        return identifier
    return identifier.rsplit("-", 1)[0] if identifier.count("-") == 6 else identifier


def devices_of(text):
    """The fields of the devices of a device string, as far as it can be read."""
    found = [part.split(",") for part in re.split("[:;]", text or "") if part.count(",") >= 3]
    return [fields for fields in found if fields[2].lstrip("-").isdigit()]


def annotations(pod):
    return pod["metadata"].setdefault("annotations", {})


class Case:
    def __init__(self, case):
        self.case, self.input, self.expect = case, case["input"], case["expect"]
        self.plugin = self.input.get("plugin", {})

    def cards(self):
        named = list(self.plugin.get("cards", []))
        strings = [device for pod in self.input["pods"] for device in devices_of(annotations(pod).get(TO_ALLOCATE))]
        if not named:
            named = [device[0] for device in strings]
            named += [physical(i) for ids in self.input["kubelet_request"] for i in ids]
        most = sum(int(device[2]) for device in strings)
        memory = 24576 if most <= 24576 * self.plugin.get("deviceMemoryScaling", 1) else most
        return [{"uuid": card, "memory_mib": memory, "replicas": 20, "cores": 1000}
                for card in dict.fromkeys(named)]

    def config(self):
        plugin = self.plugin
        return {"node": plugin.get("node_name", "n1"), "mode": plugin.get("mode", "hami-core"),
                "memory_scaling": plugin.get("deviceMemoryScaling", 1),
                "core_limit_disabled": plugin.get("disableCoreLimit", False),
                "log_level": plugin.get("libCudaLogLevel", ""),
                "strategies": plugin.get("deviceListStrategy", "envvar"),
                "preferred": plugin.get("enableGetPreferredAllocation", False),
                "by_index": plugin.get("deviceIDStrategy") == "index",
                "gdrcopy": plugin.get("gdrcopyEnabled", False), "gds": plugin.get("gdsEnabled", False),
                "mofed": plugin.get("mofedEnabled", False), "require_proof": plugin.get("requireProof", False)}

    # -- allocate

    def put_pods(self, world):
        for pod in self.input["pods"]:
            notes = annotations(pod)
            if notes.get("vgpu.io/proof") == "make":
                notes["vgpu.io/proof"] = proof(pod["metadata"]["uid"], notes[ALLOCATED],
                                               self.plugin.get("node_name", "n1"), KEY)
            deleted = pod["metadata"].get("deletionTimestamp")
            world.server.put("pods", pod)
            if deleted:
                world.server.put("pods", pod)  # what is written over keeps it
        notes = {k: v for k, v in self.input.get("node_annotations", {}).items() if v}
        if notes:
            world.annotate_node(**notes)
        for path in self.input.get("host_files", []):
            path = self.inside(path, world)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="ascii"):
                pass

    def inside(self, text, world):
        """The case's paths are below another HOOK_PATH."""
        hook = self.plugin["hook_path"]
        return world.hook + text[len(hook):] if text.startswith(hook + "/") else text

    def outside(self, text, world):
        for record in world.records():
            if record["directory"] if "directory" in record else None:
                text = text.replace(f"/containers/{record['directory']}",
                                    f"/containers/{record['uid']}_{record['container']}")
        return text.replace(world.hook + "/", self.plugin["hook_path"] + "/")

    def check_answer(self, told, wanted, world):
        envs = {k: self.outside(v, world) for k, v in (told.get("envs") or {}).items()}
        mounts = {(self.outside(m["container_path"], world), self.outside(m["host_path"], world), m["read_only"])
                  for m in told.get("mounts") or []}
        for name, value in wanted.get("envs", {}).items():
            tap.equal(envs.get(name), value, name)
        for name, pattern in wanted.get("envs_regex", {}).items():
            tap.true(re.search(pattern, envs.get(name, "")), f"{name} is {envs.get(name)}")
        for name in wanted.get("envs_absent", []):
            tap.true(name not in envs, f"{name} is there")
        listed = {key: {(m["container_path"], m["host_path"], m["ro"]) for m in wanted.get(key, [])}
                  for key in ("mounts", "mounts_include")}
        if "mounts" in wanted:
            tap.equal({m for m in mounts if not m[0].startswith("/etc/vgpu")}, listed["mounts"], "mounts")
        tap.true(listed["mounts_include"] <= mounts, f"mounts are {mounts}")
        if "cdi_devices" in wanted:
            tap.equal(told.get("cdi_devices") or [], [n.replace(HAMI_KIND, KIND) for n in wanted["cdi_devices"]], "CDI names")
        for key, value in wanted.get("annotations", {}).items():
            start = key.rsplit("_", 1)[0]
            found = [v for k, v in (told.get("annotations") or {}).items() if k.startswith(start)]
            tap.equal(found, [value.replace(HAMI_KIND, KIND)], key)

    def check_after(self, world):
        pods = {pod["metadata"]["name"]: pod["metadata"].get("namespace", "default") for pod in self.input["pods"]}

        def note(pod, key):
            return annotations(world.server.store.get("pods", pods[pod], pod)).get(key)
        expect = self.expect
        chosen = expect.get("chosen")
        first = chosen or (self.input["pods"][0]["metadata"]["name"] if self.input["pods"] else None)

        def state():
            left = (note(first, TO_ALLOCATE) or "") if first else ""
            wrong = [f"{key} of {pod} is {note(pod, key)}" for pod, wanted in
                     expect.get("pod_annotations_after", {}).items() for key, value in wanted.items()
                     if note(pod, key) != value]
            if expect.get("to_allocate_empty", not left.strip(";:,")) != (not left.strip(";:,")):
                wrong.append(f"to-allocate is {left}")
            if expect.get("to_allocate", left) != left or expect.get("to_allocate_contains", "") not in left:
                wrong.append(f"to-allocate is {left}")
            lock = world.node_annotation(LOCK)
            if expect.get("lock_released", lock is None) != (lock is None):
                wrong.append(f"the lock is {lock}")
            return wrong
        end = time.monotonic() + 20
        while state() and time.monotonic() < end:
            time.sleep(0.05)
        if expect.get("lock_released") is False or "error_contains" in expect:
            time.sleep(QUIET_S / 2)
        tap.equal(state(), [], "what is wrong")
        if chosen:
            tap.equal({r["pod"] for r in world.records()}, {chosen}, "who was chosen")

    def allocate(self):
        make = daemon_world.DaemonWorld if DAEMON else World
        with make(cards=self.cards(), **self.config()) as world:
            self.put_pods(world)
            time.sleep(QUIET_S)
            told = world.kubelet.call("allocate", containers=self.input["kubelet_request"])
            if "error_contains" in self.expect:
                tap.true(told["status"] != "OK", "it succeeded")
                tap.true(self.expect["error_contains"] in told["text"], told["text"])
            else:
                tap.equal(told["status"], "OK", told["text"])
                for got, wanted in zip(told["containers"], self.expect.get("responses", [])):
                    self.check_answer(got, wanted, world)
            self.check_after(world)

    # -- plugin.preferred

    def preferred(self):
        given = self.input
        with World(cards=[], preferred=True) as world:
            world.kubelet.wait("devices")
            text = given.get("annotation")
            slots = [part for part in (text or "").split(";")[:-1] if part.count(":") == given["size"]]
            if text and slots and given["size"]:
                world.pod("p", text, containers=[f"c{i}" for i in range(text.count(";"))], lock=True)
                time.sleep(QUIET_S)
            told = world.kubelet.call("preferred", containers=[
                {"available": given["available"], "must_include": given["must_include"], "size": given["size"]}])
            if self.expect.get("error"):
                tap.true(told["status"] != "OK", "it succeeded")
            else:
                tap.equal(told["containers"], [self.expect["device_ids"]])


def add(case):
    run = {"allocate": Case.allocate, "plugin.preferred": Case.preferred}.get(case["kind"])
    if DAEMON:
        run = Case.allocate if case["kind"] == "allocate" else None
        case = run and daemon_world.translate(case, CARDS)
    if not run or not case:
        return

    def function():
        run(Case(case))
    function.__doc__ = case["name"]
    tap.test(function)


for file in sorted(glob.glob(os.path.join(DIRECTORY, "*.json"))):
    with open(file, encoding="utf-8") as stream:
        content = json.load(stream)
    for one in content if isinstance(content, list) else [content]:
        add(one)
assert PHASE and device_id and until
tap.main()
