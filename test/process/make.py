# SPDX-License-Identifier: Apache-2.0
"""make BUILD: scripts/build and scripts/install, which `make` and `make install` call. What would build
or change the build directory are tools that do as they are told; what installs is real."""
import json
import os
import shutil
import stat
import subprocess
import tempfile

import tap
from tap import equal, test, true

from mine import BUILD, MINE

SOURCE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
SECONDS = 120
MESON = shutil.which("meson")

TOOLS = {
    "meson": """echo "meson $*" >>"$CALLS"
echo "The Meson build system"
[ "$1" = setup ] || exit 9
mkdir -p "$2" && touch "$2/build.ninja"
""",
    "ninja": """echo "ninja $*" >>"$CALLS"
case "$*" in *-n) [ -e "$CALLS.done" ] && echo "ninja: no work to do." || echo "[1/1] Compiling"; exit ;; esac
echo "[1/1] Compiling"
[ ! -e "$CALLS.warn" ] || echo "a.c:1:1: warning: something"
[ ! -e "$CALLS.fail" ] || { echo "a.c:1:1: error: something"; exit 3; }
"""}


class Tree:
    """A source directory with scripts/build, and a PATH with the tools."""

    def __init__(self, name="tree"):
        self.root = tempfile.mkdtemp()
        self.source, self.calls = f"{self.root}/{name}", f"{self.root}/calls"
        os.makedirs(f"{self.source}/scripts")
        os.mkdir(f"{self.root}/bin")
        shutil.copy(f"{SOURCE}/scripts/build", f"{self.source}/scripts")
        for tool, script in TOOLS.items():
            write_tool(f"{self.root}/bin/{tool}", script)

    def build(self, *arguments, **variables):
        return subprocess.run([f"{self.source}/scripts/build", *arguments], capture_output=True, text=True, check=False,
                              timeout=SECONDS, env={**MINE, "PATH": f"{self.root}/bin:{MINE['PATH']}",
                                                    "CALLS": self.calls, **variables})

    def note(self, word):
        with open(f"{self.calls}.{word}", "w", encoding="ascii"):
            pass


def write_tool(path, script):
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\n{script}")
    os.chmod(path, 0o755)


@test
def quiet():
    """a build says in two lines that it builds and how long it took; one with nothing to do says nothing"""
    tree = Tree()
    done = tree.build()
    lines = done.stdout.splitlines()
    equal((done.returncode, done.stderr, len(lines)), (0, "", 2), done.stdout)
    true(lines[0].startswith("building into build: ") and lines[1].startswith("built in "), lines)
    true(os.path.islink(f"{tree.source}/build/sim"), "no simulator beside the tools")
    tree.note("done")
    done = tree.build()
    equal((done.returncode, done.stdout, done.stderr), (0, "", ""))


@test
def loud():
    """one that fails shows all of the compiler's lines and its status, one that warns shows the warning, V=1 shows each step"""
    tree = Tree()
    true("[1/1] Compiling" in tree.build(V="1").stdout, "V=1")
    tree.note("warn")
    done = tree.build()
    true(done.returncode == 0 and "warning: something" in done.stderr, done)
    tree.note("fail")
    done = tree.build()
    true(done.returncode == 3 and "[1/1] Compiling" in done.stderr and "error: something" in done.stderr, done)
    true("built" not in done.stdout, done.stdout)


@test
def odd_place():
    """in a place whose name the loader does not take it builds and says so; tests are refused before, in one line"""
    for name, fit in (("with space", False), ("a:b", False), ("a;b", False), ("$x", False), ("a-b_c.d", True)):
        tree = Tree(name)
        done = tree.build("--for-tests")
        equal((done.returncode, done.stdout, done.stderr.count("\n")), (0, "", 0) if fit else (1, "", 1), done.stderr)
        done = tree.build()
        equal((done.returncode, done.stderr.count("\n")), (0, 0 if fit else 1), done.stderr)
        true(os.path.exists(f"{tree.source}/build/build.ninja"), "it was not built")


class Installation:
    """The build, installed below a directory of the test's own, by its own prefix."""

    def __init__(self):
        self.root = tempfile.mkdtemp()
        os.mkdir(f"{self.root}/bin")
        os.mkdir(f"{self.root}/a place")
        # The build directory is others' too: it is not set up or built anew.
        write_tool(f"{self.root}/bin/ninja", "exit 0\n")
        write_tool(f"{self.root}/bin/meson", f"[ \"$1\" = setup ] || exec '{MESON}' \"$@\"\n")
        options = json.loads(subprocess.run([MESON, "introspect", "--buildoptions", BUILD], capture_output=True,
                                            check=True).stdout)
        self.prefix = next(option["value"] for option in options if option["name"] == "prefix")
        self.place = f"{self.root}/a place/x{self.prefix}"

    def run(self, action, destination="x"):
        return subprocess.run([f"{SOURCE}/scripts/install", action], cwd=f"{self.root}/a place", capture_output=True,
                              text=True, check=False, timeout=SECONDS,
                              env={**MINE, "PATH": f"{self.root}/bin:{MINE['PATH']}", "BUILD": BUILD,
                                   "PREFIX": self.prefix, "DESTDIR": destination})


def sections(path):
    with open(path, "rb") as file:
        return file.read()


@test
def installs():
    """what is installed is stripped, with vgpu-install, the documents, and the library at PREFIX/vgpu; a relative DESTDIR counts from the caller's directory"""
    installation = Installation()
    done = installation.run("install")
    equal((done.returncode, done.stderr, done.stdout.count("\n")), (0, "", 1), done.stdout)
    place, prefix = installation.place, installation.prefix
    for name in ("bin/vgpu", "bin/vgpu-install", "lib/libvgpu.so", "vgpu/libvgpu.so", "vgpu/ld.so.preload",
                 "share/doc/vgpu/README.md", "share/doc/vgpu/docs/quickstart.md",
                 "share/doc/vgpu/deploy/kubernetes/daemonset.yaml", "share/man/man1/vgpu.1"):
        true(os.path.isfile(f"{place}/{name}"), f"{name} is missing")
    true(os.stat(f"{place}/bin/vgpu-install").st_mode & stat.S_IXOTH, "vgpu-install cannot be run")
    with open(f"{place}/vgpu/ld.so.preload", encoding="ascii") as file:
        equal(file.read(), f"{prefix}/vgpu/libvgpu.so\n", "ld.so.preload")
    for name in ("lib/libvgpu.so", "vgpu/libvgpu.so", "bin/vgpu"):
        true(b".symtab" not in sections(f"{place}/{name}"), f"{name} is not stripped")
    true(sections(f"{place}/vgpu/libvgpu.so") == sections(f"{place}/lib/libvgpu.so"), "two libraries")
    equal(os.listdir(f"{installation.root}/a place"), ["x"], "what else is there")


@test
def uninstalls():
    """uninstall removes every file that install made, and no other; where nothing is installed it says so"""
    installation = Installation()
    done = installation.run("uninstall")
    equal((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), done.stderr)
    equal(installation.run("install").returncode, 0)
    kept = f"{installation.place}/bin/other"
    with open(kept, "w", encoding="ascii"):
        pass
    done = installation.run("uninstall")
    equal((done.returncode, done.stderr), (0, ""), done.stdout)
    left = [os.path.join(at, name) for at, _, names in os.walk(f"{installation.root}/a place") for name in names]
    equal(left, [kept], "files")
    true(not os.path.exists(f"{installation.place}/vgpu"), "its directory is left")


tap.main()
