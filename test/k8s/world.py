# SPDX-License-Identifier: Apache-2.0
"""The one cluster of all tests: vgpu's DaemonSet on it as deploy/kubernetes/ has it, and Pods that get
a share of a simulated card."""
import glob
import json
import os
import shutil
import urllib.request

from tap import Skip

import peers
from control_plane import ControlPlane, Refused, wait_for
from hami import LOCK, Scheduler
from machine import Machine
from node import IMAGE, ROOT, Node

CARDS = "2xh200"
MACHINE = "/run/vgpu-sim"       # where the simulated machine's file lies, for the plugin and for Pods
DRIVER = "/run/vgpu-driver"     # the driver's root on the node
NAMESPACE = "/api/v1/namespaces/default/pods"
# What an operator may change of the manifest, and the simulator's place.
KUSTOMIZATION = {
    "resources": ["node.yaml"],
    "patches": [{"target": {"kind": "DaemonSet", "name": "vgpu-node"}, "patch": None}]}


class World:
    """Made by the first test; what was reached stands in it."""

    build = plane = node = api = hami = reason = version = None

    @classmethod
    def start(cls, build, *api_server):
        """With flags of the API server, which it keeps."""
        reason = os.environ.get("VGPU_TEST_CLUSTER_REASON") or peers.why_not()
        if reason:
            raise Skip(reason)
        print("# " + "; ".join(peers.versions()), flush=True)
        cls.build = build
        cls.plane = ControlPlane(Machine(os.environ["TMPDIR"], os.environ["VGPU_TEST_CLUSTER"]))
        cls.node = Node(cls.plane, build)
        cls.reason = cls.node.make_image()
        if cls.reason:
            raise Skip(cls.reason)
        cls.plane.api_server = api_server
        cls.plane.start_all()
        cls.node.start_runtime()
        cls.node.start_kubelet()
        wait_for("the node is ready", cls.node.is_ready)
        wait_for("the ServiceAccount of Pods is there",
                 lambda: cls.plane.api.found("/api/v1/namespaces/default/serviceaccounts/default"))
        cls.api, cls.hami = cls.plane.api, Scheduler(cls.plane.api)

    @classmethod
    def need(cls):
        """For all tests but the first."""
        if not cls.api:
            raise Skip(os.environ.get("VGPU_TEST_CLUSTER_REASON") or peers.why_not() or cls.reason or
                       "the cluster did not start")

    @classmethod
    def install_driver(cls):
        """The simulator's NVML where a driver's is."""
        os.makedirs(DRIVER + "/usr/lib64", exist_ok=True)
        shutil.copy(os.path.join(cls.build, "src/sim/libnvidia-ml.so.1"), DRIVER + "/usr/lib64/")
        os.makedirs(MACHINE, exist_ok=True)
        os.chmod(MACHINE, 0o1777)

    @classmethod
    def apply_daemons(cls):
        """The manifest of deploy/kubernetes, with the driver's root changed as an operator does it."""
        shutil.copy(os.path.join(ROOT, "deploy/kubernetes/node.yaml"), cls.plane.machine.path())
        simulator = [{"name": "VGPU_SIM", "value": CARDS}, {"name": "VGPU_SIM_MACHINE", "value": MACHINE + "/machine"}]
        fast = {"device-plugin": [], "monitor": [{"name": "HAMI_RESYNC_INTERVAL", "value": "2s"}]}
        patch = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "vgpu-node"},
                 "spec": {"template": {"spec": {
                     "containers": [{"name": name, "env": simulator + fast[name],
                                     "volumeMounts": [{"name": "sim", "mountPath": MACHINE}]} for name in fast],
                     "volumes": [{"name": "driver-root", "hostPath": {"path": DRIVER, "type": "Directory"}},
                                 {"name": "sim", "hostPath": {"path": MACHINE}}]}}}}
        KUSTOMIZATION["patches"][0]["patch"] = json.dumps(patch)
        with open(cls.plane.machine.path("kustomization.yaml"), "w", encoding="utf-8") as file:
            json.dump(KUSTOMIZATION, file)
        cls.plane.kubectl("apply", "-k", cls.plane.machine.directory)

    @classmethod
    def daemon_pods(cls):
        selector = "labelSelector=app.kubernetes.io/name%3Dvgpu-node"
        return cls.api.get(f"/api/v1/namespaces/kube-system/pods?{selector}")["items"]

    @classmethod
    def wait_daemons(cls):
        def ready():
            pods = [pod for pod in cls.daemon_pods() if "deletionTimestamp" not in pod["metadata"]]
            containers = [pod["status"].get("containerStatuses", [{"ready": False}]) for pod in pods]
            return pods and all(one["ready"] for some in containers for one in some)
        wait_for("the Pod of plugin and monitor is ready", ready, seconds=120)

    @classmethod
    def plugin_log(cls):
        """Of the youngest Pod; from the node's files, since the kubelet may be away."""
        directory = max(glob.glob("/var/log/pods/kube-system_vgpu-node-*/device-plugin"), key=os.path.getmtime)
        lines = []
        for path in sorted(glob.glob(directory + "/*.log")):
            with open(path, encoding="utf-8") as file:
                lines += [line.split(" ", 3)[-1] for line in file]  # behind the time, the stream and a flag
        return "".join(lines)

    @classmethod
    def metrics(cls):
        """The monitor's."""
        address = cls.daemon_pods()[0]["status"]["podIP"]
        with urllib.request.urlopen(f"http://{address}:9394/metrics", timeout=10) as answer:
            return answer.read().decode()

    @classmethod
    def allocatable(cls):
        return int(cls.api.get("/api/v1/nodes/n1")["status"]["allocatable"].get("nvidia.com/gpu", "0"))

    @classmethod
    def uuids(cls):
        return [device["id"] for device in cls.hami.devices()]

    # ---- Pods ----

    @classmethod
    def create(cls, name, containers, init=(), **more):
        """Of containers as share() makes them."""
        cls.api.call("POST", NAMESPACE, {"metadata": {"name": name}, "spec": {
            "schedulerName": "hami-scheduler", "terminationGracePeriodSeconds": 1, "containers": containers,
            "initContainers": list(init), "volumes": [{"name": "sim", "hostPath": {"path": MACHINE}}], **more}})

    @classmethod
    def pod(cls, name):
        return cls.api.get(f"{NAMESPACE}/{name}")

    @classmethod
    def wait_running(cls, name):
        def look():
            status = cls.pod(name)["status"]
            if status["phase"] == "Failed":
                raise AssertionError(f"the Pod {name} failed: {status}")
            return status["phase"] == "Running" and all(one["ready"] for one in status["containerStatuses"])
        try:
            wait_for(f"the Pod {name} runs", look, seconds=120)
        except AssertionError as error:
            events = cls.plane.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp").stdout.splitlines()[-8:]
            log = cls.plugin_log().splitlines()[-8:]
            raise AssertionError("\n".join([str(error), *events, *log])) from error

    @classmethod
    def run(cls, pod, *command, container="main", check=True):
        return cls.plane.kubectl("exec", pod, "-c", container, "--", *command, check=check)

    @classmethod
    def end_container(cls, pod, name):
        """Kills its first process, from the node."""
        status = next(one for one in cls.pod(pod)["status"]["containerStatuses"] if one["name"] == name)
        cls.node.ctr("tasks", "kill", "--signal", "SIGKILL", status["containerID"].rpartition("/")[2])

    @classmethod
    def clean(cls):
        """Deletes all Pods of tests, and takes a lock from the node that a failed one left."""
        cls.delete(*[pod["metadata"]["name"] for pod in cls.api.get(NAMESPACE)["items"]])
        if LOCK in cls.hami.annotations():
            cls.api.patch("/api/v1/nodes/n1", {"metadata": {"annotations": {LOCK: None}}})

    @classmethod
    def delete(cls, *names):
        for name in names:
            try:
                cls.api.call("DELETE", f"{NAMESPACE}/{name}")
            except Refused as refused:  # gone meanwhile
                if refused.status != 404:
                    raise
        wait_for(f"{', '.join(names)} gone",
                 lambda: not any(cls.api.found(f"{NAMESPACE}/{name}") for name in names))


def share(name="main", memory=3000, cores=30, command=("sleep", "infinity"), user=0, **more):
    """A container that asks for a share of a card, as HAMi's users write it."""
    return {"name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": list(command),
            "securityContext": {"runAsUser": user},
            "env": [{"name": "VGPU_SIM", "value": CARDS}, {"name": "VGPU_SIM_MACHINE", "value": MACHINE + "/machine"},
                    {"name": "LD_LIBRARY_PATH", "value": "/usr/lib/vgpu-sim"}],
            "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory),
                                     "nvidia.com/gpucores": str(cores)}},
            "volumeMounts": [{"name": "sim", "mountPath": MACHINE}], **more}
