# SPDX-License-Identifier: Apache-2.0
"""scale BUILD [NODES [PODS [binpack|spread]]]: how fast Pods are bound in a big cluster: nodes of 8 cards that are objects,
the real API server, kube-scheduler and vgpu-scheduler. `scripts/test-cluster --only scale` runs it; it is
no test, but what must never be (scheduling_world.py) fails it too. The test writes each allocation's outcome,
as the device plugin does, as soon as it sees the Pod bound: until then others that differ wait for the node.

All Pods are made first, through the webhooks, while no scheduler looks; then kube-scheduler starts. The
times of requests to vgpu-scheduler are between packets on the loopback: from the last one of the request to
the first one of the answer, with TLS on both sides and the wait for a processor."""
import http.client
import json
import os
import random
import socket
import ssl
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
# pylint: disable=wrong-import-position
import tap  # noqa: E402

from control_plane import TOKEN, wait_for
from keeper import make_devices
from scheduling_world import ADDRESSES, EXTENDER_PORT, PORT, SCHEDULER_PORT, World, pod

CARDS, MEMORY, MODEL = 8, 81559, "NVIDIA H100 80GB HBM3"
CLIENTS = 4
TICKS = os.sysconf("SC_CLK_TCK")
ETHERNET, HEADER = 14, 96
SO_TIMESTAMPNS, SO_RCVBUFFORCE = 35, 33
HANDSHAKE, DATA = 22, 23  # of TLS records
LEAST = 150  # bytes of a request; less: the end of a handshake, or of a connection
BIND_BYTES = 1000  # a bind has some names; a filter has the Pod, and the names of all nodes


class Wire(threading.Thread):
    """Looks at packets to and from vgpu-scheduler, and keeps of each request how long it took, in ms, its bytes
    with TLS, and whether it came to the extender's port."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self.socket.bind(("lo", 0))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.asked, self.took, self.connections = {}, [], 0

    def run(self):
        while True:
            data, ancillary, _, source = self.socket.recvmsg(HEADER, 64)
            if source[2] == socket.PACKET_OUTGOING:
                continue  # each packet of the loopback comes twice
            inner = ETHERNET + 4 * (data[ETHERNET] & 15)
            if data[ETHERNET + 9] != socket.IPPROTO_TCP or len(data) < inner + 20:
                continue
            ports = struct.unpack_from("!HH", data, inner)
            start = inner + 4 * (data[inner + 12] >> 4)
            size = struct.unpack_from("!H", data, ETHERNET + 2)[0] - (start - ETHERNET)
            if size > 0 and (PORT in ports or EXTENDER_PORT in ports):
                seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
                self.take(ports, seconds * 1000 + nanoseconds / 1e6, size, data[start])

    def take(self, ports, now, size, kind):
        if ports[1] not in (PORT, EXTENDER_PORT):
            if ports[1] in self.asked:
                self.asked[ports[1]][2] = now  # the last packet of the answer so far
            return
        if kind == HANDSHAKE:
            self.connections += 1
        one = self.asked.get(ports[0])
        if one and one[2]:
            self.keep(*self.asked.pop(ports[0]))
            one = None
        if kind == DATA:
            self.asked[ports[0]] = [now, size + (one[1] if one else 0), 0, ports[1] == EXTENDER_PORT]

    def keep(self, then, size, answered, is_extender):
        if size >= LEAST:
            self.took.append((answered - then, size, is_extender))

    def clear(self):
        self.took, self.connections = [], 0

    def all(self):
        """Those that have ended; none is under way."""
        for port in [port for port, one in self.asked.items() if one[2]]:
            self.keep(*self.asked.pop(port))
        return self.took


class Load(threading.Thread):
    """Posts what it is given, over one connection."""

    def __init__(self, items):
        super().__init__(daemon=True)
        self.items = items
        self.start()

    def run(self):
        connection = World.plane.api.connect()
        for method, path, body, kind in self.items:
            connection.request(method, path, json.dumps(body), {"Authorization": "Bearer " + TOKEN,
                                                                "Content-Type": kind})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise http.client.HTTPException(f"{method} {path}: {answer.status} {text[:200]}")


def load(items):
    """All of them, by several clients; seconds."""
    started = time.monotonic()
    threads = [Load(items[first::CLIENTS]) for first in range(CLIENTS)]
    for one in threads:
        one.join()
    return time.monotonic() - started


def make_node(index):
    name = f"node-{index:04d}"
    devices = make_devices(name, CARDS, MEMORY, model=MODEL)
    for one in devices:
        one["id"] = f"GPU-{index:08x}-0000-4000-8000-{one['index']:012x}"
        one["numa"] = one["index"] // 4
    World.observer.add_node(name, devices)
    World.keeper.ours[name] = True
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "250", "nvidia.com/gpu": str(10 * CARDS)}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return ("POST", "/api/v1/nodes", {
        "metadata": {"name": name, "labels": {"gpu": "on", "kubernetes.io/hostname": name}, "annotations": {
            "hami.io/node-nvidia-register": json.dumps(devices, separators=(",", ":")), "vgpu.io/plugin": "test"}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [
            {"type": "Ready", "status": "True", "reason": "Fake", "lastHeartbeatTime": now,
             "lastTransitionTime": now}]}}, "application/json")


def make_pod(index):
    chance = random.Random(index)
    body = pod(f"pod-{index:05d}", chance.choice([2000, 4000, 8000, 16000]), chance.choice([5, 10, 20]),
               chance.choice([1, 1, 1, 2]))
    return "POST", "/api/v1/namespaces/default/pods", body, "application/json"


class Use:
    """Of a process: processor time in s, and memory resident in MB (now, the most)."""

    def __init__(self, name):
        self.pid = World.plane.processes[name].pid
        children = f"/proc/{self.pid}/task/{self.pid}/children"
        with open(children, encoding="ascii") as file:  # of unshare
            self.pid = int((file.read().split() or [self.pid])[0])
        self.start = self.seconds()

    def seconds(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def spent(self):
        return self.seconds() - self.start

    def threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def memory(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return [int(lines[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM")]


def percentiles(values):
    values = sorted(values)
    if not values:
        return "none"
    return " ".join(f"{name} {values[min(len(values) - 1, int(len(values) * share))]:.2f}"
                    for name, share in (("median", 0.5), ("p90", 0.9), ("p99", 0.99), ("most", 1)))


def tell(what, took, extender, least=0, most=1 << 30):
    """Of requests of kube-scheduler or of the API server, of so many bytes."""
    some = [ms for ms, size, is_extender in took if least <= size < most and is_extender == extender]
    print(f"#   ms of {len(some)} {what}: {percentiles(some)}")


def algorithm():
    """Mean ms that kube-scheduler took to choose a node, the filter of its extender included."""
    connection = http.client.HTTPSConnection("127.0.0.1", SCHEDULER_PORT + ord("a"), timeout=10,
                                             context=ssl._create_unverified_context())
    connection.request("GET", "/metrics", headers={"Authorization": "Bearer " + TOKEN})
    page = connection.getresponse().read().decode()
    connection.close()
    name = "scheduler_scheduling_algorithm_duration_seconds"
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if line.startswith((name + "_sum", name + "_count")))
    return float(values[name + "_sum"]) / float(values[name + "_count"]) * 1000


def bound():
    """How many Pods have a node."""
    return len(World.observer.held)


def report(what, uses, before):
    spent = time.monotonic() - before
    print(f"# {what}: {spent:.1f} s")
    for name, use in uses.items():
        now, most = use.memory()
        print(f"#   {name}: processor {use.spent():.2f} s in {use.threads()} threads, resident {now:.0f} MB, "
              f"at most {most:.0f} MB")
        use.start = use.seconds()
    own = os.times()
    print(f"#   this program, since its start: processor {own.user + own.system:.2f} s")


@tap.test
def scale():
    """many Pods are bound to many nodes"""
    nodes = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    pods = int(sys.argv[3]) if len(sys.argv) > 3 else 4000
    os.environ["VGPU_TEST_FLAGS_MANAGER"] = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"
    os.environ["VGPU_TEST_FLAGS_APISERVER"] = "--disable-admission-plugins=TaintNodesByCondition"
    for pair in list(ADDRESSES)[1:]:
        ADDRESSES.pop(pair)
    World.elects = World.runs = False
    World.policy = sys.argv[4] if len(sys.argv) > 4 else World.policy
    print(f"# load before: {os.getloadavg()}, processors {os.cpu_count()}")
    World.start(sys.argv[1])
    wire = Wire()
    wire.start()
    print(f"# {nodes} nodes made in {load([make_node(index) for index in range(nodes)]):.1f} s")
    uses = {name: Use(name) for name in ("vgpu-a", "apiserver", "etcd", "manager")}
    wire.clear()
    before = time.monotonic()
    seconds = load([make_pod(index) for index in range(pods)])
    print(f"# {pods} Pods made by {CLIENTS} clients: {pods / seconds:.0f} a second")
    report("making them", uses, before)
    tell("admission reviews, two a Pod", wire.all(), extender=False)
    tap.equal(bound(), 0, "Pods that are bound")

    wire.clear()
    World.start_kube_scheduler("a")
    wait_for("the first is bound", bound, pause=0.01)
    uses["kube-a"] = Use("kube-a")
    before = time.monotonic()
    wait_for("all are bound", lambda: bound() >= pods, seconds=500, pause=0.05)
    seconds = time.monotonic() - before
    took, connections = wire.all(), wire.connections
    print(f"# {pods} Pods bound: {pods / seconds:.0f} a second")
    report("binding them", uses, before)
    tell("filters", took, extender=True, least=BIND_BYTES)
    tell("binds", took, extender=True, most=BIND_BYTES)
    tell("admission reviews, of the binding and of the label", took, extender=False)
    print(f"#   {connections} connections to vgpu-scheduler were made; kube-scheduler's choice took "
          f"{algorithm():.2f} ms on average, its filter included")
    page = World.page("a")
    print("#   " + ", ".join(line for line in page.splitlines() if line.startswith("vgpu_scheduler_")))
    print(f"# load after: {os.getloadavg()}")
    held, slots = World.observer.total()
    print(f"# {held} MiB in {slots} shares are held; the fullest card at {World.observer.highest:.2f}")
    World.check()


tap.main()
