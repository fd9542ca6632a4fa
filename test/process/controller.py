# SPDX-License-Identifier: Apache-2.0
"""controller SOURCE BUILD: vgpu-controller's library name, variables, log, mounts and scripts, as its
users know them, over the simulator."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.argv[1:] = sys.argv[2:] + sys.argv[1:2]  # the build comes first for what is imported

import tap  # pylint: disable=wrong-import-position
from mine import BUILD, MINE, VGPU  # pylint: disable=wrong-import-position
from tap import Skip, equal, test, true  # pylint: disable=wrong-import-position

SOURCE = os.path.abspath(sys.argv[2])
SIM = os.path.join(BUILD, "src/sim")
MANAGER = os.path.join(SIM, "libvgpu-sim-rm.so")
CONTROL = os.path.join(BUILD, "libvgpu-control.so")
SLICE = os.path.join(BUILD, "test/process/slice")
PRINT = os.path.join(BUILD, "shrreg-tool")
CARD_MIB = 143165
LINE = re.compile(r"\[vGPU (ERROR|WARNING|INFO|VERBOSE|DETAIL)\(\d+\|\w+\.c\|\d+\)\]: \S.*")


class Container:
    """A machine and a region of its own, and programs under libvgpu-control.so."""

    def __enter__(self):
        self.directory = tempfile.mkdtemp()
        self.region = f"{self.directory}/region"
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.directory)

    def preloads(self, library=CONTROL):
        return {"LD_PRELOAD": f"{library}:{MANAGER}", "LD_LIBRARY_PATH": SIM,
                "VGPU_SIM_MACHINE": f"{self.directory}/machine"}

    def run(self, *command, library=CONTROL, before=(), region=True, **variables):
        """`before` runs the command, and is not under the library."""
        preloads = self.preloads(library)
        environment = {**MINE, **variables}
        if region:
            environment["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = self.region
        command = (*before, "env", *(f"{name}={value}" for name, value in preloads.items()),
                   *(command or (SLICE,)))
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100,
                              check=False, stdin=subprocess.DEVNULL)

    def shown(self):
        """What shrreg-tool says of the region."""
        done = subprocess.run([PRINT, "--region", self.region, "--print"], env=MINE, text=True,
                              capture_output=True, check=True)
        return done.stdout


def total(done, device=0):
    """The device's memory in MiB as CUDA and NVML tell it."""
    lines = [re.findall(r"[-\d]+", line) for line in done.stdout.splitlines()]
    true(len(lines) > device and len(lines[device]) == 8, f"{done.stdout!r} {done.stderr[:1000]!r}")
    seen = int(lines[device][1]), int(lines[device][2])
    true(seen[0] == seen[1] or seen[0] == CARD_MIB, f"CUDA and NVML differ: {seen}")
    return seen[0]


# ---- the library and its variables ----

@test
def docker_example():
    """the docker example's variables: memory, cores, soft cores and a pod's name, by the library's name"""
    with Container() as it:
        done = it.run(CUDA_MEM_LIMIT="1000m", CUDA_CORE_LIMIT="20", CUDA_CORE_SOFT_LIMIT="60", POD_NAME="demo-1")
        equal((total(done), done.stderr), (1000, ""), "the slice")
        true("cores 20 %, up to 60 % while" in it.shown(), it.shown())
        with open(it.region, "rb") as file:
            file.seek(11137280)
            identity = file.read(512)
        equal((identity[0], identity[8:15]), (2, b"demo-1\0"), "identity")


@test
def sizes():
    """CUDA_MEM_LIMIT is a decimal number and one of k m g t in either case; more letters are ignored"""
    for value, mib in (("1000m", 1000), ("1Gi", 1024), ("1.5g", 1536), ("2048M", 2048), ("1048576K", 1024),
                       ("1073741824", 1024), ("1000mx", 1000), ("2gigabytes", 2048), ("", CARD_MIB)):
        with Container() as it:
            done = it.run(CUDA_MEM_LIMIT=value)
            equal((total(done), done.stderr), (mib, ""), repr(value))
    with Container() as it:
        done = it.run(CUDA_DEVICE_MEMORY_LIMIT="1000mx")
        true("CUDA_DEVICE_MEMORY_LIMIT" in done.stderr and "accepted" in done.stderr, done.stderr)


@test
def devices():
    """the index counts in GPU_DEVICES_UUID, else MANAGER_VISIBLE_DEVICES, else NVIDIA_VISIBLE_DEVICES, else all"""
    sim = {"VGPU_SIM": "2xh200", "CUDA_MEM_LIMIT_0": "1g", "CUDA_MEM_LIMIT_1": "2g"}
    with Container() as it:
        done = it.run(**sim)
        equal([total(done, 0), total(done, 1)], [1024, 2048], "all")
        uuids = re.findall(r"GPU-[0-9a-f-]+", it.shown())[:2]
    lists = ("GPU_DEVICES_UUID", "MANAGER_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
    for at, name in enumerate(lists):
        with Container() as it:
            behind = {later: ",".join(uuids) for later in lists[at + 1:]}
            done = it.run(**sim, **behind, **{name: ",".join(reversed(uuids))})
            equal([total(done, 0), total(done, 1)], [2048, 1024], name)


@test
def cores():
    """a core limit is a percentage, off at 0, and 100 and more are no limit; the soft limit needs one below it"""
    for variables, wanted in (({"CUDA_CORE_LIMIT": "30"}, "cores 30 %"), ({"CUDA_CORE_LIMIT": "0"}, "cores no limit"),
                              ({"CUDA_CORE_LIMIT": "250"}, "cores no limit"),
                              ({"CUDA_CORE_LIMIT": "30", "CUDA_CORE_LIMIT_0": "70"}, "cores 70 %"),
                              ({"CUDA_CORE_SOFT_LIMIT": "60"}, "cores no limit")):
        with Container() as it:
            done = it.run(**variables)
            equal(done.stderr, "", f"{variables}")
            true(f" {wanted};" in it.shown(), f"{variables}: {it.shown()}")
    with Container() as it:
        done = it.run(CUDA_CORE_LIMIT="60", CUDA_CORE_SOFT_LIMIT="60")
        true("not above the compute limit" in done.stderr, done.stderr)
        true("while the GPU" not in it.shown(), it.shown())


@test
def both_families():
    """where both families are set HAMi-core's goes first, an index before none"""
    with Container() as it:
        done = it.run(CUDA_MEM_LIMIT="1g", CUDA_DEVICE_MEMORY_LIMIT="2g", CUDA_CORE_LIMIT="20", CUDA_DEVICE_SM_LIMIT="40")
        equal((total(done), done.stderr), (2048, ""), "not indexed")
        true("cores 40 %" in it.shown(), it.shown())
    with Container() as it:
        equal(total(it.run(CUDA_MEM_LIMIT_0="1g", CUDA_DEVICE_MEMORY_LIMIT="2g")), 1024, "indexed")


@test
def oversubscription():
    """each word that asks for more memory than the card's is understood, and the limit is the device's size"""
    asks = ({"CUDA_MEMORY_OVERSUBSCRIBE": "true"}, {"CUDA_OVERSUBSCRIBE": "on"}, {"CUDA_OVERSUBSCRIBE": "1"},
            {"CUDA_MEMORY_OVERSUBSCRIBE": "1.5"}, {"CUDA_MEM_OVERSOLD": "true"}, {"CUDA_MEM_OVERSOLD_0": "TRUE"},
            {"CUDA_MEM_RATIO": "2"}, {"CUDA_MEM_RATIO_0": "1.01"}, {"CUDA_MEMORY_RATIO": "1.5"},
            {"CUDA_MEMORY_OVERSUBSCRIBE": "true", "CUDA_MEM_RATIO": "2", "CUDA_MEM_OVERSOLD_0": "true"})
    for variables in asks:
        with Container() as it:
            done = it.run(CUDA_MEM_LIMIT="300g", **variables)
            equal((total(done), done.stderr), (300 * 1024, ""), f"{variables}")
    card = None
    for variables in ({}, {"CUDA_MEMORY_OVERSUBSCRIBE": "false"}, {"CUDA_OVERSUBSCRIBE": "0"}, {"CUDA_MEM_RATIO": "1"},
                      {"CUDA_MEM_RATIO": "1.0"}, {"CUDA_MEMORY_RATIO": "0.5"}, {"CUDA_MEM_OVERSOLD": "off"},
                      {"CUDA_MEM_OVERSOLD": "true", "CUDA_MEM_OVERSOLD_0": "false"}, {"CUDA_MEM_RATIO_3": "2"}):
        with Container() as it:
            done = it.run(CUDA_MEM_LIMIT="300g", **variables)
            card = card or total(done)
            true(card < 300 * 1024, card)
            equal((total(done), done.stderr), (card, ""), f"{variables}")


# ---- the log ----

@test
def log_form():
    """the library of that name logs in vgpu-controller's form; the other does where LOGGER_LEVEL is set"""
    bad = {"CUDA_CORE_LIMIT": "much"}
    for library, more, form in ((CONTROL, {}, "[vGPU ERROR("), ("libvgpu.so", {}, "[HAMI-core ERROR "),
                                ("libvgpu.so", {"LOGGER_LEVEL": "3"}, "[vGPU ERROR("),
                                (CONTROL, {"LIBCUDA_LOG_LEVEL": "1"}, "[HAMI-core ERROR "),
                                (CONTROL, {"LIBCUDA_LOG_LEVEL": "1", "LOGGER_LEVEL": "5"}, "[HAMI-core ERROR ")):
        with Container() as it:
            done = it.run(library=os.path.join(BUILD, library), **bad, **more)
            lines = done.stderr.splitlines()
            true(len(lines) == 1 and lines[0].startswith(form), f"{library} {more}: {done.stderr}")
            true("vGPU" not in form or LINE.fullmatch(lines[0]), lines[0])


@test
def log_levels():
    """LOGGER_LEVEL 0 is infos, 1 adds errors, 2 warnings, 4 what is verbose, 5 details; 3 is the default"""
    wanted = {"": {"ERROR", "WARNING"}, "0": set(), "1": {"ERROR"}, "2": {"ERROR", "WARNING"},
              "3": {"ERROR", "WARNING"}, "4": {"ERROR", "WARNING", "VERBOSE"},
              "5": {"ERROR", "WARNING", "VERBOSE"}}  # unit/log.c has the details
    for sim, more in (("", set()), ("no-rm", {"INFO"})):
        for level, words in wanted.items():
            with Container() as it:
                done = it.run(CUDA_CORE_LIMIT="much", CUDA_MEM_OVERSOLD="much", CUDA_MEM_LIMIT="1g",
                              LOGGER_LEVEL=level, VGPU_SIM=sim)
            lines = done.stderr.splitlines()
            true(all(LINE.fullmatch(line) for line in lines), done.stderr)
            seen = {LINE.fullmatch(line)[1] for line in lines} - {"DETAIL"}
            equal(seen, (words | more) - ({"VERBOSE"} if sim else set()), f"{sim} level {level!r}")


# ---- what else it looked at ----

def need_root(*command):
    """That the command may be run, as root; it does nothing."""
    if os.getuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        raise Skip(f"{' '.join(command[:2])} is not allowed here")


def in_etc(it, script):
    """Runs a command after the script where /etc and /run are its own."""
    hidden = [path for path in (BUILD, it.directory) if path.startswith(("/etc/", "/run/"))]
    if hidden:
        raise Skip(f"{hidden[0]} would be hidden by an /etc and a /run of the test's own")
    place = f"{it.directory}/own"
    os.mkdir(place)
    need_root("unshare", "--mount", "mount", "-t", "tmpfs", "none", place)
    return ("unshare", "--mount", "--propagation", "private", "sh", "-ec",
            f"mount -t tmpfs none {place}\n"
            f"cp -a --no-preserve=ownership /etc {place}/etc 2>{place}/unread || :\n"
            f"mount --bind {place}/etc /etc\nrm -rf /etc/vgpu-manager; mount -t tmpfs none /run; {script}\nexec \"$@\"", "sh")


@test
def mounts():
    """the mounts of the host's /proc and cgroup are not needed, and garbage in them changes nothing"""
    script = ("mkdir -p /etc/vgpu-manager /run/vgpu; mkdir -p /etc/vgpu-manager/host_proc/1 /run/vgpu/host_proc/self\n"
              "head -c 4096 /dev/urandom >/etc/vgpu-manager/host_proc/1/cgroup; mkfifo /etc/vgpu-manager/host_cgroup\n"
              "echo 1 >/run/vgpu/host_proc/self/status; ln -s /dev/zero /run/vgpu/host_cgroup\n")
    with Container() as it:
        done = it.run(before=in_etc(it, script), CUDA_MEM_LIMIT="1g")
        equal((total(done), done.stderr), (1024, ""), "with them")


@test
def controller_file():
    """where vgpu-controller's own file of settings lies one line says that it is not read"""
    script = "mkdir -p /etc/vgpu-manager; head -c 5000 /dev/urandom >/etc/vgpu-manager/vgpu.config\n"
    with Container() as it:
        done = it.run(before=in_etc(it, script), CUDA_MEM_LIMIT="1g")
        equal(total(done), 1024, "the environment's limit")
        lines = done.stderr.splitlines()
        true(len(lines) == 1 and "/etc/vgpu-manager/vgpu.config is not read" in lines[0], done.stderr)


# ---- a shell that lost the environment ----

def shells(it, script, *options, **variables):
    """sh runs the script as process 1 of a PID namespace, with the variables; "$LOST PROGRAM" runs a
    program without them."""
    unshare = ("unshare", *(options or ("--pid", "--fork", "--mount-proc")))
    need_root(*unshare, "true")
    lost = " ".join(["env -i", *(f"{name}={value}" for name, value in it.preloads().items())])
    return subprocess.run([*unshare, "sh", "-c", f'LOST="{lost}"; IT="{it.directory}"; SLICE={SLICE}; {script}; :'],
                          env={**MINE, **variables}, capture_output=True, text=True, timeout=100, check=False)


@test
def lost_shell():
    """a shell without variables has the limits of process 1's environment, in the container's region"""
    with Container() as it:
        done = shells(it, "$LOST $SLICE", CUDA_MEM_LIMIT="1000m", CUDA_CORE_LIMIT="30",
                      CUDA_DEVICE_MEMORY_SHARED_CACHE=it.region)
        equal((total(done), done.stderr), (1000, ""), "the slice")
        true("cores 30 %" in it.shown(), it.shown())


@test
def lost_devices():
    """and its device list, by which limits are counted"""
    with Container() as it:
        sim = {"VGPU_SIM": "2xh200"}
        it.run(**sim)
        uuids = re.findall(r"GPU-[0-9a-f-]+", it.shown())[:2]
    with Container() as it:
        done = shells(it, "$LOST VGPU_SIM=2xh200 $SLICE", CUDA_MEM_LIMIT_0="1g", CUDA_MEM_LIMIT_1="2g",
                      GPU_DEVICES_UUID=",".join(reversed(uuids)), CUDA_DEVICE_MEMORY_SHARED_CACHE=it.region)
        equal([total(done, 0), total(done, 1)], [2048, 1024], done.stderr)


@test
def lost_and_bad():
    """a limit there that is not understood closes the device, as one's own does"""
    for name, value in (("CUDA_MEM_LIMIT", "much"), ("CUDA_MEM_LIMIT_64", "1g")):
        with Container() as it:
            done = shells(it, "$LOST $SLICE", CUDA_DEVICE_MEMORY_SHARED_CACHE=it.region, **{name: value})
            true(re.search(r"context 2 .*small [1-9]", done.stdout), done.stdout + done.stderr)
            true(name in done.stderr and "accepted" in done.stderr, done.stderr)


@test
def own_settings():
    """a process with a setting of its own keeps to it, also where that is that there is no limit"""
    with Container() as it:
        for own, mib in (("CUDA_MEM_LIMIT_0=0", CARD_MIB), ("CUDA_DEVICE_MEMORY_LIMIT=2g", 2048),
                         ("CUDA_DEVICE_SM_LIMIT=50", CARD_MIB)):
            done = shells(it, f"$LOST {own} CUDA_DEVICE_MEMORY_SHARED_CACHE=$IT/{mib}{own[-1]} $SLICE",
                          CUDA_MEM_LIMIT="1000m", CUDA_DEVICE_MEMORY_SHARED_CACHE=it.region)
            equal(total(done), mib, own)
        done = shells(it, "$LOST CUDA_MEM_LIMIT= LIBCUDA_LOG_LEVEL=2 VGPU_GATE=launch $SLICE", CUDA_MEM_LIMIT="1000m",
                      CUDA_DEVICE_MEMORY_SHARED_CACHE=it.region)
        equal(total(done), 1000, "nothing that is the container's is set")


@test
def own_run():
    """vgpu run there has the settings that it is given, and a region of its own"""
    with Container() as it:
        done = shells(it, f"env -i VGPU_SIM_MACHINE=$IT/machine {VGPU} run --sim --memory 2g -- $SLICE",
                      CUDA_MEM_LIMIT="1000m", CUDA_DEVICE_MEMORY_SHARED_CACHE=it.region)
        equal(total(done), 2048, done.stderr)
        true(not os.path.exists(it.region), "it went to the container's region")


@test
def lost_tools():
    """vgpu set and shrreg-tool there find the region of process 1's environment"""
    with Container() as it:
        done = shells(it, f"$LOST $SLICE; env -i {PRINT} --print", CUDA_MEM_LIMIT="1000m",
                      CUDA_DEVICE_MEMORY_SHARED_CACHE=it.region)
        true(f"region {it.region} " in done.stdout and "memory 1000 MiB" in done.stdout, done.stdout + done.stderr)


@test
def not_ours():
    """process 1 of another mount namespace, or of another user than root and one's own, is not heard"""
    with Container() as it:
        variables = {"CUDA_MEM_LIMIT": "1000m", "CUDA_DEVICE_MEMORY_SHARED_CACHE": it.region}
        done = shells(it, "unshare --mount $LOST $SLICE", **variables)
        equal(total(done), CARD_MIB, f"another mount namespace: {done.stderr}")
        # Root beside a first process of another user, which it may read.
        os.chmod(it.directory, 0o777)
        true(shutil.which("setpriv"), "setpriv is missing")
        need_root("setpriv", "--reuid=65534", "--clear-groups", "true")
        fifo = f"{it.directory}/fifo"
        os.mkfifo(fifo)
        line = os.open(fifo, os.O_RDWR)  # without a reader it would wait for one
        with subprocess.Popen(["unshare", "--pid", "--fork", "--mount-proc", "setpriv", "--reuid=65534",
                               "--clear-groups", "sh", "-c", f"read line <{fifo}"], env={**MINE, **variables}) as first:
            try:
                done = enter(first.pid, it)
            finally:
                os.write(line, b"end\n")
                first.wait()
                os.close(line)
        equal(total(done), CARD_MIB, f"another user: {done.stderr}")
        true(not os.path.exists(it.region), "its region was taken")


def enter(unshare, it):
    """slice as root in the namespaces of unshare's child, without a variable."""
    child = ""
    while not child:
        with open(f"/proc/{unshare}/task/{unshare}/children", encoding="ascii") as file:
            child = file.read().strip()
    while open(f"/proc/{child}/comm", encoding="ascii").read().strip() != "sh":
        pass
    lost = ["env", "-i", *(f"{name}={value}" for name, value in it.preloads().items())]
    # The root directory also: that of a mount namespace is another where this runs in a chroot.
    return subprocess.run(["nsenter", "--target", child, "--pid", "--mount", "--root", *lost, SLICE], env=MINE,
                          capture_output=True, text=True, timeout=60, check=False)


# ---- find_new_lib.sh ----

def find_new(*arguments, path=None):
    return subprocess.run(["/bin/sh", f"{SOURCE}/find_new_lib.sh", *arguments], capture_output=True, text=True,
                          check=False, env={**MINE, **({"PATH": path} if path else {})})


def stub(directory, name, *functions):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise Skip("no C compiler here")
    source, library = f"{directory}/{name}.c", f"{directory}/{name}"
    with open(source, "w", encoding="utf-8") as file:
        file.write("".join(f"int {function}(void) {{ return 0; }}\n" for function in functions))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def tools_but(directory, *names):
    """A PATH with what the script needs of the system, and of nm, readelf and python3 only these."""
    os.mkdir(directory)
    for name in ("sh", "dirname", "head", "od", "tr", "sed", "awk", "grep", "sort", "cat", *names):
        place = sys.executable if name == "python3" else shutil.which(name)
        if not place:
            raise Skip(f"no {name} here")
        os.symlink(place, f"{directory}/{name}")
    return directory


@test
def new_functions():
    """find_new_lib.sh lists what is not known, marks versions of what is replaced, and says how many"""
    with tempfile.TemporaryDirectory() as directory:
        cuda = stub(directory, "libcuda.so.1", "cuInit", "cuMemAlloc_v2", "cuMemAlloc_v99", "cuLaunchKernel_v9_ptsz",
                    "cuBrandNew", "cu_internal", "helper", "cudbgApiInit")
        nvml = stub(directory, "libnvidia-ml.so.1", "nvmlInit_v2", "nvmlDeviceGetMemoryInfo_v9", "nvmlBrandNew")
        wanted = (f"{cuda}:\ncuBrandNew\n"
                  "cuLaunchKernel_v9_ptsz    a version of cuLaunchKernel_ptsz, which is replaced\n"
                  "cuMemAlloc_v99    a version of cuMemAlloc_v2, which is replaced\n"
                  f"{nvml}:\nnvmlBrandNew\n"
                  "nvmlDeviceGetMemoryInfo_v9    a version of nvmlDeviceGetMemoryInfo_v2, which is replaced\n")
        said = "3 of 5 functions are not known\n2 of 3 functions are not known\n"
        done = find_new(cuda, nvml)
        equal((done.stdout, done.stderr, done.returncode), (wanted, said, 0), "the lists")
        for tool in ("nm", "readelf", "python3"):
            done = find_new(cuda, nvml, path=tools_but(f"{directory}/{tool}", tool))
            equal((done.stdout, done.stderr, done.returncode), (wanted, said, 0), f"by {tool}")
        done = find_new(cuda, nvml, path=tools_but(f"{directory}/none"))
        true(done.returncode == 1 and "is needed" in done.stderr, f"{done.returncode} {done.stderr}")


@test
def known_functions():
    """of the simulator's driver, which has all that 580's has, only what came later is new"""
    done = find_new(f"{SIM}/libcuda.so.1", f"{SIM}/libnvidia-ml.so.1")
    equal(re.findall(r"^(?:cu|nvml)\w+", done.stdout, re.M), ["cuCtxCreate_v5", "cuMemAlloc_v3"], done.stderr)


@test
def bad_arguments():
    """bad arguments are one line that names them and says what is accepted, with status 2"""
    cuda = f"{SIM}/libcuda.so.1"
    with tempfile.TemporaryDirectory() as directory:
        cut = f"{directory}/cut"
        with open(cuda, "rb") as whole, open(cut, "wb") as file:
            file.write(whole.read(3))
        for arguments in ((), (cuda,), (cuda, cuda, cuda), (cuda, cuda), ("", cuda), (directory, cuda),
                          (f"{directory}/absent", cuda), (cut, cuda), (cuda, f"{SOURCE}/README.md")):
            done = find_new(*arguments)
            lines = done.stderr.splitlines()
            refusals = [line for line in lines if line.startswith("find_new_lib.sh: ")]
            equal((done.returncode, len(refusals)), (2, 1), f"{arguments}: {done.stderr}")
            true("accepted: " in refusals[0], refusals[0])


# ---- the tools ----

@test
def doctor():
    """vgpu doctor takes libvgpu-control.so in LD_PRELOAD for the library"""
    with Container() as it:
        done = it.run(VGPU, "doctor", "--json", CUDA_MEM_LIMIT="1g")
        true("get the library by LD_PRELOAD" in done.stdout, done.stdout + done.stderr)
        true("libvgpu-control.so" in done.stdout, done.stdout)


tap.main()
