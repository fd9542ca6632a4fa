# SPDX-License-Identifier: Apache-2.0
"""monitor BUILD: vgpu-monitor over a fake API server, the simulator's NVML, region files of HAMi-core's and of
programs that run over the simulator, and directories that are hostile."""
import contextlib
import json
import mmap
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request

from monitor_world import ROOT, V0, V1, World, labels
import tap
from tap import equal, test, true

from mine import BUILD, MINE, VGPU
from place import Program, child_of

MIB = 1 << 20
UUID = "GPU-a0000001-1111-4222-8333-000000000001"
OTHER = "GPU-a0000002-1111-4222-8333-000000000002"
FAST = ("--feedback-interval", "200ms")
BASIC = {"uuids": [UUID], "limit": [3 << 30], "sm_limit": [30], "priority": 1,
         "procs": [{"pid": 10, "used": [{"context": 1, "module": 2, "data": 3, "offset": 4, "total": 10}], "sm": [5]}]}
OLD_S = 400  # more than the resync interval of 5 min


class Tenant:
    """A program over the simulator in a container of the node."""

    def __init__(self, world, name, *options, load=False, **variables):
        directory = world.container(name)
        self.region = os.path.join(directory, "1c2d.cache")
        arguments = ["--region", self.region, f"--sim=2xh200,machine={world.path('machine')}", *options]
        if load:
            self.program = None
            self.process = subprocess.Popen(
                [VGPU, "run", *arguments, "--", os.path.join(BUILD, "vgpu-load"), "--seconds", "0"],
                env={**MINE, **variables}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        else:
            self.program = Program(*arguments, environment=variables)
            self.process = self.program.process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.program:
            self.program.__exit__()
        elif self.process.poll() is None:
            try:
                os.kill(child_of(self), signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait(timeout=60)

    def word(self, form, offset):
        with open(self.region, "rb") as file:
            file.seek(offset)
            return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]


def value(samples, name, container="main", pod="w", **more):
    """The one sample of that container."""
    found = [samples[key] for key in samples if key.startswith(name + "{") and f'container="{container}"' in key
             and f'pod="{pod}"' in key and all(f'{k}="{v}"' in key for k, v in more.items())]
    equal(len(found), 1, f"samples of {name} for {pod}/{container} {more}")
    return found[0]


def ours(world):
    return {key for key in world.samples() if key.startswith("hami_vgpu_memory_used_bytes")}


def sum_of_kinds(samples):
    return sum(value(samples, "vgpu_memory_bytes", kind=kind)
               for kind in ("context", "module", "buffer", "managed", "spilled", "other"))


@test
def spilled():
    """what of a container's memory is in host memory is a kind of its own"""
    with World(BUILD) as world:
        world.pod()
        with Tenant(world, "uid-w_main", "--memory", "4g", "--oversubscribe=4") as tenant:
            for _ in range(3):
                tenant.program.got(500)
            world.start(*FAST)
            samples = world.samples()
            true(1000 * MIB > value(samples, "vgpu_memory_bytes", kind="spilled") >= 500 * MIB, "spilled")
            equal(sum_of_kinds(samples), value(samples, "hami_vgpu_memory_used_bytes"), "the sum of the kinds")
        equal(world.end(), 0)


@test
def live():
    """what a program has allocated, was refused and is limited to is told by kind, with its Pod's names"""
    with World(BUILD) as world:
        world.pod()
        with Tenant(world, "uid-w_main", "--memory", "2g", "--cores", "30") as tenant:
            tenant.program.got(100)
            world.start(*FAST)
            before = world.samples()
            equal(value(before, "vgpu_memory_bytes", kind="buffer"), 100 * MIB)
            equal(value(before, "hami_vgpu_memory_limit_bytes"), 2 << 30)
            equal(value(before, "vgpu_core_limit_percent"), 30)
            equal(value(before, "vgpu_memory_refusals_total"), 0)
            equal(value(before, "vgpu_container_processes"), 1)
            tenant.program.got(50)
            tenant.program.refused(4000)
            tenant.program.refused(4000)
            after, families = world.scrape()
            equal(value(after, "vgpu_memory_bytes", kind="buffer"), 150 * MIB)
            used = value(after, "hami_vgpu_memory_used_bytes")
            equal(used - value(before, "hami_vgpu_memory_used_bytes"), 50 * MIB)
            equal(sum_of_kinds(after), used, "the sum of the kinds")
            equal(value(after, "vgpu_memory_refusals_total"), 2)
            true([key for key in after if key.startswith("vgpu_ledger_info{")], "no ledger")
            equal({families[name][0] for name in families if name.endswith("_total")}, {"counter"})
            equal({families[name][0] for name in families if not name.endswith("_total")}, {"gauge"})
        equal(world.end(), 0)


@test
def work():
    """GPU time and the time that launches waited grow while a limited program works, and its limit's gate shows"""
    with World(BUILD) as world:
        world.pod()
        with Tenant(world, "uid-w_main", "--cores", "20", load=True, GPU_CORE_UTILIZATION_POLICY="force"):
            world.start(*FAST)
            world.until(lambda: [k for k in world.samples() if k.startswith("vgpu_gpu_time_seconds_total")], "it")
            names = ("vgpu_gpu_time_seconds_total", "vgpu_gate_wait_seconds_total")
            first = {name: value(world.samples(), name) for name in names}
            for name in names:
                world.until(lambda name=name: value(world.samples(), name) > first[name], f"more of {name}")
            world.until(lambda: [k for k in world.samples() if k.startswith("vgpu_gate_info{")], "a gate")
            world.until(lambda: value(world.samples(), "hami_container_device_utilization_ratio") > 1, "utilisation")
            idle = value(world.samples(), "hami_container_last_kernel_elapsed_seconds")
            true(0 <= idle < 60, f"idle for {idle} s")


@test
def cards():
    """the node's cards are told as NVML does, by HAMi's names, and by the old ones if that is asked for"""
    simulator = {"LD_LIBRARY_PATH": os.path.join(BUILD, "src/sim"), "VGPU_SIM": "2xh200"}
    with World(BUILD) as world:
        world.start(*FAST, "--legacy-metrics", VGPU_SIM_MACHINE=world.path("machine"), **simulator)
        world.until(lambda: any(k.startswith("HostCoreUtilization") for k in world.samples()), "the cards")
        samples, families = world.scrape()
        used = [k for k in samples if k.startswith("hami_host_gpu_memory_used_bytes{")]
        equal(len(used), 2)
        true(re.fullmatch(r'hami_host_gpu_memory_used_bytes\{device_index="0",device_type="NVIDIA-[^"]+",'
                          r'device_uuid="GPU-[^"]+",node="n1",zone="vGPU"\}', used[0]), used[0])
        for name in ("HostGPUMemoryUsage", "hami_host_gpu_utilization_ratio"):
            equal(len([k for k in samples if k.startswith(name + "{")]), 2, name)
        controller = [k for k in samples if k.startswith("hami_host_gpu_memory_controller_utilization_ratio{")]
        true(len(controller) == 2 and "node=" not in controller[0], controller)
        equal(families["HostCoreUtilization"], ("gauge", "GPU core utilization"))
        equal(world.end(), 0)


@test
def late_driver():
    """without a driver all else is told, and the cards come when it is there"""
    with World(BUILD) as world:
        library = world.path("lib")
        os.mkdir(library)
        world.pod()
        world.region("uid-w_main", BASIC)
        world.start(*FAST, LD_LIBRARY_PATH=library, VGPU_SIM="1xh200", VGPU_SIM_MACHINE=world.path("machine"))
        world.wait_line(r"WARNING.*cards: ")
        equal(value(world.samples(), "hami_vgpu_memory_used_bytes"), 10)
        for name in os.listdir(os.path.join(BUILD, "src/sim")):
            if name.startswith("lib"):
                os.symlink(os.path.join(BUILD, "src/sim", name), os.path.join(library, name))
        world.until(lambda: any(k.startswith("hami_host_gpu") for k in world.samples()), "the cards")
        equal(len([line for line in world.lines if "WARNING" in line and "cards:" in line]), 1, "lines")


@test
def old_names():
    """the old names have HAMi's labels and come only when they are asked for"""
    of = dict(BASIC, last_kernel_time=int(time.time()) - 100)
    with World(BUILD) as world:
        world.pod()
        world.region("uid-w_main", of)
        world.start("--legacy-metrics=true")
        samples, families = world.scrape()
        of_old = f'{{ctrname="main",deviceuuid="{UUID}",podname="w",podnamespace="default",vdeviceid="0",zone="vGPU"}}'
        equal(samples["vGPU_device_memory_usage_in_bytes" + of_old], 10)
        equal(samples["vGPU_device_memory_limit_in_bytes" + of_old], 3 << 30)
        equal(samples["Device_utilization_desc_of_container" + of_old], 5)
        true(100 <= samples["Device_last_kernel_of_container" + of_old] < 160, "the last kernel")
        equal(samples[f'Device_memory_desc_of_container{{context="1",ctrname="main",data="3",deviceuuid="{UUID}",'
                      'module="2",offset="4",podname="w",podnamespace="default",vdeviceid="0",zone="vGPU"}'], 10)
        equal(families["vGPU_device_memory_usage_in_bytes"], ("gauge", "vGPU device usage"))
        equal(world.end(), 0)
        world.lines.clear()
        world.start()
        true(not [n for n in world.scrape()[1] if not n.startswith(("hami_", "vgpu_"))], "an old name")


@test
def versions():
    """regions of HAMi-core's versions 0 and 1 are read, and their words are written"""
    with World(BUILD) as world:
        world.pod("a")
        world.pod("b")
        high = dict(BASIC, priority=0, recent_kernel=4000)
        old = world.region("uid-a_main", dict(high, recent_kernel=0, priority=1), V0)
        world.region("uid-b_main", high, V1)
        world.start(*FAST)
        samples = world.samples()
        for pod in ("a", "b"):
            equal(value(samples, "hami_vgpu_memory_used_bytes", pod=pod), 10)
            equal(value(samples, "hami_vgpu_memory_context_bytes", pod=pod), 1)
            equal(value(samples, "hami_vgpu_memory_limit_bytes", pod=pod), 3 << 30)
            equal(value(samples, "hami_container_device_utilization_ratio", pod=pod), 5)
        world.until(lambda: old.words() == (1, -1), lambda: f"the older one waits: {old.words()}")


def record(world, identity, directory, pod, container, cache="0a1b.cache", serial=1):
    """As vgpu-device-plugin writes it."""
    path = world.path(f"hook/grants/{identity}")
    os.makedirs(path + "/limits.d", exist_ok=True)
    with open(path + "/new", "w", encoding="utf-8") as file:
        json.dump({"version": 1, "id": identity, "serial": serial, "resource": "nvidia.com/gpu", "ids": ["x"],
                   "namespace": "default", "pod": pod, "uid": f"uid-{pod}", "container": container, "slot": 0,
                   "limited": True, "devices": [], "directory": directory, "cache": cache, "sure": True}, file)
    os.replace(path + "/new", path + "/allocation.json")
    return path


@test
def opaque():
    """a directory with an opaque name is the container's that the plugin's record names, also when that changes"""
    with World(BUILD) as world:
        world.pod("w", containers=("main", "side"), labels={})
        world.pod("v", labels={})
        world.region("8f14e45fceea167a", BASIC)
        world.region("00opaque", BASIC)  # of nobody
        record(world, "a" * 32, "8f14e45fceea167a", "w", "side")
        world.start(*FAST)
        equal(ours(world), {"hami_vgpu_memory_used_bytes" + labels("side", uuid=UUID)})
        record(world, "a" * 32, "8f14e45fceea167a", "v", "main")
        world.until(lambda: ours(world) == {"hami_vgpu_memory_used_bytes" + labels("main", "v", UUID)}, "the other")
        record(world, "b" * 32, "uid-v_main", "w", "main")  # named for another than it is
        world.region("uid-v_main", BASIC)
        os.remove(world.path("hook/grants/" + "a" * 32 + "/allocation.json"))
        world.until(lambda: ours(world) == {"hami_vgpu_memory_used_bytes" + labels("main", "w", UUID)}, "the third")


@test
def account():
    """the region's second name among the grants is what is read, whatever the container does with its own"""
    with World(BUILD) as world:
        world.pod()
        region = world.region("uid-w_main", BASIC)
        grant = record(world, "c" * 32, "uid-w_main", "w", "main")
        os.link(region.path, grant + "/account")
        world.start(*FAST)
        equal(value(world.samples(), "hami_vgpu_memory_used_bytes"), 10)
        os.remove(region.path)
        other = dict(BASIC, procs=[{"used": [{"total": 7}]}])
        world.region("uid-w_main", other)
        world.ticks(2)
        equal(value(world.samples(), "hami_vgpu_memory_used_bytes"), 10)


@test
def not_ours():
    """a Pod that no scheduler gave devices, a container that the Pod has not, and other names are not shown"""
    with World(BUILD) as world:
        world.pod("w", labels={"hami.io/vgpu-node": "another"})
        world.pod("v")
        for name in ("uid-w_main", "uid-v_other", "uid-x_main", "opaque", "_main", "uid-v_", "uid-v_main_x"):
            world.region(name, BASIC)
        world.start(*FAST)
        equal((ours(world), world.samples()["vgpu_monitor_containers"]), (set(), 7))
        world.pod("w")
        world.until(lambda: len(ours(world)) == 1, "the label")


@test
def init_containers():
    """init containers and sidecars are shown as well"""
    with World(BUILD) as world:
        world.pod("w", init=("first",))
        world.region("uid-w_first", BASIC)
        world.start(*FAST)
        equal(value(world.samples(), "hami_vgpu_memory_used_bytes", container="first"), 10)


@test
def mig():
    """MIG devices that HAMi made are told from the Pod's annotation; a bad annotation is one line"""
    one = {"containerIndex": 1, "deviceIndex": 0, "gpuUUID": UUID, "profile": "1g.10gb",
           "placement": {"start": 0, "size": 1}, "migUUID": "MIG-1", "gpuInstanceID": 7, "computeInstanceID": 0}
    pending = {k: v for k, v in one.items() if k != "migUUID"}
    key = "hami.io/vgpu-mig-allocations"
    with World(BUILD) as world:
        world.pod("w", init=("first",), annotations={key: json.dumps([pending, one])})
        for number, bad in enumerate(("{}", "[", '[{"containerIndex": 9}]', '[{"containerIndex": "x"}]', '["\\u0000"]')):
            world.pod(f"bad{number}", annotations={key: bad})
        world.start(*FAST, "--legacy-metrics")
        samples = world.samples()
        equal([k for k in samples if k.startswith("hami_mig_device_info")],
              ["hami_mig_device_info" + labels("main", uuid=UUID, mig_uuid="MIG-1", profile="1g.10gb",
                                               gpu_instance_id="7", compute_instance_id="0")])
        equal([k for k in samples if k.startswith("MigInfo")],
              [f'MigInfo{{ctrname="main",deviceuuid="{UUID}",instanceid="7",podname="w",podnamespace="default",'
               'vdeviceid="0",zone="vGPU"}'])
        equal(len([line for line in world.lines if "WARNING" in line and key in line]), 5, world.lines)


def bind_socket(path):
    """A socket's path has 107 characters at most."""
    former = os.getcwd()
    os.chdir(os.path.dirname(path))
    try:
        socket.socket(socket.AF_UNIX).bind(os.path.basename(path))
    finally:
        os.chdir(former)


def hostile_directories(world):
    """name: what its directory holds is no region, and what the line says."""
    made = {}

    def make(name, write, words):
        directory = world.container(f"uid-{name}_main")
        world.pod(name)
        write(os.path.join(directory, "1.cache"))
        made[name] = words

    make("link", lambda path: os.symlink(world.path("secret"), path), "no region")
    make("pipe", os.mkfifo, "no region")
    make("directory", os.mkdir, "no region")
    make("text", lambda path: open(path, "wb").write(b"not a region\n" * 100), "no region")
    make("short", lambda path: open(path, "wb").write(struct.pack("<iII", 19920718, 1, 2)), "no region")
    make("newer", lambda path: open(path, "wb").write(struct.pack("<iII", 19920718, 2, 0).ljust(V1.bytes, b"\0")),
         "no region")
    make("many", lambda path: [open(path.replace("1.cache", f"{i}.cache"), "wb").close() for i in range(3)],
         "more than one file")
    make("crowd", lambda path: [open(path + str(i), "wb").close() for i in range(1100)], "too long")
    make("socket", bind_socket, "no region")
    return made


@test
def hostile_files():
    """whatever lies in a directory gets one line, is not touched, and the others are shown as ever"""
    with World(BUILD) as world:
        with open(world.path("secret"), "wb") as file:
            file.write(bytes(V1.bytes))
        made = hostile_directories(world)
        world.pod("good")
        world.region("uid-good_main", BASIC)
        world.start(*FAST)
        world.ticks(3)
        equal(ours(world), {"hami_vgpu_memory_used_bytes" + labels(pod="good", uuid=UUID)})
        for name, words in made.items():
            said = [line for line in world.lines if f"uid-{name}_main" in line]
            true(len(said) == 1 and "WARNING" in said[0], f"{name}: {said}")
            true(words in said[0] or words == "too long", f"{name}: {said}")
        with open(world.path("secret"), "rb") as file:
            equal(file.read(), bytes(V1.bytes), "the file that a link led to")
        equal(world.end(), 0)


@test
def hostile_words():
    """whatever a region's words are, the answer is well-formed, and a file that is shortened harms nobody"""
    with World(BUILD) as world:
        world.pod("good")
        good = world.region("uid-good_main", dict(BASIC, recent_kernel=3, priority=0))
        for name, offset, data in (("count", 56, b"\xff" * 8), ("uuid", 64, b'a"b\\c\nd' + bytes(90)),
                                   ("utf8", 64, b"\xc3\x28" + bytes(94)), ("long", 64, b"x" * 1536),
                                   ("procs", 2008896, b"\xff\xff\xff\x7f"), ("less", 2008896, b"\xff" * 4),
                                   ("all", 12, b"\xff" * 2008000), ("time", 2008912, b"\xff" * 8)):
            world.pod(name)
            world.region(f"uid-{name}_main", BASIC).write(offset, data)
        world.pod("cut")
        cut = world.region("uid-cut_main", BASIC)
        world.start(*FAST)
        samples = world.samples()
        equal(value(samples, "hami_vgpu_memory_used_bytes", pod="cut"), 10)
        for size in (V1.bytes - 8, 4096, 100, 1, 0, V1.bytes + 1):
            os.truncate(cut.path, size)
            world.ticks(1)
            equal(value(world.samples(), "hami_vgpu_memory_used_bytes", pod="good"), 10)
            equal(os.path.getsize(cut.path), size, "the size of the file that was cut")
        true(len([line for line in world.lines if "uid-cut_main" in line]) <= 8, world.lines)
        true(good.words() != (0, 3), "the good one has had no feedback")
        equal(world.end(), 0)


@test
def hostile_ours():
    """a region of ours with any words in it is told in a well-formed answer"""
    offset = 2011136
    with World(BUILD) as world:
        world.pod()
        with Tenant(world, "uid-w_main", "--memory", "2g") as tenant:
            tenant.program.got(1)
            copy = tenant.region + ".kept"
            shutil.copyfile(tenant.region, copy)
        world.pod("v")
        path = os.path.join(world.container("uid-v_main"), "1.cache")
        shutil.copyfile(copy, path)
        os.remove(copy)
        world.start(*FAST)
        for at, data in ((offset + 32, b"\xff" * 8), (offset + 256, b'"\n\\\xff' * 12), (offset + 256 + 48, b"\xff" * 80),
                         (offset + 8448, b"\xff" * 8320), (offset + 8528128, b"\xff" * 128),
                         (offset + 9060608, b"\xff" * 1024), (0, b"\xff" * 4096)):
            with open(path, "r+b") as file:
                file.seek(at)
                file.write(data)
            world.ticks(1)
            true(world.scrape()[0], "an answer")
        equal(world.end(), 0)


@test
def gone():
    """what Pods left that are gone is removed when it is old, and nothing else"""
    with World(BUILD) as world:
        world.pod("w")
        for name, old_s in (("uid-w_main", OLD_S), ("uid-gone_main", OLD_S), ("uid-gone_young", 0),
                            ("8f14e45f", OLD_S), ("unknown", OLD_S)):
            world.region(name, BASIC, old_s=old_s)
        deep = world.path("hook/containers/uid-gone_main/" + "d/" * 10)
        os.makedirs(deep)
        for i in range(1500):
            with open(f"{deep}/{i}", "wb"):
                pass
        os.symlink("/", deep + "/root")
        with open(world.path("hook/containers/uid-gone_main/libvgpu.so"), "wb"):
            pass
        world.age(world.path("hook/containers/uid-gone_main"), OLD_S)
        record(world, "d" * 32, "8f14e45f", "gone", "main")
        world.start(*FAST)
        left = {"uid-w_main", "uid-gone_young", "unknown"}
        world.until(lambda: set(os.listdir(world.path("hook/containers"))) == left,
                    lambda: f"they are removed: {os.listdir(world.path('hook/containers'))}")
        equal(world.samples()["vgpu_monitor_removed_directories_total"], 2)
        true(os.path.exists("/bin/sh"), "what a link led to")
        world.remove_pod("w")
        world.until(lambda: set(os.listdir(world.path("hook/containers"))) == left - {"uid-w_main"}, "it is gone")
        equal(world.end(), 0)


@test
def interval():
    """the resync interval says from which age on"""
    with World(BUILD) as world:
        world.region("uid-gone_main", BASIC)
        world.start(*FAST, HAMI_RESYNC_INTERVAL="2s")
        world.until(lambda: not os.listdir(world.path("hook/containers")), "it is removed")
        tap.checked()


@test
def lives():
    """a directory in which a program lives stays, though its Pod is gone, and goes after the program"""
    with World(BUILD) as world:
        with Tenant(world, "uid-gone_main", "--memory", "2g") as tenant:
            tenant.program.got(1)
            world.age(world.path("hook/containers/uid-gone_main"), OLD_S)
            world.region("uid-gone_other", BASIC, old_s=OLD_S)
            world.start(*FAST)
            world.until(lambda: os.listdir(world.path("hook/containers")) == ["uid-gone_main"], "the other goes")
            world.ticks(5)
            true(os.path.exists(tenant.region), "it was removed")
            tenant.program.got(1)
        with contextlib.suppress(FileNotFoundError):  # the monitor may have removed it by now
            world.age(world.path("hook/containers/uid-gone_main"), OLD_S)
        world.until(lambda: not os.listdir(world.path("hook/containers")), "it is removed")


@test
def mapped_by_hami():
    """a directory whose region HAMi-core's library still maps stays, by the process's number on the host"""
    with World(BUILD) as world:
        region = world.region("uid-gone_main", dict(BASIC, procs=[{"pid": 1, "hostpid": os.getpid()}]), old_s=OLD_S)
        with open(region.path, "r+b") as file:
            mapping = mmap.mmap(file.fileno(), 0)
        world.region("uid-gone_other", BASIC, old_s=OLD_S)
        world.start(*FAST)
        world.until(lambda: os.listdir(world.path("hook/containers")) == ["uid-gone_main"], "the other goes")
        world.ticks(3)
        true(os.path.exists(region.path), "it was removed")
        mapping.close()
        world.until(lambda: not os.listdir(world.path("hook/containers")), "it is removed")


@test
def away():
    """while the API server is away nothing is removed and all is told, and after it is back what is gone goes"""
    with World(BUILD) as world:
        world.pod("w")
        world.region("uid-w_main", BASIC, old_s=OLD_S)
        world.start(*FAST, HAMI_RESYNC_INTERVAL="1s")
        world.server.fault(path="/api/v1/pods", status=503, count=10**6)
        world.server.cut_watches()
        world.until(lambda: world.samples()["vgpu_monitor_pods_known"] == 0, "the trouble")
        world.remove_pod("w")
        world.region("uid-new_main", BASIC, old_s=OLD_S)
        world.ticks(10)
        equal(set(os.listdir(world.path("hook/containers"))), {"uid-w_main", "uid-new_main"})
        equal(value(world.samples(), "hami_vgpu_memory_used_bytes"), 10)
        world.pod("new")
        world.server.faults.clear()
        world.until(lambda: os.listdir(world.path("hook/containers")) == ["uid-new_main"], "the one that is gone goes")
        world.until(lambda: len(ours(world)) == 1, "the new Pod")
        equal(world.end(), 0)


@test
def never_listed():
    """before the list of Pods is complete nothing is removed"""
    with World(BUILD) as world:
        for number in range(50):
            world.pod(f"p{number}")
        world.region("uid-p49_main", BASIC, old_s=OLD_S)
        world.region("uid-gone_main", BASIC, old_s=OLD_S)
        world.server.fault(path="continue=", status=500, count=10**6)
        world.start(*FAST, HAMI_RESYNC_INTERVAL="1s", wait=False)
        world.ticks(10)
        equal(len(os.listdir(world.path("hook/containers"))), 2)
        world.server.faults.clear()
        world.until(lambda: os.listdir(world.path("hook/containers")) == ["uid-p49_main"], "the one that is gone goes")


def grant_text(uuids, priority=0, lifted=0, memory=5 << 30, cores=25, policy=0):
    head = struct.pack("<QIIQIIIIII", 0x3154524755504756, 1, 0x01020304, 5120, 2, len(uuids), priority, 1, policy, lifted)
    devices = b"".join(struct.pack("<48sQII", uuid.encode(), memory, cores, 0) for uuid in uuids)
    return (head.ljust(1024, b"\0") + devices).ljust(5120, b"\0")


@test
def granted():
    """with a grant its devices and priority count, not the region's, and `lifted` is written there"""
    with World(BUILD) as world:
        grants = {}
        for name, region, grant in (
                # Claims to be of high priority on the other's device.
                ("liar", dict(BASIC, uuids=[OTHER], priority=0, recent_kernel=10**6), ([UUID], 5)),
                ("high", dict(BASIC, uuids=[OTHER], priority=7, recent_kernel=10**6), ([OTHER], 0)),
                ("low", dict(BASIC, uuids=[OTHER], priority=0, recent_kernel=10**6), ([OTHER], 3))):
            world.pod(name, labels={})
            grants[name] = world.region(f"uid-{name}_main", region), record(world, name, f"uid-{name}_main", name, "main")
            with open(grants[name][1] + "/limits.d/grant", "wb") as file:
                file.write(grant_text(*grant))
        world.start(*FAST)

        def of(name):
            with open(grants[name][1] + "/limits.d/grant", "rb") as file:
                data = file.read()
            sequence, lifted = struct.unpack_from("<I", data, 24)[0], struct.unpack_from("<I", data, 44)[0]
            return sequence % 2, lifted, grants[name][0].words()[1] < 0, data[:24] + data[28:44] + data[48:]

        wanted = {"liar": (0, 1, False), "high": (0, 1, False), "low": (0, 0, True)}
        world.until(lambda: {name: of(name)[:3] for name in wanted} == wanted,
                    lambda: f"the feedback: { {name: of(name)[:3] for name in wanted} }")
        for name in wanted:
            equal(grants[name][0].words()[0], 0, f"the region's switch of {name}")
            before = grant_text(*{"liar": ([UUID], 5), "high": ([OTHER], 0), "low": ([OTHER], 3)}[name])
            equal(of(name)[3], before[:24] + before[28:44] + before[48:], f"all else in the grant of {name}")
        os.truncate(grants["low"][1] + "/limits.d/grant", 100)
        world.wait_line("uid-low_main.*grant")
        equal(world.end(), 0)


@test
def priority():
    """a program of low priority waits while one of high priority works, and goes on when it has ended"""
    with World(BUILD) as world:
        world.pod("high")
        world.pod("low")
        world.start("--feedback-interval", "1s")
        force = {"GPU_CORE_UTILIZATION_POLICY": "force"}  # alone it would not be limited, nor measured
        with Tenant(world, "uid-low_main", "--cores", "50", load=True, CUDA_TASK_PRIORITY="1", **force):
            world.until(lambda: len(ours(world)) == 1, "the first")
            with Tenant(world, "uid-high_main", "--cores", "50", load=True, CUDA_TASK_PRIORITY="0"):
                world.until(lambda: value(world.samples(), "vgpu_container_held", pod="low") == 1, "it is held")
                equal(value(world.samples(), "vgpu_container_held", pod="high"), 0)
            world.until(lambda: value(world.samples(), "vgpu_container_held", pod="low") == 0, "it goes on")
            before = value(world.samples(), "vgpu_gpu_time_seconds_total", pod="low")
            world.until(lambda: value(world.samples(), "vgpu_gpu_time_seconds_total", pod="low") > before, "it works")
            tap.checked()


@test
def replaced():
    """a region that comes later, is replaced, or is emptied and made anew is followed"""
    with World(BUILD) as world:
        world.pod()
        world.container("uid-w_main")
        world.start(*FAST)
        equal(ours(world), set())
        with open(os.path.join(world.container("uid-w_main"), "0a1b.cache"), "wb"):
            pass
        world.ticks(2)
        equal([line for line in world.lines if "uid-w_main" in line], [], "lines about an empty file")
        first = world.region("uid-w_main", BASIC)
        world.until(lambda: len(ours(world)) == 1, "the region")
        os.remove(first.path)
        world.until(lambda: not ours(world), "it is gone")
        world.region("uid-w_main", dict(BASIC, procs=[]))
        world.until(lambda: len(ours(world)) == 1, "the other")
        equal(value(world.samples(), "hami_vgpu_memory_used_bytes"), 0)
        shutil.rmtree(world.path("hook/containers"))
        world.until(lambda: world.samples()["vgpu_monitor_containers"] == 0, "no directory")
        world.region("uid-w_main", BASIC)
        world.until(lambda: len(ours(world)) == 1, "it again")


@test
def health():
    """/healthz says ok, other paths are 404, and what is posted is refused"""
    with World(BUILD) as world:
        world.start()
        equal(world.get("/healthz"), "ok\n")
        for path, data, status in (("/", None, 404), ("/metrics", b"x", 405)):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{world.port}{path}", data, timeout=60)
                raise AssertionError(f"{path} is answered")
            except urllib.error.HTTPError as error:
                equal(error.code, status, path)


def run(*arguments, **variables):
    return subprocess.run([os.path.join(BUILD, "src/daemon/vgpu-monitor"), *arguments], env={"PATH": "", **variables},
                          capture_output=True, text=True, timeout=60, check=False)


@test
def flags():
    """a flag or variable that is not understood is one line with status 2; what is missing is told"""
    for arguments, variables, words in (
            ((), {}, "NODE_NAME"), (("--bogus",), {}, "--bogus"), (("word",), {}, "word"),
            (("--legacy-metrics=2",), {}, "true or false"), (("--node-name",), {}, "value is missing"),
            (("--resync-interval", "5"), {}, "5m30s"), (("--feedback-interval=1ms",), {}, "100ms"),
            (("--hook-path=x",), {"NODE_NAME": "n"}, "absolute path"), ((), {"HAMI_RESYNC_INTERVAL": "soon"}, "soon"),
            (("--node-name=a\nb",), {}, "a\\nb"), (("--hook-path=/" + "x" * 5000,), {"NODE_NAME": "n"}, "--hook-path")):
        done = run(*arguments, **variables)
        equal((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), f"{arguments}: {done.stderr!r}")
        true(words in done.stderr, done.stderr)
    for arguments, words in ((("--metrics-bind-address=nowhere",), "nowhere"), ((), "in-cluster")):
        done = run(*arguments, NODE_NAME="n")
        equal((done.returncode, done.stderr.count("\n")), (1, 1), f"{arguments}: {done.stderr!r}")
    true(run("--version").stdout.startswith("vgpu-monitor "), "the version")


@test
def manual():
    """the man page has each flag, variable and default of --help, and each metric that is ours"""
    with open(os.path.join(ROOT, "man/vgpu-monitor.8"), encoding="utf-8") as file:
        page = file.read().replace("Fl Fl ", "--")
    said = run("--help").stdout
    flags_of = re.findall(r"^  (--[a-z-]+)", said, re.M)
    true(len(flags_of) > 8, said)
    for word in flags_of + re.findall(r"also ([A-Z_]+)", said) + re.findall(r"\[([^\]]+)\]$", said, re.M)[1:]:
        true(word in page, f"{word} is not in the man page")
    with open(os.path.join(ROOT, "src/node/monitor/monitor_metrics.c"), encoding="utf-8") as file:
        names = set(re.findall(r'"(vgpu_[a-z_]+)"', file.read()))
    true(len(names) > 10, names)
    for name in names:
        true(name in page, f"{name} is not in the man page")


tap.main()
