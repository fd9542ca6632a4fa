# SPDX-License-Identifier: Apache-2.0
"""Nodes that are only objects, and what a kubelet and a device plugin would write about them and their
Pods: the node's Lease, a Pod that runs, the end of one that is deleted, the outcome of an allocation."""
import http.client
import json
import queue
import threading
import time

from control_plane import KEEPER, Api, Refused, Session
from follow import Follow
from hami import LOCK, PHASE, REGISTER, TO_ALLOCATE

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE_S, RENEW_S = 40, 10
PLUGIN = "vgpu.io/plugin"


def stamp():
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())


def make_devices(node, cards, memory=10000, count=10, model="NVIDIA A10"):
    return [{"id": f"GPU-{node}-{index}", "index": index, "count": count, "devmem": memory, "devcore": 100,
             "type": model, "mode": "hami-core", "health": True} for index in range(cards)]


class Keeper:
    def __init__(self, pki, workers=2, runs=True):
        """`runs`: Pods get a status; otherwise only allocations have an outcome."""
        self.api, self.pki, self.runs = Api(pki, KEEPER), pki, runs
        self.ours = {}  # of each node: whether its plugin is vgpu's
        self.leases = []  # names of the nodes that have one
        self.work, self.busy = queue.Queue(), set()
        self.ended = False
        self.problems = []
        self.pods = Follow(self.api, "/api/v1/pods?fieldSelector=spec.nodeName!%3D", self.changed)
        self.pods.start()
        for target in [self.renew, *[self.serve] * workers]:
            threading.Thread(target=target, daemon=True).start()

    # ---- Nodes ----

    def add_node(self, name, devices, ours=True, **labels):
        annotations = {REGISTER: json.dumps(devices, separators=(",", ":"))}
        if ours:
            annotations[PLUGIN] = "test"
        total = str(sum(one["count"] for one in devices))
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "250", "nvidia.com/gpu": total}
        now = stamp()[:-8] + "Z"
        self.api.call("POST", LEASES, {"metadata": {"name": name}, "spec": {
            "holderIdentity": name, "leaseDurationSeconds": LEASE_S, "renewTime": stamp()}})
        self.api.call("POST", "/api/v1/nodes", {
            "metadata": {"name": name, "annotations": annotations,
                         "labels": {"gpu": "on", "kubernetes.io/hostname": name, **labels}},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now,
                 "lastTransitionTime": now}]}})
        self.ours[name] = ours
        self.leases.append(name)

    def renew(self):
        while not self.ended:
            time.sleep(RENEW_S)
            for name in list(self.leases):
                self.attempt(self.api.patch, f"{LEASES}/{name}", {"spec": {"renewTime": stamp()}})

    # ---- Pods ----

    def changed(self, kind, pod):
        if kind == "LISTED":
            for one in list(self.pods.objects.values()):
                self.want(one)
        elif kind != "DELETED":
            self.want(pod)

    def want(self, pod):
        if pod["spec"].get("nodeName") not in self.ours:
            return
        uid, ends = pod["metadata"]["uid"], "deletionTimestamp" in pod["metadata"]
        done = not self.runs and pod["metadata"].get("annotations", {}).get(PHASE, "success") == "success"
        if (ends or pod["status"].get("phase") == "Pending" and not done) and (uid, ends) not in self.busy:
            self.busy.add((uid, ends))
            self.work.put((pod, ends))

    def serve(self):
        api = Session(self.pki, KEEPER)
        while not self.ended:
            pod, ends = self.work.get()
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            done = self.attempt(self.end if ends else self.begin, path, pod, api)
            self.busy.discard((metadata["uid"], ends))
            if not done and metadata["uid"] in self.pods.objects:
                time.sleep(0.2)
                self.want(self.pods.objects[metadata["uid"]])

    def attempt(self, function, *arguments):
        """Whether it was done. The API server may be away, the object gone or changed."""
        try:
            function(*arguments)
            return True
        except Refused as refused:
            if refused.status not in (404, 409, 429, 500, 503):
                self.problems.append(f"{arguments[0]}: {refused}")
        except (OSError, http.client.HTTPException):
            pass
        return False

    def begin(self, path, pod, api):
        if PHASE in pod["metadata"].get("annotations", {}):
            self.allocate(path, pod, api)
        if not self.runs:
            return
        now = stamp()[:-8] + "Z"
        ready = [{"type": kind, "status": "True", "lastTransitionTime": now}
                 for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")]
        api.patch(path + "/status", {"status": {"phase": "Running", "conditions": ready, "startTime": now}})

    def allocate(self, path, pod, api):
        """As the plugin does; where it is HAMi's, it also gives the node's lock back."""
        api.patch(path, {"metadata": {"uid": pod["metadata"]["uid"], "annotations": {
            PHASE: "success", TO_ALLOCATE: ";"}}})
        node = pod["spec"]["nodeName"]
        if not self.ours[node]:
            api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {LOCK: None}}})

    def end(self, path, pod, api):
        api.call("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})
