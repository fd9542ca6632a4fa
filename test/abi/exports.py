# SPDX-License-Identifier: Apache-2.0
"""exports SOURCE BUILD: the shape of libvgpu.so as other programs' loaders see it."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, BUILD = sys.argv[1:3]
sys.path.insert(0, os.path.join(SOURCE, "test/process"))
import tap
from tap import Skip, equal, test, true

LIBRARY = os.path.join(BUILD, "libvgpu.so")
DOORS = {"dlopen", "dlsym", "dlvsym", "ioctl"}
FOR_TOOLS = {"vgpu_report"}  # include/vgpu/report.h
OLDEST_GLIBC = (2, 17)
OLDEST_FOR_TOOLS = (2, 23)  # of dockerfiles/Dockerfile-tf1.8-cu90
BUILT_ON = (2, 31)  # what is built there; later ones moved old functions to new versions


def tool(name, *arguments):
    """The tools know the library's machine, which may be another than this one."""
    command = os.environ.get(name.upper(), name)
    if not shutil.which(command):
        raise Skip(f"no {command} here")
    return subprocess.run([command, *arguments], capture_output=True, text=True, check=True).stdout


def symbols(option, library=LIBRARY):
    """(name, type, version) of the dynamic symbols."""
    for line in tool("nm", "-D", option, library).splitlines():
        kind, name = line.split()[-2:]
        name, _, version = name.partition("@")
        if kind == "A" and name.startswith("GLIBC_"):
            continue  # a version node that dlsym, dlvsym and dlopen are exported under
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
def control():
    """libvgpu-control.so exports and needs the same, under a name of its own"""
    other = os.path.join(BUILD, "libvgpu-control.so")
    for option in ("--defined-only", "--undefined-only"):
        equal(sorted(symbols(option, other)), sorted(symbols(option)), option)
    for library in (other, LIBRARY):
        name = re.search(r"SONAME.*\[(.*)\]", tool("readelf", "-dW", library))
        equal(name and name[1], os.path.basename(library), "soname")
    true(not os.path.islink(other), "it is a link, which does nothing where it is copied alone")


@test
def exported():
    """the exported symbols are the hooks, the doors and the report for tools, no more and no less"""
    got = {name for name, _, _ in symbols("--defined-only")}
    wanted = hooks() | DOORS | FOR_TOOLS
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
def old_tools():
    """tools and test programs need nothing that came between glibc 2.23 and 2.31: built on the one they run on the other"""
    late = []
    for name in ("vgpu", "shrreg-tool", "vgpu-load", "test_alloc", "test_vram_limit", "test_runtime_launch"):
        path = os.path.join(BUILD, name)
        for symbol, _, version in symbols("--undefined-only", path):
            number = re.match(r"GLIBC_(\d+)\.(\d+)", version)
            if number and OLDEST_FOR_TOOLS < tuple(map(int, number.groups())) <= BUILT_ON:
                late.append(f"{name}: {symbol}@{version}")
    equal(late, [])


@test
def no_driver_symbols():
    """it needs no symbol of the driver, of libdl or of libpthread to load"""
    late = {"dlopen", "dlclose", "dladdr", "dlerror", "pthread_create", "pthread_key_create"}
    needed = {name for name, kind, _ in symbols("--undefined-only") if kind != "w"}
    equal(sorted(name for name in needed if re.match(r"cu[A-Z]|nvml", name)), [])
    equal(sorted(needed & late), [])


@test
def plain_symbols():
    """it needs no fortified and no 64-bit alias of a function, which other C libraries lack"""
    needed = {name for name, kind, _ in symbols("--undefined-only") if kind != "w"}
    equal(sorted(name for name in needed if name.endswith(("_chk", "64")) or "isoc" in name), [])


@test
def musl_has_them():
    """musl has each symbol that it needs, so that its programs start"""
    libraries = glob.glob("/lib/ld-musl-*.so.1") + glob.glob("/usr/lib/*-linux-musl/libc.so")
    if not libraries:
        raise Skip("no musl here")
    there = tool("nm", "-D", "--defined-only", libraries[0])
    there = {line.split()[-1] for line in there.splitlines()}
    needed = {name for name, kind, _ in symbols("--undefined-only") if kind != "w"}
    true(needed, "no symbols")
    equal(sorted(needed - there), [])


def dynamic():
    return tool("readelf", "-dW", LIBRARY)


@test
def needed():
    """libc.so.6 is all that it needs"""
    equal(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic()), ["libc.so.6"])


@test
def old_loaders():
    """a loader of 2012 understands it: no packed relocations, no newer processor asked for"""
    text = dynamic()
    true("RELR" not in text, "DT_RELR, which glibc 2.36 brought")
    true("(GNU_HASH)" in text or "(HASH)" in text, "no hash table")
    notes = tool("readelf", "-nW", LIBRARY)
    true(not re.search(r"ISA needed: .*(v2|v3|v4)", notes), notes)
    true("GNU_UNIQUE" not in tool("readelf", "-sW", "--dyn-syms", LIBRARY), "a unique symbol")


WITHOUT_DRIVER = """
import ctypes, sys
def absent(name):
    try:
        ctypes.CDLL(name)
    except OSError:
        return True
if not absent("libcuda.so.1") or not absent("libnvidia-ml.so.1"):
    sys.exit(77)
if sys.argv[2] == "opened":
    library, size = ctypes.CDLL(sys.argv[1]), (ctypes.c_size_t * 8)()
    print(library.cuInit(0) != 0, library.cuMemGetInfo_v2(size, size) != 0,
          library.nvmlDeviceGetMemoryInfo(None, size) != 0)
print([hasattr(ctypes.CDLL(None), name) for name in ("cuInit", "cuMemAlloc_v2", "nvmlInit_v2")])
"""


@test
def without_driver():
    """it loads where there is no driver: its functions answer an error, and dlsym finds none of them"""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "CUDA_"))}
    directory = tempfile.mkdtemp()
    clean["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = os.path.join(directory, "region")
    for how, environment, wanted in (
            ("opened", clean, "True True True\n[False, False, False]\n"),
            ("preloaded", dict(clean, LD_PRELOAD=LIBRARY), "[False, False, False]\n")):
        done = subprocess.run([sys.executable, "-E", "-c", WITHOUT_DRIVER, LIBRARY, how], text=True,
                              check=False, capture_output=True, env=environment)
        if done.returncode == 77:
            raise Skip("a driver is installed here")
        if re.search(r"wrong ELF class|cannot open shared object|cannot be preloaded", done.stderr):
            raise Skip("the library is for another machine")
        equal((done.returncode, done.stdout, done.stderr), (0, wanted, ""), how)
    shutil.rmtree(directory)


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
