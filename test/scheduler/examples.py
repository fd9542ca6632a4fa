# SPDX-License-Identifier: Apache-2.0
"""examples BUILD: each file of examples/kubernetes, applied as a cluster would do it: through the webhooks and
vgpu-scheduler over HTTP, on two nodes of the fake API server: where each Pod lands, or why it does not."""
import base64
import glob
import json
import os
import re
import subprocess
import sys

from scheduler_world import ALLOCATED, NODE, PLUGIN, REGISTER, ROOT, World, make_pod, tap, until

sys.path.insert(0, os.path.join(ROOT, "test/chart"))
import api_patch  # noqa: E402
import helm  # noqa: E402

equal, test, true = tap.equal, tap.test, tap.true
PLACE = os.path.join(ROOT, "examples/kubernetes")
SCORES = "hami.io/node-nvidia-score"
OPTIONS = ["--scheduler-name=vgpu-scheduler", "--owners=system:serviceaccount:v:plugin,system:serviceaccount:v:scheduler"]
TESTED = set()


def card(node, number):
    return f"GPU-{node}000000{number}-0000-4000-8000-00000000000{number}"


def node_of(name, letter, model, memory, numas, links=()):
    """links: {(card, card): score}; all other pairs have 10."""
    cards = [{"id": card(letter, i), "index": i, "count": 10, "devmem": memory, "devcore": 100, "type": model, "mode": "hami-core",
              "numa": numa, "health": True} for i, numa in enumerate(numas)]
    scores = [{"uuid": one["id"], "score": {other["id"]: dict(links).get(tuple(sorted((one["index"], other["index"]))), 10)
                                            for other in cards if other is not one}} for one in cards]
    return {"metadata": {"name": name, "annotations": {REGISTER: json.dumps(cards), SCORES: json.dumps(scores), PLUGIN: "1"}},
            "status": {"allocatable": {"nvidia.com/gpu": str(10 * len(cards))}}}


def nodes():
    return [("nodes", node_of("node-a", "a", "NVIDIA A10", 24000, [1, 0])),
            ("nodes", node_of("node-b", "b", "NVIDIA H100 80GB HBM3", 80000, [1, 0, 1, 0], {(1, 2): 300}.items()))]


class Cluster(World):
    """Two nodes; `used`: [(UUID, MiB)] of Pods that run already. Of equal cards that of the higher NUMA node is taken, as
    HAMi does, then the first."""

    def __init__(self, *options, used=(), config=""):
        super().__init__(nodes(), OPTIONS + list(options))
        if config:
            self.kill()
            path = os.path.join(self.directory, "device-config.yaml")
            with open(path, "w", encoding="ascii") as file:
                file.write(config)
            self.options.append(f"--device-config-file={path}")
            self.start()
        self.used = used

    def __enter__(self):
        for number, (uuid, memory) in enumerate(self.used):
            error = self.place(f"used-{number}", ["node-a", "node-b"], memory=memory, **{"nvidia.com/use-gpuuuid": uuid})[1]
            equal(error, "", f"what uses {uuid}")
            true(uuid in self.said(f"used-{number}")[ALLOCATED], f"what uses {uuid}")
            self.serve_and_wait(f"used-{number}")
        return self

    def serve_and_wait(self, name, namespace="default"):
        """A node with a Pod in flight is passed over where another Pod would have to wait for it."""
        self.serve(name, namespace)
        until(lambda: self.metric("vgpu_scheduler_pods_in_flight") == 0, f"the scheduler's notice of {name}")

    def review(self, path, pod):
        return self.post(path, {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE",
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": pod["metadata"]["namespace"],
            "userInfo": {"username": "somebody"}, "object": pod}})["response"]

    def admit(self, pod):
        """The Pod as the API server stores it; a text: why not."""
        answer = self.review("/webhook", pod)
        if not answer["allowed"]:
            return answer["status"]["message"]
        if answer.get("patch"):
            pod = api_patch.json_patch(pod, json.loads(base64.b64decode(answer["patch"])))
        answer = self.review("/validate", pod)
        return self.create("pods", pod) if answer["allowed"] else answer["status"]["message"]

    def land(self, pod):
        """(node, [[(card, MiB, cores) of each container]]), or why it does not."""
        pod = self.admit(pod)
        if isinstance(pod, str):
            return pod, None
        answer = self.filter(pod, ["node-a", "node-b"])
        equal(answer["Error"], "", "the filter's error")
        if not answer["NodeNames"]:
            return answer["FailedNodes"], pod
        equal(self.bind(pod, answer["NodeNames"][0]), "", "the bind's error")
        name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
        pod = self.pod(name, space)
        self.serve_and_wait(name, space)
        equal((pod["spec"]["nodeName"], pod["metadata"]["annotations"][NODE]), (answer["NodeNames"][0],) * 2, "the node")
        equal(pod["spec"]["schedulerName"], "vgpu-scheduler", "the scheduler")
        devices = [[(one.split(",")[0], *map(int, one.split(",")[2:])) for one in place.split(":") if one]
                   for place in pod["metadata"]["annotations"][ALLOCATED].split(";")[:-1]]
        return (answer["NodeNames"][0], devices), pod


def load(name):
    """The Pods of a file, as its controllers make them, and what else is in it."""
    TESTED.add(name)
    with open(os.path.join(PLACE, name + ".yaml"), encoding="utf-8") as file:
        documents = helm.load(file.read())
    pods, others = [], []
    for one in documents:
        if one["kind"] == "Deployment":
            for number in range(one["spec"]["replicas"]):
                template = json.loads(json.dumps(one["spec"]["template"]))
                pods.append({"apiVersion": "v1", "kind": "Pod", **template})
                pods[-1]["metadata"]["name"] = f"{one['metadata']['name']}-{number}"
        elif one["kind"] == "Pod":
            pods.append(one)
        else:
            others.append(one)
    for pod in pods:
        pod["metadata"].setdefault("namespace", "default")
    return pods, others


def run(name, wanted, *options, used=(), config="", check=None):
    """One Pod lands at wanted: (node, cards of each container), or is there for the function to judge."""
    (pod,), _ = load(name)
    with Cluster(*options, used=used, config=config) as world:
        found, made = world.land(pod)
        if callable(wanted):
            true(wanted(found), f"{name} lands at {found}")
        else:
            equal(found, wanted, name)
        if check:
            check(made)


A, B = [card("a", i) for i in range(2)], [card("b", i) for i in range(4)]


@test
def whole_card():
    """whole-card: a card, and all of its time"""
    run("whole-card", ("node-a", [[(A[0], 24000, 100)]]))
    run("whole-card", ("node-b", [[(B[0], 80000, 100)]]), used=[(A[0], 100), (A[1], 100)])


@test
def memory():
    """memory, memory-percentage, cores and memory-alone: that much of a card"""
    run("memory", ("node-a", [[(A[0], 3000, 0)]]))
    run("memory-percentage", ("node-a", [[(A[0], 12000, 0)]]))
    run("memory-percentage", ("node-b", [[(B[0], 40000, 0)]]), used=[(A[0], 13000), (A[1], 13000)])
    run("cores", ("node-a", [[(A[0], 4000, 30)]]))
    run("memory-alone", ("node-a", [[(A[0], 2000, 0)]]), check=lambda pod: equal(
        pod["spec"]["containers"][0]["resources"]["limits"], {"nvidia.com/gpu": "1", "nvidia.com/gpumem": 2000}))


@test
def several_cards():
    """several-cards: two cards of one node"""
    def both(found):
        return found[0] == "node-a" and sorted(found[1][0]) == [(A[0], 6000, 0), (A[1], 6000, 0)]
    run("several-cards", both)
    run("several-cards", lambda found: found[0] == "node-b" and len({one[0] for one in found[1][0]}) == 2, used=[(A[0], 20000)])


@test
def exclusive():
    """exclusive: a card that nobody uses, and nobody comes to it afterwards"""
    run("exclusive", ("node-a", [[(A[1], 12000, 100)]]), "--gpu-scheduler-policy=binpack", used=[(A[0], 100)])
    (pod,), _ = load("exclusive")
    with Cluster(used=[(A[0], 100)]) as world:
        equal(world.land(pod)[0], ("node-a", [[(A[1], 12000, 100)]]))
        found = make_pod("other", **{"nvidia.com/use-gpuuuid": A[1]})
        refused = world.land(found)[0]
        true("1/2 CardComputeUnitsExhausted" in refused["node-a"], refused)


@test
def types():
    """use-type and avoid-type: cards by their model"""
    for name in ("use-type", "avoid-type"):
        run(name, ("node-b", [[(B[0], 3000, 0)]]))
    run("use-type", {"node-a": "2/2 CardTypeMismatch", "node-b": "4/4 CardInsufficientMemory"},
        used=[(uuid, 79000) for uuid in B])


@test
def uuids():
    """use-uuid and avoid-uuid: cards by their UUID"""
    run("use-uuid", ("node-b", [[(B[2], 3000, 0)]]))
    run("avoid-uuid", ("node-a", [[(A[1], 3000, 0)]]))


@test
def node_policies():
    """node-spread and node-binpack: the node by how much it is used, over the scheduler's own policy"""
    run("node-spread", ("node-b", [[(B[0], 3000, 0)]]), "--node-scheduler-policy=binpack", used=[(A[0], 3000)])
    run("node-binpack", lambda found: found[0] == "node-b", "--node-scheduler-policy=spread", used=[(B[0], 3000)])


@test
def card_policies():
    """card-spread, card-binpack and card-mutex: the card by how much it is used, over the scheduler's own policy"""
    run("card-spread", ("node-a", [[(A[1], 3000, 0)]]), "--gpu-scheduler-policy=binpack", used=[(A[0], 3000)])
    run("card-binpack", ("node-a", [[(A[1], 3000, 0)]]), used=[(A[1], 3000)])
    run("card-mutex", ("node-a", [[(A[1], 3000, 0)]]), "--gpu-scheduler-policy=binpack", used=[(A[0], 3000)])
    run("card-mutex", lambda found: found[0] == "node-b" and found[1][0][0][0] in B, used=[(A[0], 100), (A[1], 100)])


@test
def weights():
    """weights: by the memory alone, where all three together choose another card"""
    used = [(A[0], 500)] * 4 + [(A[1], 6000)]
    run("weights", ("node-a", [[(A[1], 3000, 0)]]), used=used)
    run("card-binpack", ("node-a", [[(A[0], 3000, 0)]]), used=used)


@test
def numa():
    """numa: two cards of one NUMA node"""
    run("numa", lambda found: found[0] == "node-b" and sorted(one[0] for one in found[1][0]) in ([B[0], B[2]], [B[1], B[3]]))
    run("numa", lambda found: "node-b" in found and "NumaNotFit" in found["node-b"], used=[(B[0], 79000), (B[3], 79000)])


@test
def topology():
    """topology: the two cards that are connected best"""
    run("topology", lambda found: found[0] == "node-b" and sorted(one[0] for one in found[1][0]) == [B[1], B[2]],
        used=[(A[0], 23000), (B[0], 100)])


@test
def mode():
    """mode: a card that is shared by the library"""
    run("mode", ("node-a", [[(A[0], 3000, 0)]]))
    (pod,), _ = load("mode")
    with Cluster() as world:
        for name in ("node-a", "node-b"):
            said = world.node(name)["metadata"]["annotations"][REGISTER]
            world.annotate("nodes", "", name, **{REGISTER: said.replace('"hami-core"', '"mig"')})
        pod = world.admit(pod)
        until(lambda: world.filter(pod, ["node-a", "node-b"])["FailedNodes"] == {
            "node-a": "2/2 CardTypeMismatch", "node-b": "4/4 CardTypeMismatch"}, "why it does not")


@test
def priority():
    """priority: its containers know it"""
    run("priority", ("node-a", [[(A[0], 3000, 0)]]), check=lambda pod: equal(
        pod["spec"]["containers"][0]["env"], [{"name": "CUDA_TASK_PRIORITY", "value": "1"}]))


def allocated(world):
    """MiB by UUID, of metrics."""
    text = world.get("/metrics", world.metrics_port)[1]
    return {uuid: float(value) / 2**20 for uuid, value in re.findall(
        r'^hami_gpu_memory_allocated_bytes\{[^}]*device_uuid="([^"]+)"[^}]*\} (\S+)$', text, re.M) if float(value)}


@test
def before_and_beside():
    """init-container counts with the larger share, sidecar with both"""
    for name, wanted in (("init-container", 5000), ("sidecar", 7000)):
        (pod,), _ = load(name)
        with Cluster(used=[(A[1], 23000)]) as world:
            found = world.land(pod)[0]
            equal(found, ("node-a", [[(A[0], 5000, 0)], [(A[0], 2000, 0)]]), name)
            until(lambda world=world, wanted=wanted: allocated(world).get(A[0]) == wanted, f"{wanted} MiB of {name}")


@test
def two_containers():
    """two-containers: each has its own, the plain one has none"""
    run("two-containers", lambda found: found[0] == "node-a" and [[one[1:] for one in place] for place in found[1]]
        == [[], [(3000, 0)], [(5000, 20)]])


@test
def deployment():
    """deployment: as many Pods on a card as it has room for"""
    pods, _ = load("deployment")
    with Cluster() as world:
        places = [world.land(pod)[0] for pod in pods]
        equal([place[0] for place in places], ["node-a"] * 3, "nodes")
        uuids_of = [place[1][0][0][0] for place in places]
        equal(sorted((uuids_of.count(A[0]), uuids_of.count(A[1]))), [1, 2], "cards")


@test
def quota():
    """quota: what is beyond is refused when it is created, in that namespace alone"""
    (pod,), others = load("quota")
    with Cluster() as world:
        for one in others:
            world.create("namespaces" if one["kind"] == "Namespace" else "resourcequotas", one)

        def copy(name, space="team-a", **limits):
            other = json.loads(json.dumps(pod))
            other["metadata"].update(name=name, namespace=space)
            other["spec"]["containers"][0]["resources"]["limits"].update(limits)
            return other
        until(lambda: world.review("/webhook", copy("x", **{"nvidia.com/gpumem": 8001}))["allowed"] is False, "the quota")
        equal(world.land(pod)[0], ("node-a", [[(A[0], 5000, 30)]]))
        until(lambda: world.land(copy("second"))[0] == "exceeding resource quota", "what is used")
        equal(world.land(copy("elsewhere", "default"))[0][0], "node-a", "another namespace")
        equal(world.land(copy("less", **{"nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 20}))[0][0], "node-a", "what is left")


@test
def runtime_class():
    """runtime-class: it stays, and the others get that of the configuration"""
    config = "nvidia:\n  runtimeClassName: other\n"
    run("runtime-class", ("node-a", [[(A[0], 3000, 0)]]), config=config,
        check=lambda pod: equal(pod["spec"]["runtimeClassName"], "nvidia"))
    run("memory", ("node-a", [[(A[0], 3000, 0)]]), config=config, check=lambda pod: equal(pod["spec"]["runtimeClassName"], "other"))


@test
def mig():
    """mig: the webhook leaves it as it is, and the scheduler lets it pass"""
    (pod,), _ = load("mig")
    with Cluster() as world:
        made = world.admit(json.loads(json.dumps(pod)))
        equal(made["spec"], pod["spec"], "its specification")
        equal(world.filter(made, ["node-a", "node-b"])["NodeNames"], ["node-a", "node-b"], "nodes")


@test
def too_large():
    """too-large: it waits, and its events say why"""
    (pod,), _ = load("too-large")
    with Cluster() as world:
        equal(world.land(pod)[0], {"node-a": "2/2 CardInsufficientMemory", "node-b": "4/4 CardInsufficientMemory"})
        events = until(lambda: [one for one in world.server.store.items("events") if one["reason"] == "FilteringFailed"], "an event")
        true(any("CardInsufficientMemory" in one["message"] for one in events), events)


@test
def complete():
    """each file is tried here, told in README.md, and as Kubernetes has it"""
    names = {os.path.basename(path)[:-len(".yaml")] for path in glob.glob(PLACE + "/*.yaml")}
    equal(names, TESTED, "files")
    true(len(names) >= 15, f"{len(names)} files")
    with open(os.path.join(PLACE, "README.md"), encoding="utf-8") as file:
        equal(set(re.findall(r"\[`([a-z-]+)`\]\(\1\.yaml\)", file.read())), names, "README.md")
    done = subprocess.run([os.path.join(ROOT, "scripts/check-yaml"), *glob.glob(PLACE + "/*.yaml")], capture_output=True,
                          text=True, check=False)
    if done.returncode == 77:
        raise tap.Skip(done.stderr.strip())
    equal((done.returncode, done.stderr), (0, ""), "scripts/check-yaml")


tap.main()
