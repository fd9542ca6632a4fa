# SPDX-License-Identifier: Apache-2.0
"""The part of HAMi's scheduler: it chooses devices, writes them to the Pod, takes the node's lock and
binds. Keys and forms are those of HAMi 2.10."""
import json
import time

from control_plane import Refused, wait_for

LOCK = "hami.io/mutex.lock"
REGISTER = "hami.io/node-nvidia-register"
TO_ALLOCATE, ALLOCATED = "hami.io/vgpu-devices-to-allocate", "hami.io/vgpu-devices-allocated"
PHASE = "hami.io/bind-phase"


class Scheduler:
    def __init__(self, api, node="n1"):
        self.api, self.node = api, f"/api/v1/nodes/{node}"
        self.name = node

    def annotations(self):
        """The node's."""
        return self.api.get(self.node)["metadata"].get("annotations", {})

    def devices(self):
        """As the node has registered them, with what HAMi's reader has for a member that is absent."""
        absent = {"index": 0, "numa": 0, "health": False}
        return [{**absent, **found} for found in json.loads(self.annotations().get(REGISTER, "[]"))]

    def filter(self, pod, devices):
        """`devices`: a string as HAMi writes it."""
        self.api.patch(pod, {"metadata": {"labels": {"hami.io/vgpu-node": self.name}, "annotations": {
            "hami.io/vgpu-node": self.name, "hami.io/vgpu-time": str(int(time.time())),
            TO_ALLOCATE: devices, ALLOCATED: devices}}})

    def lock(self, namespace, name):
        node = self.api.get(self.node)
        held = node["metadata"].get("annotations", {}).get(LOCK)
        if held:
            return False
        try:
            self.api.patch(self.node, {"metadata": {
                "resourceVersion": node["metadata"]["resourceVersion"],
                "annotations": {LOCK: f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())},{namespace},{name}"}}})
        except Refused as refused:
            if refused.status != 409:
                raise
            return False
        return True

    def set_phase(self, pod):
        self.api.patch(pod, {"metadata": {"annotations": {PHASE: "allocating",
                                                          "hami.io/bind-time": str(int(time.time()))}}})

    def post_binding(self, pod, namespace, name):
        self.api.call("POST", pod + "/binding", {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.name}})

    def bind(self, pod, namespace, name):
        wait_for(f"the node's lock is free for {name}", lambda: self.lock(namespace, name))
        self.set_phase(pod)
        self.post_binding(pod, namespace, name)

    def place(self, name, devices, namespace="default"):
        pod = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self.filter(pod, devices)
        self.bind(pod, namespace, name)


def device(uuid, memory_mib, cores):
    return f"{uuid},NVIDIA,{memory_mib},{cores}:"
