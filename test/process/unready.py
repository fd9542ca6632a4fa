# SPDX-License-Identifier: Apache-2.0
"""unready BUILD: where `vgpu run` cannot put a command in its slice it does not start it: no command
runs without the limit that was asked for."""
import os
import re
import shutil
import subprocess
import tempfile

import tap
from both import CLEAN
from mine import BUILD
from tap import equal, test, true

SMI = os.path.join(BUILD, "examples/vgpu-example-smi")
NAMES = ("vgpu", "libvgpu.so")
SIM = ("libcuda.so.1", "libnvidia-ml.so.1", "libvgpu-sim-rm.so")


def placed(name, *without, sim=True):
    """`vgpu` with what belongs to it, in a directory of that name below a new one."""
    directory = os.path.join(tempfile.mkdtemp(prefix="vgpu-placed-"), name)
    os.makedirs(os.path.join(directory, "sim"))
    for name in set(NAMES).difference(without):
        shutil.copy(os.path.join(BUILD, name), directory)
    for library in SIM if sim else ():
        shutil.copy(os.path.join(BUILD, "src/sim", library), os.path.join(directory, "sim"))
    return directory


def run(directory, *arguments):
    return subprocess.run([os.path.join(directory, "vgpu"), "run", "--memory", "1g", *arguments],
                          env={**CLEAN, "VGPU_BOARD_DIR": f"{directory}/boards"}, capture_output=True, text=True, timeout=30, check=False,
                          stdin=subprocess.DEVNULL)


def drop(directory):
    shutil.rmtree(os.path.dirname(directory))


def is_refused(done, names, what):
    """Not started, with one line that names what is amiss."""
    equal(done.stdout, "", f"{what}: output of the command")
    true(re.fullmatch(r"vgpu: [^\n]*\n", done.stderr) and names in done.stderr, f"{what}: {done.stderr!r}")
    true(done.returncode not in (0, 126, 127), f"{what}: status {done.returncode}")


@test
def missing():
    """a command is not started where the library is not found"""
    directory = placed("place", "libvgpu.so")
    is_refused(run(directory, "--", "echo", "ran"), "libvgpu.so", "missing")
    is_refused(run(directory, "--sim", "--", "echo", "ran"), "libvgpu.so", "missing")
    drop(directory)


@test
def missing_simulator():
    """nor with --sim where the simulator is not found"""
    directory = placed("place", sim=False)
    is_refused(run(directory, "--sim", "--", "echo", "ran"), "libvgpu-sim-rm.so", "missing")
    drop(directory)


@test
def no_library():
    """nor where the file of that name is no library that can be loaded"""
    directory = placed("place", "libvgpu.so")
    library = os.path.join(directory, "libvgpu.so")
    with open(os.path.join(BUILD, "libvgpu.so"), "rb") as file:
        whole = file.read()
    other = bytearray(whole)
    other[18:20] = b"\xf3\0"  # RISC-V, which no machine of ours is
    for what, data in (("empty", b""), ("text", b"no library\n"),
                       ("another machine's", bytes(other))):
        with open(library, "wb") as file:
            file.write(data)
        is_refused(run(directory, "--", "echo", "ran"), "libvgpu.so", what)
    os.remove(library)
    os.mkdir(library)
    is_refused(run(directory, "--", "echo", "ran"), "libvgpu.so", "a directory")
    drop(directory)


def is_limited_or_refused(name):
    """LD_PRELOAD cannot name every path."""
    directory = placed(name)
    done = run(directory, "--sim", "--", SMI)
    if done.returncode == 0:
        equal(re.findall(r"/ *(\d+)MiB", done.stdout), ["1024"], "totals")
    else:
        is_refused(done, "libvgpu", name)
    done = run(directory, "--", "sh", "-c", "grep -o 'libvgpu[.]so' /proc/self/maps | sort -u")
    if done.returncode == 0:
        equal((done.stdout, done.stderr), ("libvgpu.so\n", ""), f"{name}: what is mapped")
    else:
        is_refused(done, "libvgpu", name)
    drop(directory)


@test
def separators():
    """in a directory with the loader's separators in its name a command is limited or not started"""
    for name in ("a place", "a:place", "a;place"):
        is_limited_or_refused(name)


@test
def dollar():
    """in a directory whose name the loader would expand a command is limited or not started"""
    is_limited_or_refused("$ORIGIN")
    is_limited_or_refused("${LIB}")


@test
def other_names():
    """in a directory with any other character in its name a command is limited"""
    directory = placed("ü+(a)'\"#\\&*%\t")
    done = run(directory, "--sim", "--", SMI)
    equal(re.findall(r"/ *(\d+)MiB", done.stdout), ["1024"], f"{done.stderr}: totals")
    drop(directory)


@test
def bad_machine():
    """a description of a machine that is not understood is a usage error, said at once in one line"""
    for bad in ("bad", "h200,bad", "devices=0", "memory=much", "driver="):
        done = run(BUILD, f"--sim={bad}", "--", "echo", "ran")
        is_refused(done, "--sim", bad)
        equal(done.returncode, 2, f"{bad}: status")
        true(bad.split(",")[-1].rstrip("=") in done.stderr, f"{bad}: {done.stderr}")
    done = run(BUILD, "--sim=2xh200,memory=8GiB", "--", "echo", "ran")
    equal((done.returncode, done.stdout, done.stderr), (0, "ran\n", ""), "a good one")


tap.main()
