# SPDX-License-Identifier: Apache-2.0
"""A fake API server and a vgpu-scheduler on it. scheduler_world.BUILD is the build directory."""
import http.client
import json
import os
import re
import signal
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
PHASE = "hami.io/bind-phase"
ALLOCATED, TO_ALLOCATE = "hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate"
NODE, TIME = "hami.io/vgpu-node", "hami.io/vgpu-time"
REGISTER, LOCK, PLUGIN = "hami.io/node-nvidia-register", "hami.io/mutex.lock", "vgpu.io/plugin"


def until(condition, what="it"):
    """What the condition is when it is true."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"{what} has not come")
        time.sleep(0.02)


def make_node(name, cards=1, ours=True, memory=10000, count=10, **annotations):
    devices = [{"id": f"GPU-{name}-{i}", "index": i, "count": count, "devmem": memory, "devcore": 100,
                "type": "NVIDIA A10", "mode": "hami-core", "health": True} for i in range(cards)]
    said = {REGISTER: json.dumps(devices), **annotations}
    if ours:
        said[PLUGIN] = "1"
    return {"metadata": {"name": name, "annotations": said},
            "status": {"allocatable": {"nvidia.com/gpu": str(cards * count)}}}


def make_pod(name, memory=1000, cards=1, namespace="default", **annotations):
    limits = {"nvidia.com/gpu": str(cards), "nvidia.com/gpumem": str(memory)} if cards else {}
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]}}


class Later:
    """What a function returns that runs beside the test."""

    def __init__(self, function, *arguments):
        self.value, self.arguments, self.function = None, arguments, function
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        self.value = self.function(*self.arguments)

    def is_over(self, within_s=0.0):
        self.thread.join(within_s)
        return not self.thread.is_alive()

    def get(self):
        tap.true(self.is_over(PATIENCE_S), "it ends")
        return self.value


class World:
    """With the objects, a list of (resource, object), before the scheduler starts; server: one that others share."""

    def __init__(self, objects=(), options=(), key=None, ready=True, server=None):
        self.ready = ready
        self.owns_server = server is None
        self.server = server or api_server.Server().start()
        self.directory = tempfile.mkdtemp()
        for resource, item in objects:
            self.create(resource, item)
        self.options = list(options)
        if key:
            path = os.path.join(self.directory, "key")
            with open(path, "w", encoding="ascii") as file:
                file.write(key)
            self.options.append(f"--proof-key-file={path}")
        config = os.path.join(self.directory, "kubeconfig")
        with open(config, "w", encoding="ascii") as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                       "clusters": [{"name": "c", "cluster": {"server": self.server.url}}],
                       "users": [{"name": "u", "user": {}}],
                       "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}, file)
        self.config, self.process = config, None
        self.start()

    def create(self, resource, item):
        return self.server.store.create(resource, item["metadata"].get("namespace", ""), item)

    def start(self):
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "src/daemon/vgpu-scheduler"), "--http_bind=127.0.0.1:0",
             "--metrics-bind-address=127.0.0.1:0", *self.options],
            env={**os.environ, "KUBECONFIG": self.config}, stderr=subprocess.PIPE, text=True)
        self.lines = []
        threading.Thread(target=self.read, args=(self.process,), daemon=True).start()
        ports = until(lambda: re.search(r"port (\d+), metrics at port (\d+), extender at port (\d+)", "\n".join(self.lines)),
                      "the scheduler's ports")
        self.port, self.metrics_port, self.extender_port = (int(ports[i]) for i in (1, 2, 3))
        if self.ready:
            self.wait_ready()

    def wait_ready(self, ready=True):
        until(lambda: (self.get("/readyz")[0] == 200) == ready, "readiness")

    def read(self, process):
        for line in process.stderr:
            self.lines.append(line.rstrip("\n"))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE_S)
        self.stop_server()
        tap.equal(status, 0, "the exit status")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.close()
            return
        print("\n".join("# " + line for line in self.lines[-20:]))
        self.kill()
        self.stop_server()

    def stop_server(self):
        if self.owns_server:
            self.server.stop()

    def request(self, method, path, body=None, port=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=PATIENCE_S)
        connection.request(method, path, body)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def get(self, path, port=None):
        return self.request("GET", path, port=port)

    def post(self, path, value):
        port = self.extender_port if path in ("/filter", "/bind") else self.port
        status, text = self.request("POST", path, json.dumps(value), port)
        tap.equal(status, 200, "the status")
        return json.loads(text)

    def filter(self, pod, names):
        return self.post("/filter", {"Pod": pod, "NodeNames": names})

    def bind(self, pod, node):
        metadata = pod["metadata"]
        return self.post("/bind", {"PodName": metadata["name"], "PodNamespace": metadata["namespace"],
                                   "PodUID": metadata["uid"], "Node": node})["Error"]

    def place(self, name, nodes, memory=1000, **options):
        """Creates a Pod, filters and binds it. (Pod as the API server has it, error)."""
        pod = self.create("pods", make_pod(name, memory, **options))
        answer = self.filter(pod, nodes)
        if answer["Error"] or not answer["NodeNames"]:
            return pod, answer["Error"] or json.dumps(answer["FailedNodes"])
        return self.pod(name), self.bind(pod, answer["NodeNames"][0])

    def pod(self, name, namespace="default"):
        return self.server.store.get("pods", namespace, name)

    def said(self, name):
        return self.pod(name)["metadata"].get("annotations") or {}

    def node(self, name):
        return self.server.store.get("nodes", "", name)

    def annotate(self, resource, namespace, name, **annotations):
        self.server.store.patch(resource, namespace, name, "application/merge-patch+json",
                                {"metadata": {"annotations": annotations}})

    def serve(self, name, namespace="default"):
        """What the node's plugin writes when kubelet has asked for all devices of a Pod."""
        said = self.pod(name, namespace)["metadata"]["annotations"]
        self.annotate("pods", namespace, name, **{
            TO_ALLOCATE: ";" * said[TO_ALLOCATE].count(";"), PHASE: "success"})

    def metric(self, start):
        """The value of the sample whose line begins so; None."""
        for line in self.get("/metrics", self.metrics_port)[1].splitlines():
            if line.startswith(start):
                return float(line.split()[-1])
        return None

    def requests(self, path):
        """Of programs, except watches and events."""
        return [f"{e['method']} {e['path']}" for e in self.server.log()
                if re.search(path, e["path"]) and "watch" not in e["query"]]
