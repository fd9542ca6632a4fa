# SPDX-License-Identifier: Apache-2.0
"""end_to_end BUILD [WORD...]: the chart of deploy/chart, by helm, on a cluster of one node with a real kubelet
and containerd: Pods go from the API server through webhook, kube-scheduler, vgpu-scheduler, kubelet and
device plugin to a program that sees its share. Run by scripts/test-cluster. The first two tests always run."""
import json
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../chart"))
# pylint: disable=wrong-import-position
import helm  # noqa: E402
import tap  # noqa: E402
from tap import Skip, equal, true

import share_check
import world
from control_plane import Refused, wait_for
from hami import ALLOCATED, PHASE, device
from machine import run
from node import IMAGE, Archive, Layer
from observer import shares
from peers import program
from share_check import restarts
from world import MACHINE, NAMESPACE, World, share

SPLIT, CARDS_COUNT, MEMORY = 10, 2, 143771
SPACE, RELEASE = "kube-system", "vgpu"
KUBE_SCHEDULER = "localhost/kube-scheduler"
# The simulated machine lies in a directory that the chart mounts, and is where Pods of tests look for it.
SHARED = "/usr/local/vgpu/sim"
SIMULATOR = {"VGPU_SIM": world.CARDS, "VGPU_SIM_MACHINE": SHARED + "/machine"}
MINUTES = "7m"


def chart(command, *more, values=None):
    """helm's end, on the cluster."""
    path = World.plane.machine.path("values.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(settings(values), file)
    done = subprocess.run([helm.program(), command, RELEASE, *more, "--namespace", SPACE, "--wait",
                           "--timeout", MINUTES, f"--kubeconfig={World.plane.pki}/admin.kubeconfig",
                           *(["-f", path, helm.CHART] if command != "uninstall" else [])],
                          env={"PATH": os.environ["PATH"], "HOME": World.plane.machine.directory},
                          capture_output=True, text=True, check=False, timeout=480)
    if done.returncode:
        states = World.plane.kubectl("get", "pods,jobs,events", "-A").stdout.splitlines()[-25:]
        raise AssertionError("\n".join([f"helm {command}: {done.stderr.strip()}", *states]))
    return done.stdout


def settings(more):
    version = World.version
    values = {
        "scheduler": {"kubeScheduler": {"image": {"registry": "", "repository": KUBE_SCHEDULER, "tag": version,
                                                  "pullPolicy": "Never"}}},
        "devicePlugin": {"image": {"repository": IMAGE.partition(":")[0], "tag": IMAGE.partition(":")[2],
                                   "pullPolicy": "Never"},
                         "nvidiaDriverRoot": world.DRIVER, "extraEnvs": SIMULATOR,
                         "monitor": {"extraEnvs": SIMULATOR}}}
    for path, value in (more or {}).items():
        at = values
        *parents, last = path.split(".")
        for one in parents:
            at = at.setdefault(one, {})
        at[last] = value
    return values


def make_kube_scheduler():
    """Its image, of the program alone."""
    layer, archive = World.plane.machine.path("scheduler-layer.tar"), World.plane.machine.path("scheduler.tar")
    with Layer(layer) as content:
        content.file("usr/local/bin/kube-scheduler", program("kube-scheduler"))
        for name in ("tmp", "etc"):
            content.directory(name)
    with Archive(archive) as images:
        images.image(f"{KUBE_SCHEDULER}:{World.version}", [layer], ["kube-scheduler"], "/usr/local/bin")
    done = World.node.ctr("images", "import", "--no-unpack", archive)
    if done.returncode:
        raise RuntimeError(done.stderr)
    os.unlink(archive)
    os.unlink(layer)


def test(function):
    """One that begins without Pods of others."""
    def alone():
        if World.api:
            World.plane.kubectl("delete", "deployments", "--all", "--wait=false")
            World.clean()
        function()
    alone.__doc__ = function.__doc__
    return tap.test(alone)


def create(name, memory=3000, cores=None, **more):
    World.api.call("POST", NAMESPACE, pod(name, memory, cores, **more))


def pod(name, memory=3000, cores=None, labels=None, annotations=None, **more):
    """As a user writes it: nothing about schedulers."""
    container = share(memory=memory, cores=cores)
    limits = container["resources"]["limits"]
    for key, value in (("gpumem", memory), ("gpucores", cores)):
        if value is None:
            limits.pop("nvidia.com/" + key)
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"terminationGracePeriodSeconds": 1, "containers": [container],
                                           "volumes": [{"name": "sim", "hostPath": {"path": MACHINE}}], **more}}


def deploy(name, replicas, memory):
    template = pod(None, memory, labels={"app": name})
    template["metadata"].pop("name")
    World.api.call("POST", "/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}})


def pods_of(name):
    """(names of those that run, of those that wait)"""
    found = [one for one in World.api.get(f"{NAMESPACE}?labelSelector=app%3D{name}")["items"]
             if "deletionTimestamp" not in one["metadata"]]
    runs = [one["metadata"]["name"] for one in found if one["status"]["phase"] == "Running"]
    return runs, [one["metadata"]["name"] for one in found if one["metadata"]["name"] not in runs]


def wait_pods(name, runs, waits):
    return wait_for(f"{runs} Pods of {name} run and {waits} wait", lambda: (
        lambda found: found if [len(one) for one in found] == [runs, waits] else None)(pods_of(name)))[0]


def card_of(name):
    """What a program takes it by. The simulator shows all cards, as a runtime without NVIDIA's hook."""
    return f"CUDA_VISIBLE_DEVICES={World.uuids().index(shares(World.pod(name))[0][0][0])}"


def held_to(name, memory):
    share_check.held_to(name, memory, "main", "env", card_of(name))


def has_card(name):
    """A whole one: a program sees what the driver leaves of it."""
    total, taken = share_check.fill(name, "main", "env", card_of(name))
    true(MEMORY - 1000 <= total <= MEMORY and total - 1000 <= taken <= total, f"{name} sees {total} MiB, got {taken}")


class Watcher(threading.Thread):
    """Asks again and again what a program in the Pod sees, while something else is done."""

    def __init__(self, name, memory):
        super().__init__(daemon=True)
        self.name_of_pod, self.memory = name, memory
        self.card = card_of(name)
        self.times, self.faults, self.ended = 0, [], False

    def __enter__(self):
        self.start()
        return self

    def run(self):
        while not self.ended:
            done = World.run(self.name_of_pod, "env", self.card, "vgpu-example-fill", "--step", "100MiB",
                             check=False)
            if f"sees {self.memory} MiB" not in done.stdout or "CUDA_ERROR_OUT_OF_MEMORY" not in done.stdout:
                self.faults.append(done.stdout + done.stderr)
            self.times += 1
            time.sleep(0.5)

    def __exit__(self, *_):
        self.ended = True
        self.join()
        if not self.faults:
            print(f"# meanwhile {self.times} programs saw {self.memory} MiB")


@test
def starts():
    """helm installs the chart: certificates, webhooks, scheduler, device plugin and monitor come up"""
    if not os.path.isdir(os.path.join(helm.CHART, "templates/scheduler")):
        raise Skip("the chart has no scheduler")
    helm.program()
    World.start(sys.argv[1], "--enable-aggregator-routing=true")
    World.version = subprocess.run([program("kube-scheduler"), "--version"], capture_output=True, text=True,
                                   check=True).stdout.split()[1]
    World.install_driver()
    os.makedirs(SHARED, exist_ok=True)
    run("mount", "--bind", SHARED, MACHINE)
    os.chmod(MACHINE, 0o1777)
    make_kube_scheduler()
    chart("install")
    print("# " + " ".join(World.plane.kubectl("get", "pods", "-n", SPACE, "--no-headers").stdout.split()))
    wait_for("the kubelet has the devices", lambda: World.allocatable() == SPLIT * CARDS_COUNT, seconds=120)
    wait_for("the register annotation is there", World.hami.devices)
    os.chmod(MACHINE + "/machine", 0o666)
    equal(len(World.uuids()), CARDS_COUNT)


@test
def whole_way():
    """a Pod that asks for gpu: 1, gpumem: 3000 goes from webhook to plugin, and its program sees 3,000 MiB"""
    World.need()
    create("one", 3000)
    World.wait_running("one")
    found = World.pod("one")
    true(found["spec"]["schedulerName"] != "default-scheduler", found["spec"]["schedulerName"])
    held_to("one", 3000)
    uuid, memory, _ = shares(found)[0][0]
    true(uuid in World.uuids() and memory == 3000, shares(found))
    wait_for("the plugin's outcome stands",
             lambda: World.pod("one")["metadata"]["annotations"].get(PHASE) == "success")
    create("rest", None)  # no memory: a whole card, which is the other one
    World.wait_running("rest")
    has_card("rest")


@test
def deployments():
    """a Deployment scales up until the cards are full and down again; each Pod has its own limit"""
    World.need()
    deploy("many", 2, 60000)
    wait_pods("many", 2, 0)
    World.plane.kubectl("scale", "deployment", "many", "--replicas=6")
    for name in wait_pods("many", 4, 2):
        held_to(name, 60000)
    World.plane.kubectl("scale", "deployment", "many", "--replicas=1")
    wait_pods("many", 1, 0)
    deploy("more", 4, 70000)  # beside 60,000 MiB one, on the other card two
    for name in wait_pods("more", 3, 1):
        held_to(name, 70000)
    held_to(wait_pods("many", 1, 0)[0], 60000)
    World.plane.kubectl("scale", "deployment", "many", "--replicas=0")
    for name in wait_pods("more", 4, 0):
        held_to(name, 70000)


@test
def bypass():
    """a Pod that passes by the webhook, and one whose annotations were forged, get no card"""
    World.need()
    passed = {"hami.io/webhook": "ignore"}
    forged = {"hami.io/vgpu-node": "n1", "hami.io/vgpu-time": str(int(time.time())), PHASE: "allocating",
              "hami.io/bind-time": str(int(time.time())), ALLOCATED: device(World.uuids()[0], 100000, 0) + ";",
              "hami.io/vgpu-devices-to-allocate": device(World.uuids()[0], 100000, 0) + ";"}
    try:
        create("forged", 3000, labels=passed, annotations=forged)
        raise AssertionError("the webhook took what was forged")
    except Refused as refused:
        equal(refused.status, 403)
    validating = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    name = World.api.get(validating)["items"][0]["metadata"]["name"]
    hooks = World.api.get(f"{validating}/{name}")["webhooks"]
    World.api.patch(f"{validating}/{name}", {"webhooks": []})
    try:
        wait_for("the webhook is off", lambda: World.api.call("POST", NAMESPACE + "?dryRun=All", pod(
            "forged", labels=passed, annotations=forged)))
        create("forged", 3000, labels=passed, annotations=forged, nodeName="n1")
    finally:
        World.api.patch(f"{validating}/{name}", {"webhooks": hooks})
    create("placed", None, labels=passed, nodeName="n1")
    create("counted", None, labels=passed)  # to the default scheduler, which knows the node's nvidia.com/gpu
    for one in ("forged", "placed", "counted"):
        found = wait_for(f"{one} has failed", lambda one=one: (
            lambda status: status if status["phase"] == "Failed" or status.get("containerStatuses") else None)(
                World.pod(one)["status"]))
        equal((found["phase"], found.get("reason")), ("Failed", "UnexpectedAdmissionError"), one)
        print(f"# {one}: {found['message'][:160]}")
    create("right", 3000)
    World.wait_running("right")
    held_to("right", 3000)


@test
def upgrade():
    """a Pod runs on with its library and its limit while the chart's daemons are upgraded, and new ones come"""
    World.need()
    create("stays", 3000)
    World.wait_running("stays")
    before = {one["metadata"]["name"] for one in World.api.get(f"/api/v1/namespaces/{SPACE}/pods")["items"]}
    with Watcher("stays", 3000) as watcher:
        chart("upgrade", values={"scheduler.extender.extraArgs": ["--debug=true"],
                                 "devicePlugin.podAnnotations": {"round": "2"}})
    equal(watcher.faults, [], "what else programs saw meanwhile")
    true(watcher.times > 0, "nothing was looked at")
    after = {one["metadata"]["name"] for one in World.api.get(f"/api/v1/namespaces/{SPACE}/pods")["items"]
             if "deletionTimestamp" not in one["metadata"]}
    true(len(after - before) >= 2, f"{before} have become {after}")
    equal(restarts("stays"), 0, "restarts of the Pod that ran")
    wait_for("the kubelet has the devices", lambda: World.allocatable() == SPLIT * CARDS_COUNT)
    create("new", MEMORY)
    World.wait_running("new")
    has_card("new")
    create("full", MEMORY)  # "stays" is on the other card: the new scheduler knows
    wait_for("it waits", lambda: World.plane.kubectl(
        "get", "events", "--field-selector=involvedObject.name=full,reason=FilteringFailed").stdout)
    equal(World.pod("full")["status"]["phase"], "Pending")
    World.delete("full")


@test
def uninstall():
    """a Pod runs on with its library and its limit when the chart is uninstalled, restarts with it, and is counted
    when the chart is installed again"""
    World.need()
    create("stays", 3000)
    World.wait_running("stays")
    with Watcher("stays", 3000) as watcher:
        chart("uninstall")
        wait_for("the daemons are gone", lambda: not World.api.get(f"/api/v1/namespaces/{SPACE}/pods")["items"])
        left = [World.api.get(f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations")["items"]
                for kind in ("mutating", "validating")]
        equal(left, [[], []], "webhooks that are left")
        World.api.call("POST", NAMESPACE, {"metadata": {"name": "plain"}, "spec": {
            "terminationGracePeriodSeconds": 1, "containers": [
                {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "infinity"]}]}})
        World.wait_running("plain")
    equal(watcher.faults, [], "what else programs saw meanwhile")
    equal(restarts("stays"), 0, "restarts of the Pod that ran")
    # kubelet asks the plugin before it starts a container anew; without one it tries again until there is one.
    World.end_container("stays", "main")
    waiting = wait_for("the container waits", lambda: World.pod("stays")["status"]["containerStatuses"][0]["state"].get(
        "waiting"))
    print(f"# without a plugin: {waiting}")
    chart("install")
    wait_for("the container has started again", lambda: restarts("stays") == 1)
    World.wait_running("stays")
    held_to("stays", 3000)
    wait_for("the kubelet has the devices", lambda: World.allocatable() == SPLIT * CARDS_COUNT, seconds=120)
    deploy("rest", 3, MEMORY // 2)
    wait_pods("rest", 3, 0)
    World.plane.kubectl("scale", "deployment", "rest", "--replicas=4")
    wait_pods("rest", 3, 1)  # what "stays" has is not given to another one
    held_to("stays", 3000)


def chosen(words):
    if words:
        tap.TESTS[2:] = [one for one in tap.TESTS[2:] if any(word in tap.sentence_of(one) for word in words)]


chosen(sys.argv[2:])
tap.main()
