# SPDX-License-Identifier: Apache-2.0
"""observer BUILD: no schedule gives more of a device than there is, whatever happens. Pods come and go on a small
cluster, with kube-schedulers, kubelets and plugins of the test's own, while schedulers are killed and frozen,
change the lead, lose their watches and get faults. An observer inside the fake API server looks at each change.

VGPU_OBSERVE_S: seconds for each of the two ways to run (20); VGPU_OBSERVE_SEED: of the random numbers (23)."""
import collections
import datetime
import hashlib
import hmac
import http.client
import json
import os
import random
import signal
import threading
import time

from scheduler_world import (ALLOCATED, LOCK, PHASE, PLUGIN, REGISTER, TO_ALLOCATE, World, api_server, make_node, tap,
                             until)
from api_patch import Refused

SECONDS = float(os.environ.get("VGPU_OBSERVE_S", "20"))
SEED = int(os.environ.get("VGPU_OBSERVE_SEED", "23"))
NODES, CARDS, MEMORY, SLOTS = 4, 2, 10000, 4
QUOTA = 60000  # MiB of the namespace
NAMES = [f"n{number}" for number in range(NODES)]
FOREIGN = "n0"  # its plugin is HAMi's
PENDING_MAX, LEASE_S, FLIGHT_S = 24, 4, 28
MERGE = "application/merge-patch+json"
LIMITS, GRANT, KEY = "vgpu.io/limits", "vgpu.io/grant", "0123456789abcdef0123456789abcdef"
GONE = (OSError, http.client.HTTPException, ValueError, AssertionError)


def is_over(pod):
    return pod is None or pod["status"].get("phase") in ("Succeeded", "Failed")


def parts(text):
    """A device string: a list of containers, each a list of (UUID, MiB, percent)."""
    found = []
    for place in (text or "").split(";")[:-1]:
        fields = [device.split(",") for device in place.split(":") if device]
        found.append([(f[0], int(f[2]), int(f[3])) for f in fields])
    return found


def granted(pod):
    """{container: MiB} that a scheduler with the key has agreed to."""
    said = pod["metadata"].get("annotations") or {}
    text, message = said.get(LIMITS, ""), b"vgpu.io/proof/1\n"
    for part in (pod["metadata"]["uid"], pod["spec"].get("nodeName", ""), text):
        message += b"%d:%s\n" % (len(part), part.encode())
    good = hmac.new(KEY.encode(), message, hashlib.sha256).hexdigest() == said.get(GRANT)
    return {name: wish["gpumem"] for name, wish in json.loads(text).items()} if text and good else {}


def given(pod):
    """parts() of the Pod, with what was granted since."""
    names = [c["name"] for kind in ("initContainers", "containers") for c in pod["spec"].get(kind, [])]
    more = granted(pod)
    return [[(uuid, max(memory, more.get(name, 0)), cores) for uuid, memory, cores in place] for name, place in
            zip(names, parts((pod["metadata"].get("annotations") or {}).get(ALLOCATED)))]


def held(pod):
    """{UUID: [MiB, percent, slots]} by Kubernetes' rule: init containers end before the others start."""
    if is_over(pod) or not pod["spec"].get("nodeName"):
        return {}
    init = len(pod["spec"].get("initContainers", []))
    most, total = collections.defaultdict(lambda: [0, 0, 0]), collections.defaultdict(lambda: [0, 0, 0])
    for place, devices in enumerate(given(pod)):
        for uuid, memory, cores in devices:
            for at, amount in enumerate((memory, cores, 1)):
                if place < init:
                    most[uuid][at] = max(most[uuid][at], amount)
                else:
                    total[uuid][at] += amount
    return {uuid: [max(pair) for pair in zip(most[uuid], total[uuid])] for uuid in set(most) | set(total)}


def owed(pod):
    """What it takes of the quota, in MiB."""
    if not held(pod):
        return 0
    init = len(pod["spec"].get("initContainers", []))
    sums = [sum(device[1] for device in place) for place in given(pod)]
    return max([sum(sums[init:]), *sums[:init]])


def is_in_flight(pod):
    said = pod["metadata"].get("annotations") or {}
    return (pod["spec"].get("nodeName") and "NVIDIA" in said.get(TO_ALLOCATE, "")
            and pod["status"].get("phase") == "Pending" and "deletionTimestamp" not in pod["metadata"])


def clash(a, b):
    shapes = [{(len(devices), tuple(d[1:] for d in devices))
               for devices in parts(pod["metadata"]["annotations"][ALLOCATED]) if devices} for pod in (a, b)]
    return any(x[0] == y[0] and x != y for x in shapes[0] for y in shapes[1])


class Observer:
    """Sees each change as it is made, under the store's lock."""

    def __init__(self, store):
        self.store, self.wrong, self.bound, self.held, self.since, self.owed = store, [], 0, {}, {}, {}
        self.peak, self.quota, self.raised = 0, QUOTA, 0
        put = store._put

        def seen(resource, key, before, after):
            done = put(resource, key, before, after)
            if resource == "pods":
                self.see(before, after)
            return done
        store._put = seen

    def see(self, before, after):
        uid = (after or before)["metadata"]["uid"]
        self.held[uid] = held(after)
        self.owed[uid] = owed(after)
        self.raised += bool(after and granted(after) and not granted(before))
        if not self.held[uid]:
            del self.held[uid], self.owed[uid]
        if sum(self.owed.values()) > self.quota:
            self.wrong.append(f"the namespace has {sum(self.owed.values())} MiB, by {after and after['metadata']['name']}")
        sums = collections.defaultdict(lambda: [0, 0, 0])
        for devices in self.held.values():
            for uuid, amounts in devices.items():
                sums[uuid] = [a + b for a, b in zip(sums[uuid], amounts)]
        for uuid, amounts in sums.items():
            if any(a > most for a, most in zip(amounts, (MEMORY, 100, SLOTS))):
                self.wrong.append(f"{uuid} has {amounts} given away, by {after and after['metadata']['name']}")
        self.peak = max(self.peak, sum(amounts[0] for amounts in sums.values()))
        if after and after["spec"].get("nodeName") and not (before or {}).get("spec", {}).get("nodeName"):
            self.see_binding(after)

    def see_binding(self, pod):
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        self.bound += 1
        self.since[name] = time.monotonic()
        if ALLOCATED not in (pod["metadata"].get("annotations") or {}):
            self.wrong.append(f"{name} is bound without devices")
            return
        if node == FOREIGN:
            lock = self.store.objects["nodes"][("", node)]["metadata"]["annotations"].get(LOCK, "")
            if not lock.endswith(f",default,{name}"):
                self.wrong.append(f"{name} is bound under the lock {lock}")
            return
        for other in self.store.objects["pods"].values():
            if (other["metadata"]["name"] != name and other["spec"].get("nodeName") == node and is_in_flight(other)
                    and time.monotonic() - self.since[other["metadata"]["name"]] < FLIGHT_S and clash(pod, other)):
                self.wrong.append(f"{name} is in flight beside {other['metadata']['name']}, which differs")


class Cluster:
    """Everything but the schedulers; each part has a thread."""

    def __init__(self, dice):
        self.dice, self.stopping, self.threads = dice, threading.Event(), []
        self.server = api_server.Server().start()
        self.store = self.server.store
        self.observer = Observer(self.store)
        self.serial, self.dead, self.due, self.failures = 0, {}, {}, []
        for name in NAMES:
            self.store.create("nodes", "", self.node(name))
        self.store.create("resourcequotas", "default", {
            "metadata": {"name": "q"}, "spec": {"hard": {"limits.nvidia.com/gpumem": str(QUOTA)}}})

    @staticmethod
    def node(name):
        return make_node(name, cards=CARDS, memory=MEMORY, count=SLOTS, ours=name != FOREIGN)

    def run(self, function, *arguments):
        def body():
            while not self.stopping.is_set():
                try:
                    function(*arguments)
                except Refused:
                    pass  # it was gone, or another one was faster
                except Exception as error:  # the test fails, and does not wait for this thread
                    self.failures.append(f"{function.__name__}: {type(error).__name__}: {error}")
                    return
        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        self.threads.append(thread)

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(60)

    def pods(self):
        with self.store.changed:
            return list(self.store.objects["pods"].values())

    def patch(self, resource, name, value, sub=None):
        namespace = "default" if resource == "pods" else ""
        self.store.patch(resource, namespace, name, MERGE, value, sub)

    # -- the Pods' authors

    def limits(self):
        dice = self.dice
        limits = {"nvidia.com/gpu": str(dice.choice((1, 1, 1, 2))),
                  "nvidia.com/gpumem": str(dice.choice((900, 2500, 4000)))}
        if dice.random() < 0.5:
            limits["nvidia.com/gpucores"] = str(dice.choice((10, 30, 100)))
        return {"limits": limits}

    def create(self):
        time.sleep(self.dice.uniform(0.005, 0.04))
        pods = [pod for pod in self.pods() if not pod["spec"].get("nodeName")]
        if len(pods) >= PENDING_MAX:
            if self.dice.random() < 0.05:
                self.store.delete("pods", "default", self.dice.choice(pods)["metadata"]["name"], {})
            return
        self.serial += 1
        count = self.dice.choice((1, 1, 1, 2))
        spec = {"containers": [{"name": f"c{i}", "resources": self.limits()} for i in range(count)]}
        if self.dice.random() < 0.2:
            spec["initContainers"] = [{"name": "i", "resources": self.limits()}]
        name = {"name": f"p{self.serial}", "namespace": "default"}
        self.store.create("pods", "default", {"metadata": name, "spec": spec})

    # -- kubelets and plugins

    def live(self):
        """One look at all Pods: each goes a step on when its time has come."""
        time.sleep(0.02)
        now = time.monotonic()
        for pod in self.pods():
            name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
            if not node or now < self.dead.get(node, 0):
                continue
            step = "flight" if is_in_flight(pod) else "over" if is_over(pod) else "end" if (
                "deletionTimestamp" in pod["metadata"]) else pod["status"]["phase"]
            if (name, step) not in self.due:
                wait = {"flight": 3 if self.dice.random() < 0.03 else self.dice.uniform(0, 0.2), "Pending": 0.05, "end": 0.4}.get(
                    step, self.dice.uniform(0.1, 1.5))
                self.due[name, step] = now + wait
            if now >= self.due[name, step]:
                try:
                    getattr(self, "do_" + step.lower())(pod, name, node)
                except Refused:
                    pass

    def do_flight(self, pod, name, node):
        if self.dice.random() < 0.1:  # it is refused, or never starts
            self.patch("pods", name, {"status": {"phase": "Failed"}}, "status")
        else:
            empty = ";" * pod["metadata"]["annotations"][TO_ALLOCATE].count(";")
            self.patch("pods", name, {"metadata": {"annotations": {TO_ALLOCATE: empty, PHASE: "success"}}})
        self.unlock(name, node)

    def unlock(self, name, node):
        if self.store.get("nodes", "", node)["metadata"]["annotations"].get(LOCK, "").endswith("," + name):
            self.patch("nodes", node, {"metadata": {"annotations": {LOCK: None}}})

    def do_pending(self, pod, name, node):
        self.patch("pods", name, {"status": {"phase": "Running"}}, "status")

    def do_running(self, pod, name, node):
        if self.dice.random() < 0.5:
            self.patch("pods", name, {"status": {"phase": self.dice.choice(("Succeeded", "Failed"))}}, "status")
        else:
            self.store.delete("pods", "default", name, {"gracePeriodSeconds": self.dice.choice((0, 30))})

    def do_end(self, pod, name, node):
        self.store.delete("pods", "default", name, {"gracePeriodSeconds": 0})

    do_over = do_end

    def wish(self):
        """A running Pod wants other limits."""
        time.sleep(self.dice.uniform(0.02, 0.2))
        running = [pod for pod in self.pods() if pod["status"]["phase"] == "Running"]
        if running:
            pod = self.dice.choice(running)
            value = self.dice.choice((None, json.dumps({"c0": {"gpumem": self.dice.choice((500, 3000, 5000, 9000))}})))
            self.patch("pods", pod["metadata"]["name"], {"metadata": {"annotations": {LIMITS: value}}})

    # -- kube-scheduler's binding cycles

    def schedule(self, pick):
        time.sleep(self.dice.uniform(0, 0.03))
        waiting = [pod for pod in self.pods() if not pod["spec"].get("nodeName")]
        scheduler = pick()
        if not waiting or not scheduler:
            return
        pod = self.dice.choice(waiting)
        name = pod["metadata"]["name"]
        with self.store.changed:  # one cycle for each Pod at a time
            if name in self.due.get("cycles", ()):
                return
            self.due.setdefault("cycles", set()).add(name)
        try:
            answer = scheduler.filter(pod, self.dice.sample(NAMES, self.dice.randint(1, NODES)))
            if not answer["NodeNames"]:
                return
            node = answer["NodeNames"][0]
            if self.dice.random() < 0.1:
                time.sleep(self.dice.uniform(0, 1))
            if self.dice.random() < 0.1:
                node = self.dice.choice(NAMES)
            (scheduler if self.dice.random() < 0.8 else pick() or scheduler).bind(pod, node)
        except GONE:
            pass  # the scheduler was killed
        finally:
            self.due["cycles"].discard(name)

    # -- faults

    def disturb(self):
        dice, faults = self.dice, api_server.Fault
        time.sleep(dice.uniform(0.05, 0.4))
        node = dice.choice(NAMES)
        what = dice.randrange(9)
        if what == 0:
            self.server.cut_watches()
        elif what == 1:
            self.store.compact()
        elif what == 2:
            status = dice.choice((409, 410, 500, 503, 429))
            self.server.faults.append(faults("POST", "/binding", count=dice.randint(1, 3), status=status))
        elif what == 3:
            self.server.faults.append(faults("POST", "/binding", cut=dice.choice(("before", "after", "middle"))))
        elif what == 4:
            self.server.faults.append(faults("POST", "/binding", count=2, delay=dice.uniform(0.1, 1.5)))
        elif what == 5:
            self.server.faults.append(faults("GET", "/(pods|nodes)", status=dice.choice((410, 500, 503))))
        elif what == 6:
            self.dead[node] = time.monotonic() + dice.uniform(0.5, 4)
        elif what == 7:
            text = self.node(node)["metadata"]["annotations"][REGISTER]
            self.patch("nodes", node, {"metadata": {"annotations": {REGISTER: dice.choice((None, "[]", "{"))}}})
            time.sleep(dice.uniform(0, 0.3))
            self.patch("nodes", node, {"metadata": {"annotations": {REGISTER: text}}})
        elif node != FOREIGN:
            self.store.delete("nodes", "", node, {})
            time.sleep(dice.uniform(0, 0.3))
            self.store.create("nodes", "", self.node(node))


def check(cluster, schedulers, leader):
    """After the chaos: all is given back, and all that there is can be given."""
    observer = cluster.observer
    cluster.stop()
    cluster.server.faults.clear()
    tap.equal(cluster.failures, [])
    tap.equal(observer.wrong, [])
    print(f"# {observer.bound} Pods were bound, {cluster.serial} made; at most {observer.peak} MiB of "
          f"{NODES * CARDS * MEMORY} were given away at once; {sum(s.kills for s in schedulers)} kills; {observer.raised} raised")
    tap.true(observer.bound >= 5, f"only {observer.bound} Pods were bound")
    for pod in cluster.pods():
        cluster.store.delete("pods", "default", pod["metadata"]["name"], {"gracePeriodSeconds": 0})
    cluster.store.delete("resourcequotas", "default", "q", {})
    observer.quota = float("inf")
    leader.wait_ready()
    text = "hami_gpu_memory_allocated_bytes"
    until(lambda: all(line.endswith(" 0") for line in leader.get("/metrics", leader.metrics_port)[1].splitlines()
                      if line.startswith(text)), "all memory")
    for number in range(NODES * CARDS):
        def place(name=f"whole{number}"):
            _, error = leader.place(name, NAMES, memory=MEMORY)
            if error:
                cluster.store.delete("pods", "default", name, {"gracePeriodSeconds": 0})
                return False
            leader.serve(name)
            cluster.unlock(name, leader.pod(name)["spec"]["nodeName"])
            return True
        until(place, "room for the last Pod")
    tap.equal(observer.wrong, [])


class Scheduler(World):
    """With a number of kills."""

    def __init__(self, cluster, *options, **more):
        self.kills, self.lives = 0, threading.Lock()
        super().__init__((), options, server=cluster.server, **more)

    def kill_and_start(self, wait_s):
        with self.lives:
            self.kills += 1
            self.kill()
            time.sleep(wait_s)
            self.start()


@tap.test
def one():
    """one scheduler that is killed at any time, with the annotations written by the filter"""
    cluster = Cluster(random.Random(SEED))
    with Scheduler(cluster, "--compat-filter-patch", "--node-lock-retry-timeout=1s", ready=False) as scheduler:
        def kill():
            time.sleep(cluster.dice.uniform(0.2, 2.5))
            scheduler.kill_and_start(cluster.dice.choice((0, 0, 0.3)))
        for function, arguments in ((cluster.create, ()), (cluster.live, ()), (cluster.disturb, ()), (kill, ()),
                                    *[(cluster.schedule, (lambda: scheduler,))] * 6):
            cluster.run(function, *arguments)
        time.sleep(SECONDS)
        check(cluster, [scheduler], scheduler)
    cluster.server.stop()


@tap.test
def two():
    """two schedulers that take the lead from one another, are killed, and are frozen beyond their lease"""
    cluster = Cluster(random.Random(SEED + 1))
    state = {"holder": 0, "transitions": 1, "renews": True, "expired": True}
    cluster.store.create("leases", "v", {"metadata": {"name": "l", "namespace": "v"}, "spec": {}})

    def renew(force=False):
        """What the kube-scheduler that holds the lease does."""
        if not force:
            time.sleep(0.3)
            if not state["renews"]:
                return
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        found = cluster.store.get("leases", "v", "l")
        cluster.store.replace("leases", "v", "l", dict(found, spec={
            "holderIdentity": f"pod-{state['holder']}_x", "leaseDurationSeconds": LEASE_S, "renewTime": now,
            "leaseTransitions": state["transitions"]}))

    options = ("--leader-elect", "--leader-elect-resource-name=l", "--leader-elect-resource-namespace=v",
               "--filter-all-nodes", "--node-lock-retry-timeout=0s")
    renew(True)
    with Scheduler(cluster, *options, "--pod-name=pod-0", key=KEY, ready=False) as a, \
            Scheduler(cluster, *options, "--pod-name=pod-1", key=KEY, ready=False) as b:
        both = (a, b)

        def lead():
            """The lead changes only when the lease has ended."""
            time.sleep(cluster.dice.uniform(3, 7))
            old, frozen = both[state["holder"]], cluster.dice.random() < 0.6
            state["renews"] = False
            with old.lives:
                if frozen:
                    old.process.send_signal(signal.SIGSTOP)
                time.sleep(LEASE_S + 0.3)
                state["holder"], state["transitions"] = 1 - state["holder"], state["transitions"] + 1
                renew(True)
                state["renews"] = True
                if frozen:
                    time.sleep(cluster.dice.uniform(0, 1.5))
                    old.process.send_signal(signal.SIGCONT)

        def kill():
            time.sleep(cluster.dice.uniform(1, 5))
            cluster.dice.choice(both).kill_and_start(cluster.dice.choice((0, 0.3)))

        def pick():
            return both[state["holder"]] if cluster.dice.random() < 0.9 else both[1 - state["holder"]]
        for function, arguments in ((cluster.create, ()), (cluster.live, ()), (cluster.disturb, ()), (kill, ()),
                                    (cluster.wish, ()), (lead, ()), (renew, ()), *[(cluster.schedule, (pick,))] * 8):
            cluster.run(function, *arguments)
        time.sleep(SECONDS)
        state_keeper = threading.Event()

        def keep():
            while not state_keeper.wait(0.5):
                renew(True)
        cluster.stop()
        leader = both[state["holder"]]
        threading.Thread(target=keep, daemon=True).start()
        check(cluster, both, leader)
        state_keeper.set()
    cluster.server.stop()


print(f"# seed {SEED}, {SECONDS:.0f} s each")
tap.main()
