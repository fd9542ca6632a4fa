# SPDX-License-Identifier: Apache-2.0
"""measure BUILD [--containers N] [--seconds N] [--reads N]: what vgpu-monitor and vgpu-device-plugin cost on a
simulated node of 8 GPUs: private memory (RssAnon) and RSS, processor time at rest, and how long /metrics takes.
The containers have regions of ours that are copies of one that a program filled, each with a living slot (its lock is
held here), a record and a grant. Prints a table; the load of the machine is told beside it."""
import argparse
import fcntl
import http.client
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import time

from monitor_world import NODE, World
from mine import MINE
from place import Program

OFFSET = 2011136
SLOT = OFFSET + 8448
F_OFD_SETLK = 37
MAGIC = 0x3154524755504756
SIM = "8xh200"


def make_region(world):
    """A region that a program with one device has filled."""
    path = world.path("region")
    with Program("--region", path, f"--sim={SIM},machine={world.path('machine')}", "--memory", "2g", "--cores", "30",
                 environment=MINE) as program:
        assert program.allocate(100) == 0
        shutil.copyfile(path, path + ".filled")
    return path + ".filled"


def add_container(world, number, region, held):
    name = f"trainer-{number}"
    world.pod(name, uid=f"12345678-1234-4abc-8def-{number:012x}", containers=("main", "proxy"))
    directory = f"12345678-1234-4abc-8def-{number:012x}_main"
    file = os.path.join(world.container(directory), "0a1b.cache")
    subprocess.run(["cp", "--sparse=always", region, file], check=True)
    grant = world.path(f"hook/grants/{number:032x}")
    os.makedirs(grant + "/limits.d")
    os.link(file, grant + "/account")
    with open(file, "rb") as copy:
        copy.seek(OFFSET + 256)
        uuid = copy.read(48)
    text = struct.pack("<QIIQIIIIII256s256s64s64s64s", MAGIC, 1, 0x01020304, 5120, 2, 1, 1, 1, 0, 0, b"/etc/vgpu/account",
                       name.encode(), b"default", b"", b"main").ljust(1024, b"\0")
    with open(grant + "/limits.d/grant", "wb") as out:
        out.write((text + struct.pack("<48sQII", uuid, 2 << 30, 30, 0)).ljust(5120, b"\0"))
    with open(grant + "/allocation.json", "w", encoding="utf-8") as out:
        json.dump({"version": 1, "id": f"{number:032x}", "serial": number, "resource": "nvidia.com/gpu", "ids": [f"x-{number}"],
                   "namespace": "default", "pod": name, "uid": f"12345678-1234-4abc-8def-{number:012x}",
                   "container": "main", "slot": 0, "init": False, "sidecar": False, "limited": True,
                   "devices": [], "directory": directory, "cache": "0a1b.cache", "sure": True}, out)
    lock = open(file, "r+b")  # until the end: its slot lives
    fcntl.fcntl(lock, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, SLOT, 1, 0))
    held.append(lock)


class Plugin:
    def __init__(self, world):
        for name in ("kubelet", "plugin"):
            os.makedirs(world.path(name))
        with open(world.path("device.yaml"), "w", encoding="utf-8") as file:
            file.write("nvidia:\n  deviceSplitCount: 10\n")
        self.kubelet = subprocess.Popen([os.path.join(world.build, "test/node/fake-kubelet"), world.path("kubelet")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.kubelet.stdout.readline()
        self.log = open(world.path("plugin.log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [os.path.join(world.build, "src/daemon/vgpu-device-plugin"), "--library-source=", "--config-file",
             world.path("device.yaml"), "--driver-root-ctr-path="],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log,
            env={"PATH": os.environ["PATH"], "KUBECONFIG": world.path("config"), "NODE_NAME": NODE,
                 "HOOK_PATH": world.path("plugin"), "KUBELET_SOCKET": world.path("kubelet/kubelet.sock"),
                 "LD_LIBRARY_PATH": os.path.join(world.build, "src/sim"), "VGPU_SIM": SIM,
                 "VGPU_SIM_MACHINE": world.path("machine")})
        world.until(self.serves, lambda: f"the plugin's devices: {self.said()}")

    def said(self):
        self.log.seek(0)
        return self.log.read()[-500:]

    def serves(self):
        assert self.process.poll() is None, self.said()
        return "inventory: 8 cards" in self.said()

    def end(self):
        for process in (self.process, self.kubelet):
            process.kill()
            process.wait()


def memory(pid):
    """RssAnon and VmRSS in KiB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["RssAnon"].split()[0]), int(fields["VmRSS"].split()[0])


def processor_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_metrics(world):
    """Seconds of one answer over a connection of its own, and its bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", world.port)
    connection.connect()
    start = time.monotonic()
    connection.request("GET", "/metrics")
    text = connection.getresponse().read()
    took = time.monotonic() - start
    connection.close()
    return took, text


def measure(world, options):
    held = []
    region = make_region(world)
    for number in range(options.containers):
        add_container(world, number, region, held)
    plugin = Plugin(world)
    world.start(LD_LIBRARY_PATH=os.path.join(world.build, "src/sim"), VGPU_SIM=SIM,
                VGPU_SIM_MACHINE=world.path("machine"))
    world.until(lambda: sum(k.startswith("hami_host_gpu_memory_used") for k in world.samples()) == 8, "the cards")
    shown = sum(k.startswith("hami_vgpu_memory_used_bytes") for k in world.samples())
    assert shown == options.containers, f"{shown} containers are shown: {world.lines}"
    answers = [read_metrics(world) for _ in range(options.reads)]
    times = sorted(1000 * took for took, _ in answers)
    pids = {"vgpu-monitor": world.monitor.pid, "vgpu-device-plugin": plugin.process.pid}
    before = {name: processor_s(pid) for name, pid in pids.items()}
    time.sleep(options.seconds)
    print(f"load average {os.getloadavg()}; {options.containers} containers, {SIM}, answer of "
          f"{len(answers[-1][1])} bytes\n")
    print("| what | RssAnon, KiB | RSS, KiB | processor at rest, % of a core |\n| --- | --- | --- | --- |")
    total = 0
    for name, pid in pids.items():
        anonymous, all_of = memory(pid)
        total += anonymous
        share = 100 * (processor_s(pid) - before[name]) / options.seconds
        print(f"| {name} | {anonymous} | {all_of} | {share:.2f} |")
    print(f"| both | {total} | | |\n")
    print(f"/metrics, {options.reads} times: median {statistics.median(times):.1f} ms, least {times[0]:.1f}, "
          f"most {times[-1]:.1f}; 99 of 100 within {times[int(0.99 * (len(times) - 1))]:.1f} ms")
    plugin.end()


parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("--containers", type=int, default=80)
parser.add_argument("--seconds", type=float, default=60)
parser.add_argument("--reads", type=int, default=100)
chosen = parser.parse_args()
with World(os.path.abspath(chosen.build)) as here:
    here.server.put("nodes", {"metadata": {"name": NODE}})
    measure(here, chosen)
sys.exit(0)
