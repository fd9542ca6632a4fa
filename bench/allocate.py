# SPDX-License-Identifier: Apache-2.0
"""bench/allocate.py BUILD [PODS]: vgpu-device-plugin with a simulated node of 8 cards, a fake API server and a
fake kubelet: how long an Allocate takes from the kubelet's request to its answer, one after the other. Each
Pod is bound as HAMi's scheduler does it (with the node's lock), or as vgpu-scheduler does (without). At once after
the binding the plugin's watch has not told it, and it asks the API server within the Allocate. The load of the
machine is told beside it."""
import datetime
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "test/node"))
from plugin_bed import GPU, Node, wait_for  # noqa: E402

PODS = int(sys.argv[2]) if len(sys.argv) > 2 else 200
ASSIGNED = "hami.io/vgpu-devices-to-allocate", "hami.io/vgpu-devices-allocated"


def percentile(times, percent):
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


def bind(node, name, assigned, lock):
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    annotations = {"hami.io/vgpu-node": "n1", "hami.io/bind-phase": "allocating",
                   "hami.io/bind-time": str(int(time.time())), **{key: assigned for key in ASSIGNED}}
    node.server.put("pods", {
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"nodeName": "n1", "containers": [
            {"name": "c", "resources": {"limits": {GPU: "1", "nvidia.com/gpumem": "3000"}}}]},
        "status": {"phase": "Pending"}})
    if lock:
        node.annotate(**{"hami.io/mutex.lock": f"{now},default,{name}"})


def measure(lock, lead_s):
    times = []
    with Node("8xh200") as node:
        node.write("device-config.yaml", "nvidia:\n  deviceSplitCount: 100\n")
        node.start()
        cards = [card["id"] for card in node.wait_registered()]
        node.wait_devices(lambda devices: len(devices) == 800)
        for i in range(PODS):
            card = cards[i % len(cards)]
            since = node.kubelet.events.count()
            bind(node, f"p{i}", f"{card},NVIDIA,1000,1:;", lock)
            time.sleep(lead_s)  # by which the plugin's watch is ahead of the kubelet
            node.kubelet.do("allocate", resource=GPU, containers=[[f"{card}-{i // len(cards)}"]])
            answer = node.kubelet.wait("allocate", since)
            assert answer["status"] == "OK", answer
            times.append(answer["took_us"] / 1000)
            pod = ("pods", "default", f"p{i}")
            wait_for("success", lambda: node.server.store.get(*pod)["metadata"]["annotations"].get(
                "hami.io/bind-phase") == "success")
            wait_for("release", lambda: not lock or node.annotation("hami.io/mutex.lock") is None)
    title = f"{'under the lock of the node' if lock else 'without a lock'}, {lead_s * 1000:.0f} ms after the binding"
    print(f"Allocate {title}, {PODS} Pods: median {percentile(times, 50):.2f} ms, p90 {percentile(times, 90):.2f} ms, "
          f"p99 {percentile(times, 99):.2f} ms, most {max(times):.2f} ms; load {os.getloadavg()[0]:.1f}", flush=True)


for lead in (0.05, 0):
    for with_lock in (True, False):
        measure(with_lock, lead)
