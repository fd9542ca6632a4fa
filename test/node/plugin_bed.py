# SPDX-License-Identifier: Apache-2.0
"""A node for vgpu-device-plugin: an API server, a kubelet, simulated cards, and the daemon itself.
BUILD is the build directory, the first argument of a test."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "test", "process"))
sys.path.insert(0, os.path.join(ROOT, "test", "kube"))
import api_server  # noqa: E402
import tap  # noqa: E402

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build")
PROGRAM = os.path.join(BUILD, "src/daemon/vgpu-device-plugin")
PATIENCE_S = 90  # for what must happen; a slow machine takes a few
GPU = "nvidia.com/gpu"
REGISTER, SCORES = "hami.io/node-nvidia-register", "hami.io/node-nvidia-score"


def wait_for(what, condition, shown=lambda: ""):
    """The first value of the condition that is true."""
    until = time.monotonic() + PATIENCE_S
    while True:
        value = condition()
        if value:
            tap.checked()
            return value
        if time.monotonic() > until:
            raise AssertionError(f"no {what}: {shown()}")
        time.sleep(0.02)


class Lines:
    """What a process says at a pipe, gathered by a thread."""

    def __init__(self, pipe, decode):
        self.lines, self.news, self.decode = [], threading.Condition(), decode
        self.thread = threading.Thread(target=self.read, args=(pipe,), daemon=True)
        self.thread.start()

    def read(self, pipe):
        for line in pipe:
            with self.news:
                self.lines.append(self.decode(line))

    def find(self, matches, since=0):
        with self.news:
            return [line for line in self.lines[since:] if matches(line)]

    def count(self):
        with self.news:
            return len(self.lines)


class Kubelet:
    def __init__(self, directory):
        self.process = subprocess.Popen([os.path.join(BUILD, "test/node/fake-kubelet"), directory],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.events = Lines(self.process.stdout, json.loads)
        self.wait("serving")

    def do(self, what, **members):
        self.process.stdin.write(json.dumps({"do": what, **members}) + "\n")
        self.process.stdin.flush()

    def wait(self, kind, since=0, matches=lambda event: True):
        return wait_for(f"{kind} at the kubelet", lambda: self.events.find(
            lambda event: event["event"] == kind and matches(event), since), lambda: self.events.lines[-5:])[0]

    def devices(self, resource=GPU):
        """{id: healthy} of the last list; None before the first one."""
        lists = self.events.find(lambda e: e["event"] == "devices" and e["resource"] == resource)
        return {d["id"]: d["health"] == "Healthy" for d in lists[-1]["devices"]} if lists else None

    def end(self):
        self.process.kill()
        self.process.wait()


class Plugin:
    def __init__(self, node, *flags, environment=None):
        self.node = node
        self.process = subprocess.Popen([PROGRAM, *flags], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **node.environment, **(environment or {})})
        self.log = Lines(self.process.stderr, str.rstrip)

    def wait_line(self, text, since=0):
        return wait_for(f"line {text!r}", lambda: self.log.find(lambda line: text in line, since),
                        lambda: self.log.lines[-10:])[0]

    def end(self, number=signal.SIGTERM):
        """Its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the plugin does not end: {self.log.lines[-10:]}") from None
        self.log.thread.join(PATIENCE_S)
        return status


class Node:
    """With-statement. `sim`: the simulator's description; `driver`: whether NVML is there at first."""

    def __init__(self, sim="2xh200", driver=True, name="n1", annotations=None):
        self.sim, self.with_driver, self.name, self.annotations = sim, driver, name, annotations or {}
        self.plugins = []

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="p-")
        for name in ("kubelet", "hook", "driver/usr/lib"):
            os.makedirs(self.path(name))
        self.server = api_server.Server().start()
        self.server.put("nodes", {"metadata": {"name": self.name, "annotations": self.annotations}})
        self.write("kubeconfig", {
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.server.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}]})
        self.environment = {
            "KUBECONFIG": self.path("kubeconfig"), "NODE_NAME": self.name, "HOOK_PATH": self.path("hook"),
            "KUBELET_SOCKET": self.path("kubelet/kubelet.sock"), "NVIDIA_DRIVER_ROOT": self.path("driver"),
            "VGPU_SIM": self.sim, "VGPU_SIM_MACHINE": self.path("machine"),
            "VGPU_SIM_FAULTS": self.path("faults"), "LD_LIBRARY_PATH": ""}
        self.write("faults", "")
        self.write("config.json", {"nodeconfig": []})
        self.write("device-config.yaml", "nvidia:\n  deviceSplitCount: 3\n")
        if self.with_driver:
            self.load_driver()
        self.kubelet = Kubelet(self.path("kubelet"))
        return self

    def __exit__(self, *failure):
        try:
            for plugin in self.plugins:
                status = plugin.end()
                if not failure[0] and status != 0:
                    raise AssertionError(f"the plugin ended with {status}: {plugin.log.lines[-10:]}")
            if not failure[0]:
                left = [n for n in os.listdir(self.path("kubelet")) if n.startswith("nvidia-")]
                tap.equal(left, [] if self.plugins else left, "sockets that are left")
        finally:
            for plugin in self.plugins:
                plugin.process.kill()
            self.kubelet.end()
            self.server.stop()
            shutil.rmtree(self.directory, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, content):
        """Another file takes the place, as a volume of Kubernetes does it."""
        with open(self.path(name + ".new"), "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        os.replace(self.path(name + ".new"), self.path(name))

    def load_driver(self):
        os.symlink(os.path.join(BUILD, "src/sim/libnvidia-ml.so.1"),
                   self.path("driver/usr/lib/libnvidia-ml.so.1"))

    def fault(self, line):
        with open(self.path("faults"), "a", encoding="ascii") as file:
            file.write(line + "\n")

    def flags(self):
        return ["--config-file", self.path("device-config.yaml"), "--node-config-file",
                self.path("config.json"), "--library-source", "", "--rescan-interval=2"]

    def start(self, *flags, environment=None):
        plugin = Plugin(self, *self.flags(), *flags, environment=environment)
        self.plugins.append(plugin)
        return plugin

    def refuse(self, *flags, environment=None):
        """(status, lines) of a plugin that does not run."""
        plugin = Plugin(self, *self.flags(), *flags, environment=environment)
        try:
            plugin.process.wait(PATIENCE_S)
        finally:
            plugin.process.kill()
        plugin.log.thread.join(PATIENCE_S)
        return plugin.process.returncode, plugin.log.lines

    # -- what the cluster sees

    def node(self):
        return self.server.store.get("nodes", None, self.name)

    def annotation(self, key):
        return (self.node()["metadata"].get("annotations") or {}).get(key)

    def annotate(self, **values):
        def change(before):
            after = api_server.clone(before)
            annotations = after["metadata"].setdefault("annotations", {})
            for key, value in values.items():
                annotations[key] = value
            return after
        self.server.store.change("nodes", None, self.name, change, raw=True)

    def remove_annotation(self, key):
        def change(before):
            after = api_server.clone(before)
            after["metadata"]["annotations"].pop(key, None)
            return after
        self.server.store.change("nodes", None, self.name, change, raw=True)

    def registered(self):
        return json.loads(self.annotation(REGISTER) or "null")

    def wait_registered(self, condition=lambda cards: True):
        return wait_for("registration", lambda: self.registered() is not None and
                        condition(self.registered()) and self.registered(),
                        lambda: (self.annotation(REGISTER), [p.log.lines[-5:] for p in self.plugins]))

    def patches(self):
        return [e for e in self.server.log("PATCH", "/api/v1/nodes") if e["status"] == 200]

    def wait_devices(self, condition, resource=GPU):
        return wait_for("devices", lambda: self.kubelet.devices(resource) is not None and
                        condition(self.kubelet.devices(resource)) and self.kubelet.devices(resource),
                        lambda: (self.kubelet.devices(resource), [p.log.lines[-5:] for p in self.plugins]))

    def wait_event(self, reason):
        return wait_for(f"event {reason}", lambda: [e for e in self.server.store.items("events")
                                                    if e["reason"] == reason],
                        lambda: self.server.store.items("events"))[0]


def health_of(devices, uuid):
    """True or False where all replicas agree, else None."""
    states = {healthy for name, healthy in devices.items() if name.startswith(uuid)}
    return states.pop() if len(states) == 1 else None
