# SPDX-License-Identifier: Apache-2.0
"""whole BUILD: from Allocate to a program that is held to its limits. What kubelet was answered is applied as a
runtime does it, in a root directory of the test's own (rooted.py): environment and bind mounts, around real
programs on the simulated card."""
import json
import os
import shutil
import subprocess

from plugin_world import BUILD, LIMITS, World, device_id, tap, until  # first: it knows where the others are
from both import CLEAN, PATH
from place import PUMP, REFUSED
from rooted import NOBODY, mount, path, preload, run
import rooted

equal, test, true = tap.equal, tap.test, tap.true
MACHINE = {"VGPU_SIM": "2xh200", "VGPU_SIM_MACHINE": "/tmp/machine"}
LOOK = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
cuda.cuCtxSetCurrent(context)
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print(total.value >> 20, free.value < total.value)
"""


def uuid_of(device):
    """The simulator's."""
    script = ("import ctypes; c = ctypes.CDLL('libcuda.so.1'); c.cuInit(0); b = ctypes.create_string_buffer(16); "
              f"c.cuDeviceGetUuid_v2(b, {device}); print(b.raw.hex())")
    text = run("python3", "-c", script, **MACHINE).stdout.strip()
    os.remove(path("tmp/machine"))  # root's; the programs' own users make another
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


class Container:
    """With-statement: the answer's mounts in the root directory, and its environment for programs."""

    def __init__(self, answer):
        self.answer, self.mounted, self.programs = answer, [], []

    def __enter__(self):
        for name in ("tmp/machine", "etc/ld.so.preload"):
            if os.path.exists(path(name)):
                os.remove(path(name))
        for inside, entry in sorted(self.answer.mounts.items()):
            target, source = path(inside.lstrip("/")), entry["host_path"]
            if os.path.isdir(source):
                os.makedirs(target, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                if not os.path.exists(target):
                    with open(target, "w", encoding="ascii"):
                        pass
            mount("--bind", source, target)
            self.mounted.append(target)
            if entry["read_only"]:
                mount("-o", "remount,ro,bind", target)
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.stdin.close()
            program.kill()
            program.wait()
            program.stdout.close()
            program.stderr.close()
        for target in reversed(self.mounted):
            subprocess.run(["umount", "-l", target], check=False)

    def run(self, script, user=0, **variables):
        done = run("python3", "-c", script, user=user, **{**self.answer.envs, **MACHINE, **variables})
        true(done.returncode == 0, done.stderr[-2000:])
        return done.stdout.split()

    def program(self, user=0, **variables):
        """A program that allocates as it is told."""
        chroot = ["chroot", f"--userspec={user}:{user}", rooted.ROOT] if user else ["chroot", rooted.ROOT]
        child = subprocess.Popen([*chroot, "python3", "-c", PUMP], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True,
                                 env={**CLEAN, "PATH": PATH, "HOME": "/tmp", **self.answer.envs, **MACHINE,
                                      **variables})
        self.programs.append(child)
        return child


def allocate(program, mib):
    program.stdin.write(f"0 {mib}\n")
    program.stdin.flush()
    answer = program.stdout.readline()
    true(answer, program.stderr.read(2000) if not answer else "")
    return int(answer)


def node():
    """The world of a node with the simulator's first card, on which the library is installed."""
    preload()
    card = uuid_of(0)
    world = World(cards=[{"uuid": card, "memory_mib": 143771}])
    world.card = card
    return world


def install(world):
    for name in ("libvgpu.so",):
        shutil.copy(os.path.join(BUILD, name), f"{world.hook}/vgpu/{name}")
    os.chmod(world.hook, 0o755)
    os.chmod(world.directory, 0o755)
    with open(f"{world.hook}/vgpu/ld.so.preload", "w", encoding="ascii") as file:
        # The simulated kernel module beside ours.
        file.write(f"{world.hook}/vgpu/libvgpu.so\n/opt/libvgpu-sim-rm.so\n")


def serve(world, memory, cores=0, name="p", replica=0):
    world.pod(name, f"{world.card},NVIDIA,{memory},{cores}:;", lock=True)
    return world.allocate(f"{world.card}-{replica}")


@test
def held():
    """a program sees its limit as the device, and cannot have more, as root and as another user"""
    for user in (0, NOBODY) if os.environ.get(rooted.INSIDE) == "root" else (0,):
        with node() as world:
            install(world)
            with Container(serve(world, 2000, 30)) as container:
                equal(container.run(LOOK, user=user), ["2000", "True"])
                program = container.program(user=user)
                equal(allocate(program, 3000), REFUSED, "3,000 MiB of 2,000")
                equal(allocate(program, 1000), 0, "1,000 MiB of 2,000")


@test
def named():
    """`vgpu ps` and `vgpu top` on the node name the Pod, also where the directory's name is opaque"""
    with node() as world:
        install(world)
        with Container(serve(world, 2000, name="trainer-7")) as container:
            program = container.program()
            equal(allocate(program, 100), 0)
            for command in (("ps",), ("ps", "--json"), ("top", "--batch", "1")):
                done = subprocess.run([os.path.join(BUILD, "vgpu"), *command], capture_output=True, text=True,
                                      env={**os.environ, "HOOK_PATH": world.hook}, check=False, timeout=60)
                equal(done.returncode, 0, done.stderr)
                true("trainer-7" in done.stdout, f"{command}: {done.stdout[:1500]}")


@test
def escapes():
    """another environment, another region and a deleted file lift nothing"""
    with node() as world:
        install(world)
        answer = serve(world, 2000)
        with Container(answer) as container:
            first = container.program()
            equal(allocate(first, 1000), 0)
            own = answer.mounts[world.hook + "/vgpu"]["host_path"]
            for name in os.listdir(own):
                if name.endswith(".cache"):
                    os.remove(os.path.join(own, name))
            for variables in ({}, {"CUDA_DEVICE_MEMORY_LIMIT_0": "100g"},
                              {"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/mine"}, {"CUDA_OVERSUBSCRIBE": "true"}):
                equal(allocate(container.program(**variables), 1000), REFUSED, str(variables))
            true(run("rm", "-f", "/etc/vgpu/account").returncode, "the account was deleted")
            true(run("sh", "-c", "echo > /etc/vgpu/limits.d/grant").returncode, "the grant was written")


@test
def live():
    """a running program's limit is lowered by the Pod's annotation, and not raised by it"""
    with node() as world:
        install(world)
        answer = serve(world, 2000)
        with Container(answer) as container:
            program = container.program()
            equal(allocate(program, 500), 0)
            world.annotate("p", **{LIMITS: json.dumps({"main": {"gpumem": 1200}})})
            until(lambda: answer.grant().devices[0][1] == 1200, "the lower limit")
            equal(allocate(program, 900), REFUSED)
            world.annotate("p", **{LIMITS: json.dumps({"main": {"gpumem": 9000}})})
            until(lambda: answer.grant().devices[0][1] == 2000, "what was given")
            equal(allocate(program, 3000), REFUSED)
            equal(allocate(program, 900), 0)


@test
def corrected():
    """a container that was taken for another has its own limits before its program starts"""
    with node() as world:
        install(world)
        for name, memory, seconds in (("a", 1000, 1), ("b", 3000, 2)):
            world.pod(name, f"{world.card},NVIDIA,{memory},0:;", seconds=seconds)
        answer = world.allocate(f"{world.card}-0")
        equal(answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"], "1000m")
        world.resources(b=[("main", [f"{world.card}-0"])])
        world.pre_start(f"{world.card}-0")
        with Container(answer) as container:
            equal(container.run(LOOK), ["3000", "True"])


@test
def restarted():
    """a container that starts again by kubelet's cached answer finds all of its files"""
    with node() as world:
        install(world)
        answer = serve(world, 2000)
        with Container(answer) as container:
            equal(container.run(LOOK), ["2000", "True"])
        world.restart()
        with Container(answer) as container:
            equal(allocate(container.program(), 1000), 0)
            equal(allocate(container.program(), 3000), REFUSED)


assert device_id
tap.main()
