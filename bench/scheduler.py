# SPDX-License-Identifier: Apache-2.0
"""bench/scheduler.py BUILD [FILTERS]: vgpu-scheduler with 1,000 nodes of 8 cards and 10,000 Pods of the
fake API server: how long filters of 1,000 names take for one client over one connection, and binds; what the
daemon asks the API server meanwhile, and what memory it has. Times by the clock and of the daemon's processor time.
The Pod of a filter is as large as real ones: three containers, and managedFields of 25 KB."""
import http.client
import json
import os
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "test/scheduler"))
from scheduler_world import ALLOCATED, NODE, World, make_node, make_pod  # noqa: E402

NODES, CARDS, PODS = 1000, 8, 10000
FILTERS = int(sys.argv[2]) if len(sys.argv) > 2 else 1000


def percentile(times, percent):
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return {line.split(":")[0]: line.split()[1] for line in file if line.startswith(("VmRSS", "RssAnon"))}


def objects():
    for number in range(NODES):
        yield "nodes", make_node(f"node-{number:04}", cards=CARDS, memory=81920)
    for number in range(PODS):
        node = f"node-{number % NODES:04}"
        card = f"GPU-{node}-{number // NODES % CARDS}"
        pod = make_pod(f"pod-{number:05}", memory=4096, **{NODE: node, ALLOCATED: f"{card},NVIDIA,4096,5:;"})
        pod["spec"]["nodeName"] = node
        pod["metadata"]["labels"] = {NODE: node}
        yield "pods", pod


def real_pod(name, **options):
    """With what a Pod of a Deployment brings along."""
    pod = make_pod(name, **options)
    fields = {f"f:field-{number:03}": {"f:name": {}, "f:value": {}, "f:valueFrom": {".": {}}} for number in range(350)}
    pod["metadata"]["managedFields"] = [{"manager": "kube-controller-manager", "operation": "Update",
                                         "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}]
    pod["spec"]["containers"] += [{"name": f"side-{i}", "image": "registry/side:1", "env": [
        {"name": f"VARIABLE_{k}", "value": "x" * 40} for k in range(20)]} for i in range(2)]
    return pod


def asked(world):
    """Requests of the daemon so far, without watches and events."""
    return len(world.requests("/(pods|nodes|resourcequotas)"))


def timed(connection, path, body):
    start = time.perf_counter()
    connection.request("POST", path, body)
    text = connection.getresponse().read()
    return time.perf_counter() - start, json.loads(text)


def parallel(world, node, count=48, clients=16):
    """Equal Pods to one node, whose requests take the API server 50 ms each."""
    waiting = []
    for number in range(count):
        pod = world.create("pods", make_pod(f"together-{number}", memory=1))
        assert world.filter(pod, [node])["NodeNames"] == [node]
        waiting.append(pod)
    world.server.fault(method="POST", path="/binding", delay=0.05, count=count)
    errors, times = [], []

    def work():
        while waiting:
            pod, start = waiting.pop(), time.perf_counter()
            errors.append(world.bind(pod, node))
            times.append(time.perf_counter() - start)
    threads = [threading.Thread(target=work) for _ in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    assert not any(errors), errors
    print(f"{count} binds to one node by {clients} clients, 50 ms at the API server each: {took:.2f} s, "
          f"median {statistics.median(times) * 1e3:.0f} ms; one after the other they would take {count * 0.05:.1f} s")


def main():
    names = [f"node-{number:04}" for number in range(NODES)]
    start = time.perf_counter()
    with World(list(objects())) as world:
        pid = world.process.pid
        print(f"ready {time.perf_counter() - start:.1f} s after the start (the fake API server's time in it)")
        print(f"memory, KiB: {memory(pid)}")
        connection = http.client.HTTPConnection("127.0.0.1", world.port)
        for title, wanted in (("one node is found", 4000), ("nothing fits", 90000)):
            times, before, requests = [], cpu_s(pid), asked(world)
            for number in range(FILTERS):
                pod = real_pod(f"new-{number}", memory=wanted)
                pod["metadata"]["uid"] = f"uid-{number % 50}"
                body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names})
                took, answer = timed(connection, "/filter", body)
                times.append(took)
                size = len(body)
                assert (answer["NodeNames"] is None) == (wanted > 81920), answer
            print(f"filter, {title}: median {percentile(times, 50) * 1e3:.2f} ms, p99 {percentile(times, 99) * 1e3:.2f}"
                  f" ms, most {max(times) * 1e3:.2f} ms; processor {(cpu_s(pid) - before) / FILTERS * 1e3:.2f} ms each;"
                  f" {size / 1000:.0f} KB; API requests: {asked(world) - requests}")
        times, requests = [], asked(world)
        for number in range(200):
            pod = world.create("pods", make_pod(f"bound-{number}", memory=1))
            answer = world.filter(pod, names)
            took, answer = timed(connection, "/bind", json.dumps({
                "PodName": pod["metadata"]["name"], "PodNamespace": "default", "PodUID": pod["metadata"]["uid"],
                "Node": answer["NodeNames"][0]}))
            assert answer["Error"] == "", answer
            times.append(took)
        labels = sum(r.startswith("PATCH") for r in world.requests("/pods/")[-1000:])
        print(f"bind: median {percentile(times, 50) * 1e3:.2f} ms, p99 {percentile(times, 99) * 1e3:.2f} ms; API requests "
              f"each: {(asked(world) - requests) / 200:.2f}, {labels / 200:.2f} of them the label afterwards")
        parallel(world, names[-1])
        print(f"memory, KiB: {memory(pid)}")


main()
