# SPDX-License-Identifier: Apache-2.0
"""exports SOURCE BUILD: the shape of libvgpu.so as other programs' loaders see it."""
import os
import re
import shutil
import subprocess
import sys

SOURCE, BUILD = sys.argv[1:3]
sys.path.insert(0, os.path.join(SOURCE, "test/process"))
import tap
from tap import Skip, equal, test, true

LIBRARY = os.path.join(BUILD, "libvgpu.so")
DOORS = {"dlsym", "dlvsym", "ioctl"}
OLDEST_GLIBC = (2, 17)


def tool(*command):
    if not shutil.which(command[0]):
        raise Skip(f"no {command[0]} here")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def symbols(option):
    """(name, type, version) of the dynamic symbols."""
    for line in tool("nm", "-D", option, LIBRARY).splitlines():
        kind, name = line.split()[-2:]
        name, _, version = name.partition("@")
        if kind == "A" and name.startswith("GLIBC_"):
            continue  # a version node that dlsym and dlvsym are exported under
        yield name, kind, version.lstrip("@")


def hooks():
    names = set()
    for table in ("cuda", "nvml"):
        with open(os.path.join(SOURCE, f"src/driver/{table}.def"), encoding="utf-8") as rows:
            names |= set(re.findall(r"^HOOK\((\w+)\)", rows.read(), re.M))
    true(len(names) > 50, "no rows found")
    return names


def sorted_rows(table):
    with open(os.path.join(SOURCE, f"src/driver/{table}.def"), encoding="utf-8") as rows:
        return re.findall(r"^(?:HOOK|CALL)\((\w+)\)", rows.read(), re.M)


@test
def exported():
    """the exported symbols are the hooks and the doors, no more and no less"""
    got = {name for name, _, _ in symbols("--defined-only")}
    wanted = hooks() | DOORS
    equal(sorted(got - wanted), [], "exported too much")
    equal(sorted(wanted - got), [], "not exported")


@test
def functions():
    """each of them is a function"""
    equal([name for name, kind, _ in symbols("--defined-only") if kind != "T"], [])


@test
def rows():
    """the lists are sorted and name nothing twice"""
    for table in ("cuda", "nvml"):
        names = sorted_rows(table)
        equal(names, sorted(set(names)), table)


@test
def old_glibc():
    """nothing of the C library newer than 2.17 is needed"""
    late = []
    for name, _, version in symbols("--undefined-only"):
        number = re.match(r"GLIBC_(\d+)\.(\d+)", version)
        if number and tuple(map(int, number.groups())) > OLDEST_GLIBC:
            late.append(f"{name}@{version}")
    equal(late, [])


@test
def no_driver_symbols():
    """it needs no symbol of the driver, of libdl or of libpthread to load"""
    late = {"dlopen", "dlclose", "dladdr", "dlerror", "pthread_create", "pthread_key_create"}
    needed = {name for name, kind, _ in symbols("--undefined-only") if kind != "w"}
    equal(sorted(name for name in needed if re.match(r"cu[A-Z]|nvml", name)), [])
    equal(sorted(needed & late), [])


def dynamic():
    return tool("readelf", "-dW", LIBRARY)


@test
def needed():
    """libc.so.6 is all that it needs"""
    equal(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic()), ["libc.so.6"])


@test
def relocations():
    """it has no text relocations, binds at load and binds to itself"""
    text = dynamic()
    true("TEXTREL" not in text, "text relocations")
    true("BIND_NOW" in text or "NOW" in text, "not bound at load")
    true("SYMBOLIC" in text, "not linked with -Bsymbolic")
    true("RPATH" not in text and "RUNPATH" not in text, "a search path")


@test
def stack():
    """its stack is not executable and its relocated data is read-only"""
    headers = tool("readelf", "-lW", LIBRARY)
    flags = re.search(r"GNU_STACK(?:\s+\S+){5}\s+(\w+)", headers)
    equal(flags and flags.group(1), "RW", "stack")
    true("GNU_RELRO" in headers, "no RELRO")


@test
def build_id():
    """it carries a build id"""
    true("Build ID" in tool("readelf", "-nW", LIBRARY), "none")


@test
def thread_local():
    """its thread-local storage is small enough for the static block, which dlopen may need"""
    headers = tool("readelf", "-lW", LIBRARY)
    size = re.search(r"^\s*TLS(?:\s+\S+){3}\s+\S+\s+(0x[0-9a-f]+)", headers, re.M)
    true(not size or int(size.group(1), 16) <= 256, size and size.group(1))


tap.main()
