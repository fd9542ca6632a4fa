# SPDX-License-Identifier: Apache-2.0
"""readme_hami SOURCE BUILD: the command lines that HAMi-core's READMEs show, on the simulator, from
where they are meant to be called."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, BUILD = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
sys.argv[1:] = [BUILD]  # for those imported below

import tap  # pylint: disable=wrong-import-position
from both import CLEAN  # pylint: disable=wrong-import-position
from simulated import MANAGER, SIM  # pylint: disable=wrong-import-position
from tap import equal, test, true  # pylint: disable=wrong-import-position

MEMORY, CORES = "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT"
PRODUCTS = ("libvgpu.so", "shrreg-tool", "test_alloc", "test_vram_limit", "test_runtime_launch")


class Container:
    """A directory with a machine and a region; commands in it as a shell in build/ runs them."""

    def __init__(self, library="./libvgpu.so", **variables):
        self.directory = tempfile.mkdtemp()
        self.variables = {**CLEAN, "LD_LIBRARY_PATH": SIM, "VGPU_SIM_MACHINE": f"{self.directory}/machine",
                          "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{self.directory}/region",
                          "LD_PRELOAD": f"{library}:{MANAGER}", **variables}

    def start(self, *command):
        return subprocess.Popen(command, cwd=BUILD, env=self.variables, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)

    def run(self, *command):
        with self.start(*command) as process:
            said, errors = process.communicate(timeout=100)
        equal(process.returncode, 0, f"{' '.join(command)}: {said}{errors}")
        return said


@test
def products():
    """`make` and `./build.sh` leave their products in build/"""
    for name in PRODUCTS:
        true(os.path.isfile(f"{BUILD}/{name}"), name)
    with open(f"{SOURCE}/build.sh", encoding="utf-8") as file:
        script = file.read()
    true(os.access(f"{SOURCE}/build.sh", os.X_OK) and "\nmake " in script, script)


@test
def smi():
    """nvidia-smi under 2g shows 2048MiB, natively the card's own"""
    said = Container(**{MEMORY: "2g"}).run("./examples/vgpu-example-smi")
    true(re.search(r"\b0 ?MiB */ *2048 ?MiB", said), said)
    said = Container(library="").run("./examples/vgpu-example-smi")
    true("2048" not in said and "MiB" in said, said)


@test
def sizes():
    """1g, 1024m, 1048576k and 1073741824 are one limit"""
    for size in ("1g", "1024m", "1048576k", "1073741824"):
        said = Container(**{MEMORY: size, CORES: "50"}).run("./examples/vgpu-example-smi")
        true(re.search(r"\b0 ?MiB */ *1024 ?MiB", said), f"{size}: {said}")


@test
def vram():
    """test_vram_limit under 1g ends with the refusal at the limit"""
    said = Container(**{MEMORY: "1g"}).run("./test_vram_limit")
    true("CUDA_ERROR_OUT_OF_MEMORY (2)" in said and "of 1024 MiB are in use" in said, said)


@test
def raw():
    """./test/test_alloc passes, without a limit and with one"""
    Container().run("./test/test_alloc")
    Container(**{MEMORY: "1g"}).run("./test/test_alloc")


def reaches(program, percent):
    """Whether the program's reports, one a second, come to that share; a loaded machine is slow."""
    low, high, seen = 0.75 * percent / 100, percent / 100 + 0.06, []
    for line in iter(program.stdout.readline, ""):
        found = re.search(r"\bwork (\d+\.\d+)", line)
        if not found:
            continue
        seen.append(float(found[1]))
        if low <= seen[-1] <= high:
            return
        true(len(seen) < 60, f"{percent} %: {seen}")
    raise AssertionError(f"it ended: {seen}")


@test
def slices():
    """a load's share goes from 80 to 20 to 70 while it runs, by shrreg-tool --set-sm-limit"""
    container = Container(**{MEMORY: "4g", CORES: "80"})
    with container.start("./test_runtime_launch") as program:
        try:
            reaches(program, 80)
            for percent in (20, 70):
                said = container.run("./shrreg-tool", "--set-sm-limit", "0", str(percent))
                true(f"cores {percent} %" in said, said)
                reaches(program, percent)
        finally:
            program.terminate()
            program.stdout.read()


@test
def levels():
    """LIBCUDA_LOG_LEVEL sets what is said"""
    for level, lines in (("0", 0), ("1", 0), ("3", 1), ("4", 2)):
        with Container(LIBCUDA_LOG_LEVEL=level, **{MEMORY: "2g"}).start("./test_alloc_hold", "1", "0") as program:
            _, errors = program.communicate(timeout=60)
        true((errors.count("[HAMI-core ") >= lines) if lines else not errors, f"{level}: {errors}")


@test
def images():
    """the images have the library at /libvgpu/build/libvgpu.so"""
    for name in ("Dockerfile", "Dockerfile-tf1.8-cu90"):
        with open(f"{SOURCE}/dockerfiles/{name}", encoding="utf-8") as file:
            text = file.read()
        true("WORKDIR /libvgpu\nCOPY . /libvgpu\nRUN ./build.sh\n" in text, text)
        true("cuda_vmem:tf1.8-cu90" in text, text)
    true("ENV LD_PRELOAD=/libvgpu/build/libvgpu.so" in text and "COPY --from=build /libvgpu /libvgpu" in text, text)
    with open(f"{SOURCE}/.dockerignore", encoding="utf-8") as file:
        true("build" in file.read().split(), "build/ would be copied")


@test
def in_docker():
    """`make build-in-docker` says in one line where no Docker engine answers"""
    if subprocess.run(["sh", "-c", "docker info"], capture_output=True, check=False).returncode == 0:
        raise tap.Skip("a Docker engine answers here: it would build")
    done = subprocess.run([f"{SOURCE}/scripts/build-in-docker"], capture_output=True, text=True, check=False)
    equal((done.returncode, done.stdout, done.stderr),
          (1, "", "build-in-docker: no Docker engine answers here\n"))


# In the place of the engine, what the container would run is run here, by tools that do as they are told.
ENGINE = {
    "docker": """[ "$1" = run ] || exit 0
while [ "$1" != sh ]; do shift; done
exec "$@"
""",
    "meson": """echo "meson $*" >>calls
[ ! -f fail ] || { echo "ERROR: no compiler"; exit 1; }
mkdir -p "$2/src/sim" && touch "$2/build.ninja"
""",
    "ninja": """echo "ninja $*" >>calls
touch "$2/libvgpu.so"
"""}


@test
def by_engine():
    """`make build-in-docker` builds what `make` does, the simulator's place too, once set up; a setup that fails shows why"""
    with tempfile.TemporaryDirectory() as directory:
        os.makedirs(f"{directory}/scripts")
        os.makedirs(f"{directory}/bin")
        shutil.copy(f"{SOURCE}/scripts/build-in-docker", f"{directory}/scripts")
        for name, script in ENGINE.items():
            with open(f"{directory}/bin/{name}", "w", encoding="ascii") as file:
                file.write(f"#!/bin/sh\n{script}")
            os.chmod(file.name, 0o755)
        path = f"{directory}/bin:{os.environ['PATH']}"

        def build():
            return subprocess.run([f"{directory}/scripts/build-in-docker"], env={**CLEAN, "PATH": path},
                                  capture_output=True, text=True, check=False)
        with open(f"{directory}/fail", "w", encoding="ascii"):
            done = build()
        true(done.returncode and "ERROR: no compiler" in done.stderr, done)
        os.unlink(f"{directory}/fail")
        for _ in range(2):
            equal(build().returncode, 0)
        true(os.path.isdir(f"{directory}/build-docker/sim/"), "no simulator beside the tools")
        with open(f"{directory}/calls", encoding="ascii") as file:
            equal([line.split()[0] for line in file], ["meson", "meson", "ninja", "ninja"])


tap.main()
