# SPDX-License-Identifier: Apache-2.0
"""grant BUILD: limits from a directory that is mounted read-only into a root directory of the test's
own (rooted.py), against programs that try to pass them."""
import os
import re
import shutil
import struct
import subprocess
import time

import tap
from both import CLEAN, PATH
from mine import BUILD, VGPU
from place import DEVICE_BYTES, DEVICES, PUMP
from rooted import INSIDE, NOBODY, mount, path, preload, run
from tap import Skip, equal, test, true
import rooted

GIB = 1 << 30
MAGIC, BYTES, COUNT_AT, RATIO_AT, DEVICES_AT = 0x3154524755504756, 5120, 28, 752, 1024
REFUSED = 2  # CUDA_ERROR_OUT_OF_MEMORY
FORCE, DISABLE = 1, 2


def uuid_of(device):
    """The simulator's."""
    script = ("import ctypes; c = ctypes.CDLL('libcuda.so.1'); c.cuInit(0); b = ctypes.create_string_buffer(16); "
              f"c.cuDeviceGetUuid_v2(b, {device}); print(b.raw.hex())")
    text = run("python3", "-c", script, VGPU_SIM="2xh200", VGPU_SIM_MACHINE="/tmp/machine").stdout.strip()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


class Container:
    """A grant for the first of two devices, a region, and programs that have both."""

    def __init__(self, memory=2 * GIB, cores=0, region="/tmp/region", **more):
        preload()
        for name in ("tmp/machine", "tmp/region", "tmp/other"):
            if os.path.exists(path(name)):
                os.remove(path(name))
        self.uuid = uuid_of(0)
        os.remove(path("tmp/machine"))  # root's; the programs' own user makes another
        preload("libvgpu.so", "libvgpu-sim-rm.so")
        self.host, self.inside = path("node"), path("etc/vgpu/limits.d")
        subprocess.run(["umount", self.inside], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.host, ignore_errors=True)
        os.mkdir(self.host)
        os.makedirs(self.inside, exist_ok=True)
        self.sequence = 0
        self.write(memory, cores, region, **more)
        mount("--bind", self.host, self.inside)
        mount("-o", "remount,ro,bind", self.inside)
        self.programs = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.stdin.close()
            program.kill()
            program.wait()
            program.stdout.close()
            program.stderr.close()
        subprocess.run(["umount", self.inside], check=False)
        shutil.rmtree(self.host)

    def write(self, memory, cores=0, region="/tmp/region", policy=0, lifted=0, priority=None, ratio=0):
        """As the node's agent does, in place."""
        self.sequence += 2
        head = struct.pack("<QIIQIIIIII", MAGIC, 1, 0x01020304, BYTES, self.sequence, 1, priority or 0,
                           priority is not None, policy, lifted)
        head += region.encode().ljust(256, b"\0") + b"pod".ljust(256, b"\0")
        head = head.ljust(RATIO_AT, b"\0") + struct.pack("<Q", int(ratio * (1 << 20)))
        device = struct.pack("<48sQII", self.uuid.encode(), memory, cores, 0)
        file = os.path.join(self.host, "grant")
        with open(file, "r+b" if os.path.exists(file) else "w+b") as grant:
            grant.write((head.ljust(DEVICES_AT, b"\0") + device).ljust(BYTES, b"\0"))

    def program(self, before=(), user=0, **variables):
        """A program that allocates as it is told."""
        chroot = ["chroot", f"--userspec={user}:{user}", rooted.ROOT] if user else ["chroot", rooted.ROOT]
        child = subprocess.Popen(
            [*before, *chroot, "python3", "-c", PUMP], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
            env=dict(CLEAN, PATH=PATH, HOME="/tmp", VGPU_SIM="2xh200", VGPU_SIM_MACHINE="/tmp/machine", **variables))
        self.programs.append(child)
        return child


def allocate(program, mib, device=0):
    program.stdin.write(f"{device} {mib}\n")
    program.stdin.flush()
    answer = program.stdout.readline()
    true(answer, program.stderr.read(2000) if not answer else "")
    return int(answer)


def held_to_2_gib(program):
    equal(allocate(program, 3000), REFUSED, "3,000 MiB of 2 GiB")
    equal(allocate(program, 1000), 0, "1,000 MiB of 2 GiB")


@test
def environment():
    """no variable lifts or raises the limits, for root as for another user"""
    for user in (0, NOBODY) if os.environ.get(INSIDE) == "root" else (0,):
        for variables in ({}, {"CUDA_DEVICE_MEMORY_LIMIT": "8g"}, {"CUDA_DEVICE_MEMORY_LIMIT": "0"},
                          {"CUDA_DEVICE_MEMORY_LIMIT_0": "100g"}, {"VGPU_LEDGER": "api"}):
            with Container() as container:
                held_to_2_gib(container.program(user=user, **variables))


@test
def one_account():
    """programs that name other regions count as one container all the same"""
    with Container() as container:
        equal(allocate(container.program(), 1000), 0)
        equal(allocate(container.program(CUDA_DEVICE_MEMORY_SHARED_CACHE="/tmp/other"), 1000), REFUSED)
        true(not os.path.exists(path("tmp/other")), "the other region was made")


@test
def user_namespace():
    """it holds in a user namespace, where the file's owner is not known"""
    with Container() as container:
        unshare = ["unshare", "--user", "--map-root-user"]
        if subprocess.run([*unshare, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
            raise Skip("no user namespaces here")
        program = container.program(before=unshare, CUDA_DEVICE_MEMORY_LIMIT="8g")
        held_to_2_gib(program)


@test
def mounted_region():
    """a region that is mounted as a file cannot be deleted, and stays the one account"""
    with Container(region="/etc/vgpu/account") as container:
        for name in ("node/account", "etc/vgpu/account"):
            with open(path(name), "w", encoding="ascii"):
                os.chmod(path(name), 0o666)
        os.link(path("node/account"), path("node/second"))  # as the device plugin has it
        mount("--bind", path("node/account"), path("etc/vgpu/account"))
        try:
            equal(allocate(container.program(), 1000), 0)
            true(run("rm", "-f", "/etc/vgpu/account").returncode, "it was deleted")
            equal(allocate(container.program(), 1000), REFUSED)
        finally:
            subprocess.run(["umount", "-l", path("etc/vgpu/account")], check=True)


@test
def beyond_the_card():
    """memory beyond the card's share is had by the grant's ratio alone, not by a variable"""
    for ratio, variables, spilled in ((2, {"CUDA_OVERSUBSCRIBE": "false"}, True),
                                      (0, {"CUDA_OVERSUBSCRIBE": "true", "CUDA_MEM_RATIO": "2"}, False)):
        with Container(memory=4 * GIB, ratio=ratio) as container:
            program = container.program(**variables)
            equal(allocate(program, 3000), 0, "3,000 MiB of 4 GiB")
            done = subprocess.run([VGPU, "ps", "--json", "--region", path("tmp/region")], check=True, capture_output=True,
                                  text=True)
            found = [int(number) for number in re.findall(r'"spilled": ?([0-9]+)', done.stdout)]
            equal(max(found, default=0) > 0, spilled, f"spilled with {variables}: {done.stdout}")
            equal(allocate(program, 3000), REFUSED, "6,000 MiB of 4 GiB")


@test
def deleted_region():
    """a region that is deleted under a program is made again with what it holds"""
    with Container() as container:
        first = container.program()
        equal(allocate(first, 1000), 0)
        os.remove(path("tmp/region"))
        time.sleep(0.01)  # a charge looks for the file again after 0.25 ms (region_was_kept)
        equal(allocate(first, 10), 0)
        equal(allocate(container.program(), 1000), REFUSED)


@test
def set_in_vain():
    """`vgpu set` and writes into the region's limits change nothing"""
    with Container() as container:
        program = container.program()
        equal(allocate(program, 1), 0)
        subprocess.run([VGPU, "set", "--region", path("tmp/region"), "--memory", "8g"], check=False,
                       capture_output=True)
        held_to_2_gib(program)
        with open(path("tmp/region"), "r+b") as region:
            for at, word in ((48, 100 * GIB), (56, 0), (80, 7), (104, 100 * GIB)):
                region.seek(DEVICES + at)
                region.write(struct.pack("<Q", word))
        equal(allocate(program, 1500), REFUSED)
        equal(allocate(container.program(), 1500), REFUSED)
        with open(path("tmp/region"), "rb") as region:
            region.seek(DEVICES)
            entry = region.read(DEVICE_BYTES)
        equal(struct.unpack_from("<Q", entry, 48)[0], 2 * GIB, "the region's own limit is mended")


@test
def changed_by_the_node():
    """the node lowers and raises the limits of running programs"""
    with Container() as container:
        program = container.program()
        held_to_2_gib(program)
        container.write(GIB)
        equal(allocate(program, 100), REFUSED)
        container.write(4 * GIB)
        equal(allocate(program, 1500), 0)


@test
def unlisted():
    """a device that the grant does not list is full"""
    with Container() as container:
        program = container.program()
        equal(allocate(program, 1, device=1), REFUSED)
        equal(allocate(program, 1), 0)


@test
def damaged():
    """a grant that is damaged closes all devices, with one line"""
    for content in (b"", b"x" * BYTES, struct.pack("<Q", MAGIC).ljust(BYTES, b"\0")):
        with Container() as container:
            with open(os.path.join(container.host, "grant"), "wb") as grant:
                grant.write(content)
            program = container.program()
            equal(allocate(program, 1), REFUSED)
            program.stdin.close()
            program.wait()
            lines = [line for line in program.stderr.read().splitlines() if "/etc/vgpu/limits.d/grant" in line]
            equal(len(lines), 1, lines)
            program.stdin = open(os.devnull, "w", encoding="ascii")


@test
def of_the_container():
    """a file that the container itself can write is not used, and one line says so"""
    with Container() as container:
        mount("-o", "remount,rw,bind", container.inside)
        program = container.program(CUDA_DEVICE_MEMORY_LIMIT="1g")
        equal(allocate(program, 1200), REFUSED)
        equal(allocate(program, 100), 0)
        program.stdin.close()
        program.wait()
        lines = [line for line in program.stderr.read().splitlines() if "is not used" in line]
        equal(len(lines), 1, lines)
        program.stdin = open(os.devnull, "w", encoding="ascii")


def reported(container, word, **variables):
    """What the library tells `vgpu doctor` of the process that it is in."""
    script = ("import ctypes; c = ctypes.CDLL('libcuda.so.1'); c.cuInit(0); x = ctypes.c_void_p(); "
              "c.cuDevicePrimaryCtxRetain(ctypes.byref(x), 0); c.cuCtxSetCurrent(x); "
              "c.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(4096)); "
              "b = ctypes.create_string_buffer(65536); "
              "ctypes.CDLL(None).vgpu_report(b, ctypes.c_size_t(65536), 0); print(b.value.decode())")
    done = run("python3", "-c", script, VGPU_SIM="2xh200", VGPU_SIM_MACHINE="/tmp/machine", **variables)
    found = re.search(rf"^{word} (.*)$", done.stdout, re.M)
    true(found, done.stdout + done.stderr)
    del container
    return found[1]


@test
def compute():
    """limits on GPU time, their policy and the priority are the grant's"""
    lift = {"GPU_CORE_UTILIZATION_POLICY": "disable", "CUDA_DEVICE_SM_LIMIT": "100", "CUDA_TASK_PRIORITY": "0"}
    with Container(cores=30, priority=3) as container:
        equal(reported(container, r"device\.0\.cores", **lift), "30")
        equal(reported(container, "priority", **lift), "3")
    with Container(cores=30, policy=DISABLE) as container:
        equal(reported(container, r"device\.0\.cores"), "0")
    with Container(cores=30, lifted=1) as container:
        equal(reported(container, r"device\.0\.cores"), "0")
    with Container(cores=30, lifted=1, policy=FORCE) as container:
        equal(reported(container, r"device\.0\.cores"), "30")


assert BUILD
tap.main()
