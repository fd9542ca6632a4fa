# SPDX-License-Identifier: Apache-2.0
"""Looks at the cluster's Pods at each change, in the order in which the API server made them: whether a
device is over-committed, or a Pod has what it did not ask for. It knows annotations and formulas of the
protocol, and nothing of vgpu's code."""
import threading

from follow import Follow
from hami import ALLOCATED

NODE = "hami.io/vgpu-node"


def shares(pod):
    """[[(UUID, MiB, cores) of its devices] of each container], as the Pod's annotation has them."""
    text = pod["metadata"].get("annotations", {}).get(ALLOCATED, "")
    containers = []
    for part in text.split(";")[:-1]:
        fields = [one.split(",") for one in part.split(":") if one]
        containers.append([(one[0], int(one[2]), int(one[3])) for one in fields])
    return containers


def quantity(text):
    """As the API server writes whole ones: "3000" comes back as "3k"."""
    digits = text.rstrip("kMGiK")
    return int(digits) * {"": 1, "k": 1000, "M": 10 ** 6, "Ki": 1024, "Mi": 1 << 20}[text[len(digits):]]


def asked(pod):
    """[(devices, MiB, cores)] of each container; None: not named."""
    def number(limits, key):
        value = limits.get("nvidia.com/" + key)
        return None if value is None else quantity(value)
    return [tuple(number(one.get("resources", {}).get("limits", {}), key) for key in ("gpu", "gpumem", "gpucores"))
            for one in pod["spec"]["containers"]]


class Observer:
    def __init__(self, api):
        self.devices = {}   # by UUID: (node, MiB, cores, slots)
        self.held = {}      # by the Pod's UID: its shares on one list
        self.sums = {}      # by UUID: [MiB, cores, slots]
        self.faults, self.highest, self.changes = [], 0, 0
        self.lock = threading.Lock()
        self.pods = Follow(api, "/api/v1/pods", self.changed)

    def start(self):
        self.pods.start()

    def add_node(self, name, devices):
        with self.lock:
            for one in devices:
                self.devices[one["id"]] = (name, one["devmem"], one["devcore"], one["count"])

    def changed(self, kind, pod):
        with self.lock:
            self.changes += 1
            if kind == "LISTED":
                self.held, self.sums = {}, {}
                for one in self.pods.objects.values():
                    self.take(one)
            elif kind == "DELETED":
                self.leave(pod)
            else:
                self.leave(pod)
                self.take(pod)

    def leave(self, pod):
        for uuid, memory, cores in self.held.pop(pod["metadata"]["uid"], []):
            total = self.sums[uuid]
            total[0], total[1], total[2] = total[0] - memory, total[1] - cores, total[2] - 1

    def take(self, pod):
        node = pod["spec"].get("nodeName")
        if not node or pod["status"].get("phase") in ("Succeeded", "Failed"):
            return
        containers = shares(pod)
        flat = [share for some in containers for share in some]
        self.held[pod["metadata"]["uid"]] = flat
        for uuid, memory, cores in flat:
            total = self.sums.setdefault(uuid, [0, 0, 0])
            total[0], total[1], total[2] = total[0] + memory, total[1] + cores, total[2] + 1
            self.look(pod, uuid, node)
        if flat:
            self.compare(pod, containers)

    def look(self, pod, uuid, node):
        name = pod["metadata"]["name"]
        if uuid not in self.devices or self.devices[uuid][0] != node:
            self.faults.append(f"{name} on {node} has the device {uuid}")
            return
        total, room = self.sums[uuid], self.devices[uuid][1:]
        self.highest = max(self.highest, total[0] / room[0])
        if any(have > most for have, most in zip(total, room)):
            self.faults.append(f"with {name} the device {uuid} holds {total} of {list(room)}")

    def compare(self, pod, containers):
        name = pod["metadata"]["name"]
        for (count, memory, cores), got in zip(asked(pod), containers):
            if len(got) != (count or 0) or len({one[0] for one in got}) != len(got):
                self.faults.append(f"{name} asked for {count} devices and has {got}")
            if any((memory is not None and one[1] != memory) or (cores is not None and one[2] != cores) for one in got):
                self.faults.append(f"{name} asked for {memory} MiB, {cores} % and has {got}")

    def total(self):
        """(MiB, slots) that are held."""
        with self.lock:
            return sum(one[0] for one in self.sums.values()), sum(one[2] for one in self.sums.values())
