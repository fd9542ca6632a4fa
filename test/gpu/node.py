# SPDX-License-Identifier: Apache-2.0
"""node BUILD: vgpu-device-plugin and a fake kubelet over the card's own driver. Prints what the plugin
registers, what Allocate returns for two Pods, and what PyTorch sees under each: the answer's mounts
are made in a mount namespace, its variables set, and the library preloaded. Exit status 1 where a
container gets another limit than its Pod was given. No Kubernetes is needed; root is."""
import datetime
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "node"))
from plugin_bed import BUILD, GPU, REGISTER, SCORES, Node, wait_for  # noqa: E402

PODS = (("p1", 4000, 30), ("p2", 8000, 60))  # name, MiB, percent
PROGRAM = """
import time, torch
free, total = torch.cuda.mem_get_info()
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
try:
    b = torch.empty(total * 9 // 10 // 4, device="cuda"); b2 = torch.empty(total // 4, device="cuda")
    refused = False
except torch.OutOfMemoryError:
    refused = True
begin = time.monotonic(); count = 0
while time.monotonic() - begin < 6:
    for _ in range(20):
        a @ a
    torch.cuda.synchronize(); count += 20
print("TOTAL_MIB", total >> 20, "REFUSED", refused, "PRODUCTS_S", round(count / (time.monotonic() - begin)))
"""


def pod(name, uuid, memory, cores):
    assigned = f"{uuid},NVIDIA,{memory},{cores}:;"
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"hami.io/vgpu-node": "n1"},
                         "annotations": {"hami.io/vgpu-node": "n1", "hami.io/bind-phase": "allocating",
                                         "hami.io/bind-time": str(int(time.time())),
                                         "hami.io/vgpu-devices-to-allocate": assigned,
                                         "hami.io/vgpu-devices-allocated": assigned}},
            "spec": {"nodeName": "n1", "containers": [
                {"name": "c", "resources": {"limits": {GPU: "1", "nvidia.com/gpumem": str(memory)}}}]},
            "status": {"phase": "Pending"}}


def allocate(node, name, uuid, replica):
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    node.annotate(**{"hami.io/mutex.lock": f"{now},default,{name}"})
    since, begin = node.kubelet.events.count(), time.monotonic()
    node.kubelet.do("allocate", resource=GPU, containers=[[f"{uuid}-{replica}"]])
    answer = node.kubelet.wait("allocate", since)
    print(f"Allocate for {name}: {answer['status']} in {(time.monotonic() - begin) * 1e3:.1f} ms")
    wait_for("release of the lock", lambda: node.annotation("hami.io/mutex.lock") is None)
    return answer["containers"][0]


def start(container):
    """The program as the container would run it."""
    lines = ["set -e", "mount --make-rprivate /"]
    for mount in sorted(container["mounts"], key=lambda m: m["container_path"].count("/")):
        inside, host = mount["container_path"], mount["host_path"]
        if inside == "/etc/ld.so.preload" or not os.path.exists(host):
            continue
        make = f"mkdir -p '{inside}'" if os.path.isdir(host) else f"mkdir -p '{os.path.dirname(inside)}'; touch '{inside}'"
        lines.append(f"{make}; mount --bind '{host}' '{inside}'")
        if mount["read_only"]:
            lines.append(f"mount -o remount,ro,bind '{inside}'")
    lines.append(f"exec env LD_PRELOAD='{BUILD}/libvgpu.so' python3 -c \"$PROGRAM\"")
    environment = {**os.environ, **container["envs"], "PROGRAM": PROGRAM}
    environment.pop("LD_LIBRARY_PATH", None)
    return subprocess.Popen(["unshare", "--mount", "sh", "-c", "\n".join(lines)], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def main():
    failed = False
    with Node(driver=False) as node:
        for name in ("VGPU_SIM", "VGPU_SIM_MACHINE", "VGPU_SIM_FAULTS", "LD_LIBRARY_PATH", "NVIDIA_DRIVER_ROOT"):
            node.environment.pop(name, None)
        plugin = node.start("--pass-device-specs", environment={"ENABLE_TOPOLOGY_SCORE": "true"})
        try:
            register = wait_for("register annotation", lambda: node.annotation(REGISTER), lambda: plugin.log.lines[-10:])
            print("registered:", register, node.annotation(SCORES))
            cards = json.loads(register)
            wait_for("devices", lambda: node.kubelet.devices())
            uuid = cards[0]["id"]
            print("devices:", node.kubelet.devices())
            answers = []
            for replica, (name, memory, cores) in enumerate(PODS):
                node.server.put("pods", pod(name, uuid, memory, cores))
                answers.append(allocate(node, name, uuid, replica))
                print(json.dumps(answers[-1]))
            programs = [start(answer) for answer in answers]
            for (name, memory, cores), program in zip(PODS, programs):
                output, errors = program.communicate(timeout=120)
                print(name, cores, "%:", output.strip(), errors[-500:])
                failed |= f"TOTAL_MIB {memory} REFUSED True" not in output
            with open(f"/proc/{plugin.process.pid}/status", encoding="ascii") as file:
                print([line.strip() for line in file if line.startswith(("Rss", "VmRSS", "Threads"))])
        finally:
            print("\n".join(plugin.log.lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
