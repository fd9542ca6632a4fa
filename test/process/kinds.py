# SPDX-License-Identifier: Apache-2.0
"""kinds SOURCE BUILD: kinds of programs that a preload meets: static, musl's, set-user-ID, and one
that uses what we replace; and what the library does when it is loaded, by its system calls."""
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import tap
import users
from both import CLEAN, PATH, both
from tap import Skip, checked, equal, test, true

SOURCE, BUILD = sys.argv[1:3]
LIBRARY = os.path.join(BUILD, "libvgpu.so")
EMPTY = os.path.join(BUILD, "test/process/libtest-empty.so")
PROBE = os.path.join(SOURCE, "test/process/probe.c")
NOBODY = 65534


def built(directory, *compiler):
    """The probe as that compiler builds it."""
    if not shutil.which(compiler[0], path=PATH):
        raise Skip(f"no {compiler[0]} here")
    program = os.path.join(directory, "probe")
    done = subprocess.run([*compiler, "-w", "-o", program, PROBE, "-ldl", "-lpthread"], check=False,
                          env=dict(os.environ, PATH=PATH), capture_output=True, text=True)
    if done.returncode:
        raise Skip(f"{' '.join(compiler)} does not build a program here")
    return program


def compare_probe(*compiler, interpreter=None):
    with tempfile.TemporaryDirectory() as directory:
        program = built(directory, *compiler)
        named = os.path.join(directory, "libcufoo.so.1")
        shutil.copy(EMPTY, named)
        with open(program, "rb") as file:
            found = re.search(rb"/lib[^\0]*/ld-[^\0]*", file.read(8192))
        if interpreter:
            true(found and interpreter in found[0].decode(), f"the interpreter is {found}")
        seen = both([program, named], LIBRARY)
        equal(seen.status, 3, "status")
        true(b"ioctl 0 4\n" in seen.stdout and b"child 7\n" in seen.stdout, seen.stdout)
        return seen.stdout


@test
def dynamic():
    """a program that uses dlsym and ioctl, and opens a library named cu..., gets what it gets without us"""
    said = compare_probe("cc", interpreter="ld-linux")
    true(b"dlopen opened" in said and b"library empty_function found" in said, said)


@test
def static():
    """a static program of glibc runs as ever"""
    compare_probe("cc", "-static")


@test
def musl():
    """a program of musl's loader starts as ever"""
    said = compare_probe("musl-gcc", interpreter="ld-musl")
    true(b"default qsort found" in said, said)


@test
def musl_static():
    """a static program of musl runs as ever"""
    compare_probe("musl-gcc", "-static")


@test
def set_user_id():
    """a set-user-ID program that another user starts with LD_PRELOAD set runs as ever"""
    if not users.may_change():
        raise Skip("needs root to make one, and another user")
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        program = os.path.join(directory, "id")
        shutil.copy(shutil.which("id", path=PATH), program)
        os.chmod(program, 0o4755)
        environment = dict(CLEAN, CUDA_DEVICE_MEMORY_LIMIT="1g")
        runs = [subprocess.run([program], env=dict(environment, **more), user=NOBODY, group=NOBODY,
                               extra_groups=[], cwd="/", capture_output=True, check=False)
                for more in ({}, {"LD_PRELOAD": LIBRARY})]
        if b"euid=0" not in runs[0].stdout:
            raise Skip("set-user-ID has no effect here")
        equal((runs[1].returncode, runs[1].stdout, runs[1].stderr),
              (runs[0].returncode, runs[0].stdout, runs[0].stderr))


def calls_of(trace, preload):
    """A process's calls by name and path, without what differs from run to run: addresses, sizes; and
    without anonymous memory, which the loader takes earlier or later by the shape of a library."""
    calls = []
    for name, arguments in re.findall(r"^(\w+)\((.*)$", trace, re.M):
        if name == "mmap" and "MAP_ANONYMOUS" in arguments:
            continue
        path = re.search(r'"([^"]*)"', arguments) if name in ("openat", "open", "access", "execve") else None
        calls.append(f"{name} {path[1].replace(preload, 'PRELOAD')}" if path else name)
    return calls


def system_calls(command, preload):
    """The calls of each of the command's processes."""
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(["strace", "-ff", "-qq", "-o", f"{directory}/trace", "-E",
                               f"LD_PRELOAD={preload}", "--", *command], env=CLEAN, check=False,
                              capture_output=True, cwd="/", stdin=subprocess.DEVNULL)
        traces = []
        for name in os.listdir(directory):
            with open(os.path.join(directory, name), encoding="utf-8", errors="replace") as file:
                traces.append(calls_of(file.read(), preload))
        if not any(traces):
            raise Skip(f"strace cannot trace here: {done.stderr.decode(errors='replace')[:80]}")
        return sorted(traces)


TRIES = 5  # a shell waits once more where a child ends meanwhile


def no_more_calls(*command):
    if not shutil.which("strace", path=PATH):
        raise Skip("no strace here")
    checked()
    for _ in range(TRIES):
        ours, empty = system_calls(command, LIBRARY), system_calls(command, EMPTY)
        lines = [line for pair in zip(empty, ours)
                 for line in difflib.unified_diff(*pair, "empty", "libvgpu", "", "", 0, "")]
        if (len(ours), lines) == (len(empty), []):
            return
    raise AssertionError(f"{len(ours)} processes, not {len(empty)}, and calls that differ: {lines}")


@test
def calls_true():
    """true makes no other system calls than with a preload that does nothing"""
    no_more_calls("true")


@test
def calls_shell():
    """nor does a shell with its children"""
    no_more_calls("sh", "-c", "ls / >/dev/null; (exit 3); cat /etc/hostname")


@test
def calls_python():
    """nor does python3 that loads modules and looks up names that begin with cu"""
    no_more_calls("/usr/bin/python3", "-E", "-s", "-c", "import ctypes, ssl; libc = ctypes.CDLL(None); "
                  "[hasattr(libc, n) for n in ('curl_easy_init', 'custom', 'nvmlFoo')]")


@test
def any_place():
    """the loader says nothing where the library is preloaded by its path from anywhere"""
    with tempfile.TemporaryDirectory(prefix="a-path.with+dash_") as directory:
        copy = os.path.join(directory, "libvgpu-control.so")
        shutil.copy(LIBRARY, copy)
        done = subprocess.run(["true"], env=dict(CLEAN, LD_PRELOAD=copy), capture_output=True, check=False)
        equal((done.returncode, done.stdout, done.stderr), (0, b"", b""))


@test
def mapped_once():
    """a program without CUDA maps the library and nothing else of ours, and no driver"""
    done = subprocess.run(["cat", "/proc/self/maps"], env=dict(CLEAN, LD_PRELOAD=LIBRARY),
                          capture_output=True, text=True, check=False)
    extra = {line.split()[-1] for line in done.stdout.splitlines() if "vgpu" in line}
    equal(extra, {LIBRARY}, "mapped files")
    true("libcuda" not in done.stdout and "libnvidia" not in done.stdout, "a driver is mapped")


@test
def quick_start():
    """the start of a trivial program takes no multiple of its time (cost.start of vgpu bench measures it)"""
    def seconds(environment):
        start = time.monotonic()
        for _ in range(20):
            subprocess.run(["true"], env=environment, check=True)
        return time.monotonic() - start
    native = min(seconds(CLEAN) for _ in range(3))
    ours = min(seconds(dict(CLEAN, LD_PRELOAD=LIBRARY)) for _ in range(3))
    true(ours < 20 * native, f"{ours * 50:.1f} ms, natively {native * 50:.1f} ms")


tap.main()
