# SPDX-License-Identifier: Apache-2.0
"""A fake API server, a fake kubelet and the device plugin's allocation (allocation_driver.c) between
them. plugin_world.BUILD is the build directory."""
import glob
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for folder in ("process", "kube"):
    sys.path.insert(0, os.path.join(ROOT, "test", folder))
import api_server  # noqa: E402
import tap  # noqa: E402

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build")
PATIENCE_S = 60  # for what must happen; a slow machine takes a few
QUIET_S = 0.7    # in which what must not happen would have
RESOURCE = "nvidia.com/gpu"
KEY = "0123456789abcdef0123456789abcdef"
LOCK = "hami.io/mutex.lock"
TO_ALLOCATE, ALLOCATED = "hami.io/vgpu-devices-to-allocate", "hami.io/vgpu-devices-allocated"
PHASE, LIMITS, CONSENT = "hami.io/bind-phase", "vgpu.io/limits", "vgpu.io/grant"
MIB = 1 << 20


def uuid(number):
    return f"GPU-a{number:07}-1111-4222-8333-{number:012}"


def device_id(card, replica):
    return f"{uuid(card)}-{replica}"


def device(card, memory, cores=0):
    """Of a device string."""
    return f"{uuid(card)},NVIDIA,{memory},{cores}:"


def proof(pod_uid, text, node="n1", key=KEY):
    """As src/cluster/proof.h says, made here by other means."""
    import hashlib
    import hmac
    message = b"vgpu.io/proof/1\n"
    for part in (pod_uid, node, text):
        message += b"%d:%s\n" % (len(part.encode()), part.encode())
    return hmac.new(key.encode(), message, hashlib.sha256).hexdigest()


def until(condition, what="it", patience_s=PATIENCE_S):
    """What the condition is when it is true."""
    end = time.monotonic() + patience_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"{what} has not come")
        time.sleep(0.02)


class Lines:
    """What a program says, line by line."""

    def __init__(self, stream):
        self.lines, self.news = [], threading.Condition()
        self.thread = threading.Thread(target=self.read, args=(stream,), daemon=True)
        self.thread.start()

    def read(self, stream):
        for line in stream:
            with self.news:
                self.lines.append(line.rstrip("\n"))
                self.news.notify_all()

    def wait(self, wanted, what, since=0):
        """The first line from `since` on that is wanted, and the place behind it."""
        end = time.monotonic() + PATIENCE_S
        with self.news:
            at = since
            while True:
                for at in range(at, len(self.lines)):
                    if wanted(self.lines[at]):
                        return self.lines[at], at + 1
                at = len(self.lines)
                if time.monotonic() > end:
                    raise AssertionError(f"{what} has not come; the last lines are {self.lines[-8:]}")
                self.news.wait(1)


class Kubelet:
    def __init__(self, directory):
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "test/node/fake-kubelet"), directory, directory + "/resources.sock"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.events = Lines(self.process.stdout)
        self.tags = 0
        self.wait("serving")

    def say(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def wait(self, event, since=0, **members):
        def wanted(line):
            told = json.loads(line)
            return told["event"] == event and all(told.get(k) == v for k, v in members.items())
        line, at = self.events.wait(wanted, f"event {event} {members}", since)
        return json.loads(line), at

    def mark(self):
        return len(self.events.lines)

    def call(self, what, **command):
        """Asks and waits for the answer."""
        return self.wait(what, tag=self.start(what, **command))[0]

    def start(self, what, **command):
        self.tags += 1
        self.say(do=what, resource=RESOURCE, tag=self.tags, **command)
        return self.tags

    def end(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)


class Answer:
    """What one container gets."""

    def __init__(self, told):
        self.envs = told.get("envs") or {}
        self.mounts = {m["container_path"]: m for m in told.get("mounts") or []}
        self.told = told

    @property
    def limits_directory(self):
        return self.mounts["/etc/vgpu/limits.d"]["host_path"]

    def grant(self):
        return Grant(self.limits_directory)


class Grant:
    """include/vgpu/grant.h"""

    def __init__(self, directory):
        with open(os.path.join(directory, "grant"), "rb") as file:
            data = file.read()
        self.sequence, count, self.priority, self.priority_set, self.policy = struct.unpack_from("<5I", data, 24)

        def text(at, size):
            return data[at:at + size].split(b"\0")[0].decode()
        self.region, self.pod, self.namespace = text(48, 256), text(304, 256), text(560, 64)
        self.uid, self.container = text(624, 64), text(688, 64)
        self.devices = []
        for i in range(count):
            at = 1024 + 64 * i
            memory, cores = struct.unpack_from("<QI", data, at + 48)
            self.devices.append((text(at, 48), memory // MIB, cores))

    @property
    def who(self):
        return self.pod, self.container


class World:
    """With-statement. Members of the driver's configuration may be given."""

    def __init__(self, cards=2, tokens=(), **config):
        self.cards, self.config = cards, config
        self.server = api_server.Server(tokens=tokens)

    def __enter__(self):
        self.directory = tempfile.mkdtemp()
        self.server.start()
        self.server.put("nodes", {"metadata": {"name": "n1", "annotations": {"other": "kept"}}})
        self.write("kubeconfig", json.dumps({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": self.server.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}]}))
        self.write("key", KEY)
        self.hook = self.config.pop("hook_path", self.path("hook"))
        os.makedirs(self.hook + "/vgpu", exist_ok=True)
        os.mkdir(self.path("kubelet"))
        cards = self.cards
        if isinstance(cards, int):
            cards = [{"uuid": uuid(i)} for i in range(1, cards + 1)]
        self.write("config", json.dumps({
            "node": "n1", "hook_path": self.hook, "kubelet": self.path("kubelet/kubelet.sock"),
            "pod_resources": self.path("kubelet/resources.sock"), "cards": cards, "key": self.path("key"),
            **self.config}))
        self.news = False  # Pods that the watch may not have told yet
        self.kubelet = Kubelet(self.path("kubelet"))
        self.resources()
        self.plugin = None
        self.start()
        return self

    def __exit__(self, *failure):
        try:
            status = self.stop()
            if not failure[0] and status:
                raise AssertionError(f"the plugin ended with status {status}: {self.log.lines[-5:]}")
            if failure[0]:
                print("# " + "\n# ".join(self.log.lines[-12:]))
        finally:
            self.kubelet.end()
            self.server.stop()
            shutil.rmtree(self.directory, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    # -- the plugin

    def start(self, wait=True, **environment):
        mark = self.kubelet.mark()
        self.plugin = subprocess.Popen(
            [os.path.join(BUILD, "test/node/allocation-driver"), self.path("config")],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "KUBECONFIG": self.path("kubeconfig"), **environment})
        self.log = Lines(self.plugin.stderr)
        if wait:
            self.kubelet.wait("devices", mark)
            self.synced()

    def synced(self):
        """Until the plugin's watches have begun."""
        until(lambda: self.server.log("GET", "/pods$", watch=True) and self.server.log("GET", "/nodes$", watch=True),
              "the watches")

    def stop(self):
        """Its exit status."""
        if self.plugin.poll() is None:
            self.plugin.stdin.close()
        return self.plugin.wait(PATIENCE_S)

    def kill(self):
        self.plugin.send_signal(signal.SIGKILL)
        self.plugin.wait(PATIENCE_S)

    def restart(self, **environment):
        self.kill()
        self.server.clear_log()
        self.start(**environment)

    # -- the cluster

    def pod(self, name, to_allocate, containers=("main",), init=(), sidecars=(), phase="allocating", counts=None,
            seconds=1764150000, annotations=None, env=None, lock=False, status="Pending", allocated=None):
        """A Pod that the scheduler has bound here. A container asks for as many devices as its part of the
        device string has, or as `counts` says."""
        parts = to_allocate.split(";")[:-1]
        names = list(init) + list(containers)
        counts = counts or dict(zip(names, (part.count(":") for part in parts)))

        def make(container):
            made = {"name": container, "image": "i", "env": (env or {}).get(container, [])}
            if counts.get(container):
                made["resources"] = {"limits": {RESOURCE: str(counts[container])}}
            if container in sidecars:
                made["restartPolicy"] = "Always"
            return made
        item = self.server.put("pods", {
            "metadata": {"name": name, "namespace": "default", "uid": "uid-" + name, "annotations": {
                "hami.io/vgpu-node": "n1", "hami.io/bind-time": str(seconds), PHASE: phase,
                TO_ALLOCATE: to_allocate, ALLOCATED: allocated or to_allocate, **(annotations or {})}},
            "spec": {"nodeName": "n1", "initContainers": [make(c) for c in init],
                     "containers": [make(c) for c in containers]},
            "status": {"phase": status}})
        self.news = True
        if lock:
            self.lock(name)
        return item

    def bare_pod(self, name, annotations=None):
        """A Pod that has passed by our webhook and scheduler."""
        self.server.put("pods", {
            "metadata": {"name": name, "namespace": "default", "uid": "uid-" + name,
                         "annotations": annotations or {}},
            "spec": {"nodeName": "n1", "containers": [
                {"name": "main", "image": "i", "resources": {"limits": {RESOURCE: "1"}}}]},
            "status": {"phase": "Pending"}})
        self.news = True

    def settle(self):
        """Until the watch has told all."""
        if self.news:
            time.sleep(QUIET_S)
        self.news = False

    def lock(self, name):
        self.annotate_node(**{LOCK: f"2026-11-26T12:00:00Z,default,{name}"})

    def annotate_node(self, **annotations):
        self.server.store.patch("nodes", None, "n1", "application/merge-patch+json",
                                {"metadata": {"annotations": annotations}})

    def annotate(self, name, **annotations):
        self.server.store.patch("pods", "default", name, "application/merge-patch+json",
                                {"metadata": {"annotations": annotations}})

    def set_phase(self, name, phase):
        self.server.store.patch("pods", "default", name, "application/merge-patch+json",
                                {"status": {"phase": phase}}, "status")

    def remove(self, name):
        self.server.store.delete("pods", "default", name, {"gracePeriodSeconds": 0})

    def annotation(self, name, key):
        return (self.server.store.get("pods", "default", name)["metadata"].get("annotations") or {}).get(key)

    def node_annotation(self, key):
        return (self.server.store.get("nodes", None, "n1")["metadata"].get("annotations") or {}).get(key)

    def told(self, name, phase="success"):
        """Until the API server has been told all of a Pod."""
        until(lambda: self.annotation(name, PHASE) == phase and
              (phase != "success" or "NVIDIA" not in self.annotation(name, TO_ALLOCATE)),
              f"bind-phase {phase} of {name}, and the erasure")

    def unlocked(self):
        until(lambda: self.node_annotation(LOCK) is None, "the lock's release")

    # -- the kubelet

    def resources(self, **containers):
        """What pod-resources tells: pod=[(container, [device IDs])]."""
        self.kubelet.say(do="pods", pods=[
            {"namespace": "default", "name": pod, "containers": [
                {"name": name, "devices": [{"resource": RESOURCE, "ids": ids}]} for name, ids in listed]}
            for pod, listed in containers.items()])

    def allocate_raw(self, *ids):
        self.settle()
        return self.kubelet.call("allocate", containers=[list(ids)])

    def allocate(self, *ids):
        told = self.allocate_raw(*ids)
        if told["status"] != "OK":
            raise AssertionError(f"Allocate: {told}")
        return Answer(told["containers"][0])

    def pre_start_raw(self, *ids):
        self.settle()
        return self.kubelet.call("prestart", devices=list(ids))

    def pre_start(self, *ids):
        told = self.pre_start_raw(*ids)
        tap.equal(told["status"], "OK", told)

    def reported(self, reason):
        """The messages of the events with that reason."""
        return [e["message"] for e in self.server.store.items("events") if e["reason"] == reason]

    # -- the files

    def records(self):
        found = []
        for path in glob.glob(self.hook + "/vgpu/grants/*/allocation.json"):
            with open(path, encoding="utf-8") as file:
                found.append(json.load(file))
        return sorted(found, key=lambda record: record["serial"])

    def grants(self):
        return sorted(os.listdir(self.hook + "/vgpu/grants"))
