# SPDX-License-Identifier: Apache-2.0
"""quickstart BUILD: every command line of docs/quickstart.md, in a root directory of the test's own
(rooted.py) with what `make install` installs.

The simulator stands for the card, and these for what is not here: `make` (what it would install was
installed from the build), `sudo` and `systemctl` (runs the unit's command in its environment), `docker`
(a mount namespace with the options' mounts and environment in the place of an image's root)."""
import os
import re
import shutil
import subprocess

import tap
from rooted import BUILD, INSIDE, make_root, mount, path
import rooted
from tap import Skip, equal, test, true

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
DOCUMENT = os.path.join(SOURCE, "docs/quickstart.md")
SECONDS = 120
SEARCH = "/opt/stand:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

TRAIN = """
import ctypes, os, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
cuda.cuCtxSetCurrent(context)
cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
print("trains on", total.value >> 20, "MiB", flush=True)
if "TRAIN_SECONDS" in os.environ:
    time.sleep(float(os.environ["TRAIN_SECONDS"]))
"""

STAND = {
    "make": "exit 0",
    "sudo": 'exec "$@"',
    "nvidia-smi": "exec /src/build/examples/vgpu-example-smi",
    "docker": "exec /usr/bin/python3 /opt/docker.py \"$@\"",
    "systemctl": "exec /usr/bin/python3 /opt/systemctl.py \"$@\"",
}

# Options as in the document; what is not known to it fails. The mounts are made for real.
DOCKER = r"""
import os, subprocess, sys
words = sys.argv[1:]
assert words.pop(0) == "run", words
user, binds, tmpfs, environment, read_only = None, [], [], {}, False
while words[0].startswith("-"):
    word = words.pop(0)
    if word == "--rm":
        continue
    if word == "--read-only":
        read_only = True
        continue
    value = words.pop(0)
    if word == "--gpus":
        assert value == "all"
    elif word == "-v":
        binds.append(value.split(":"))
    elif word == "-e":
        environment.update([value.split("=", 1)])
    elif word == "--tmpfs":
        tmpfs.append(value.split(":"))
    elif word == "--user":
        user = value
    else:
        sys.exit("docker: " + word)
image, command = words[0], words[1:]
assert "/" in image and command, words
script = ["set -e", "root=$(mktemp -d)", "mount --rbind / $root", "cd $root", "mount --bind machine machine",
          "mount -t tmpfs -o mode=1777 none tmp", "mount -t tmpfs none run",
          "cp -r etc run/etc", "mount --bind run/etc etc", "mkdir -p usr/local/vgpu etc/vgpu"]
for source, target, *options in binds:
    assert os.path.exists(source), source + " is not there: docker would make a directory"
    place = target[1:]
    if os.path.isdir(source):
        script.append(f"mkdir -p {place}")
    else:
        script.append(f"mkdir -p {os.path.dirname(place)}; [ -e {place} ] || : > {place}")
    script.append(f"mount --bind {source} {place}")
    if options == ["ro"]:
        script.append(f"mount -o remount,bind,ro {place}")
for place, *options in tmpfs:
    script.append(f"mkdir -p {place[1:]}; mount -t tmpfs -o {options[0] if options else 'mode=755'} none {place[1:]}")
# The simulator's part, which stands for the kernel module, goes last.
script.append("if grep -q libvgpu.so etc/ld.so.preload; then cat etc/ld.so.preload > run/preload; "
              "echo /opt/libvgpu-sim-rm.so >> run/preload; mount --bind run/preload etc/ld.so.preload; fi")
if read_only:
    script += ["mount -o remount,bind,ro tmp", "mount -o remount,bind,ro ."]
script.append("exec chroot " + (f"--userspec={user} " if user else "") + '. "$@"')
environment.update(PATH=os.environ["PATH"], VGPU_SIM_MACHINE=f"/machine/docker-{user}", HOME="/tmp")
done = subprocess.run(["unshare", "-m", "sh", "-c", "\n".join(script), "sh", "env", "-",
                       *[f"{name}={value}" for name, value in environment.items()], *command],
                      env={"PATH": os.environ["PATH"]})
sys.exit(done.returncode)
"""

SYSTEMCTL = r"""
import os, subprocess, sys
if sys.argv[1:] == ["daemon-reload"]:
    sys.exit(0)
verb, unit = sys.argv[1:]
if verb == "stop":
    sys.exit(0)
assert verb == "start", sys.argv
environment = {"PATH": os.environ["PATH"], "VGPU_SIM_MACHINE": "/machine/service", "TRAIN_SECONDS": "60"}
command = None
for line in open(f"/etc/systemd/system/{unit}.service"):
    name, _, value = line.strip().replace("%t", "/run").partition("=")
    if name == "Environment":
        environment.update([value.split("=", 1)])
    elif name == "RuntimeDirectory":
        os.makedirs("/run/" + value, mode=0o700, exist_ok=True)
    elif name == "ExecStart":
        command = value.split()
    elif name == "BindPaths":
        assert os.path.isdir(value.lstrip("-")), value
service = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
print(service.stdout.readline(), end="")
"""


def blocks(document):
    """[(heading, script)] of a document's blocks of sh."""
    with open(document, encoding="utf-8") as file:
        text = file.read()
    found, heading = [], ""
    for match in re.finditer(r"^(#+) ([^\n]*)$|^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if match[1]:
            heading = match[2]
        else:
            found.append((heading, match[3]))
    return found


def make_machine():
    """The root directory with the source, the build, what is installed, and what stands for the rest."""
    make_root()
    if os.environ[INSIDE] != "root":
        raise Skip("needs root")
    if os.path.exists(path("opt/stand")):
        return
    if not os.path.exists("/usr/bin/python3"):
        raise Skip("needs /usr/bin/python3")
    for name in ("run", "srv", "machine", "src", "src/build", "src/deploy"):
        os.makedirs(path(name), exist_ok=True)
    os.chmod(path("machine"), 0o1777)
    mount("-t", "tmpfs", "-o", "mode=755", "none", path("usr/local"))
    mount("--bind", BUILD, path("src/build"))
    mount("--bind", os.path.join(SOURCE, "deploy"), path("src/deploy"))
    for name in ("bin/vgpu", "bin/shrreg-tool", "lib/libvgpu.so"):
        os.makedirs(os.path.dirname(path("usr/local", name)), exist_ok=True)
        shutil.copy(os.path.join(BUILD, os.path.basename(name)), path("usr/local", name))
    shutil.copy(os.path.join(SOURCE, "deploy/vgpu-install"), path("usr/local/bin"))
    os.mkdir(path("opt/stand"))
    for name, script in STAND.items():
        with open(path("opt/stand", name), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path("opt/stand", name), 0o755)
    for name, text in (("opt/docker.py", DOCKER), ("opt/systemctl.py", SYSTEMCTL), ("src/train.py", TRAIN)):
        with open(path(name), "w", encoding="utf-8") as file:
            file.write(text)
    for name in ("srv/train", "etc/tmpfiles.d", "etc/systemd/system"):
        os.makedirs(path(name))
    shutil.copy(path("src/train.py"), path("srv/train"))
    rooted.preload("libvgpu-sim-rm.so")


def sh(script, directory="/src", **environment):
    make_machine()
    words = {"PATH": SEARCH, "HOME": "/root", "VGPU_SIM_MACHINE": "/machine/own", **environment}
    return subprocess.run(["chroot", path(), "sh", "-c", f"cd {directory}\nset -e\n{script}"], env=words,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)


def good(script, *wanted, **more):
    done = sh(script, **more)
    equal(done.returncode, 0, f"{script}\n{done.stdout}{done.stderr}\nstatus")
    for words in wanted:
        true(re.search(words, done.stdout), f"{words} is not in what {script} says: {done.stdout}{done.stderr}")
    return done


def section(heading):
    found = [script for title, script in blocks(DOCUMENT) if title == heading]
    true(found, f"{heading} has no commands")
    return found


def kill_service():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if b"TRAIN_SECONDS=60" in file.read():
                    os.kill(int(pid), 9)
        except OSError:
            pass


@test
def install():
    """the commands that build and install, and those that try it on the simulator"""
    made, tried = section("Build and install")
    good(made, r"vgpu \d")
    good(tried, "CUDA_ERROR_OUT_OF_MEMORY", "goes on")


@test
def command():
    """a command in a slice sees the slice"""
    for script in section("A command"):
        good(script, r"0MiB */ *2048MiB", "trains on 2048 MiB")


@test
def docker():
    """containers: as root, as another user, read-only, and with limits that only the node sets"""
    node, plain, user, pinned = section("Docker")
    good(node)
    equal(os.stat(path("tmp/vgpulock")).st_mode & 0o7777, 0o1777, "the shared directory's mode")
    good(plain, r"/ *2048MiB")
    good(user, r"/ *2048MiB")
    said = good(pinned).stdout
    equal(len(re.findall(r"/ *2048MiB", said)), 2, f"shows of 2 GiB in {said}")
    true(re.search(r"\b20 ?%|20 %", said), f"the last line's answer is not in {said}")


@test
def service():
    """the service of deploy/systemd runs under its limits, which are changed, paused and resumed"""
    script, = section("A systemd service")
    if not shutil.which("systemd-tmpfiles"):
        raise Skip("no systemd-tmpfiles here")
    try:
        good(script, "trains on 8192 MiB", "20")
    finally:
        kill_service()


@test
def unit():
    """the units are as systemd wants them"""
    if not shutil.which("systemd-analyze"):
        raise Skip("no systemd-analyze here")
    units = [os.path.join(SOURCE, "deploy/systemd", name) for name in ("vgpu-train.service", "vgpu.slice")]
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
    equal((done.returncode, done.stderr), (0, ""), "systemd-analyze verify")


@test
def workstation():
    """a user's runs, and limits set on its own region"""
    shared, own = section("A workstation with several users")
    good(shared, "trains on 4096 MiB")
    said = good(own).stdout
    true(re.search(r"4096MiB(.|\n)*2048MiB", said), said)


@test
def uninstall():
    """what the document sets up it takes away again, whatever was set up of it"""
    script, = section("Uninstall")
    good(script)
    for name in ("etc/systemd/system/vgpu-train.service", "etc/tmpfiles.d/vgpu-boards.conf", "tmp/vgpulock",
                 "usr/local/vgpu/libvgpu.so", "usr/local/vgpu/ld.so.preload"):
        true(not os.path.exists(path(name)), f"{name} is left")
    good(script)


@test
def covered():
    """each block of commands is run by one of these tests"""
    titles = {title for title, _ in blocks(DOCUMENT)}
    equal(titles, {"Build and install", "A command", "Docker", "A systemd service",
                   "A workstation with several users", "Uninstall"}, "headings")


tap.main()
