# SPDX-License-Identifier: Apache-2.0
"""root BUILD: /etc/ld.so.preload in a root directory of its own. The script runs itself again in a
mount namespace, where it makes that directory; the machine's own files are not touched."""
import atexit
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile

import tap
from both import CLEAN, PATH, processes
from tap import Skip, equal, test, true

BUILD = os.path.abspath(sys.argv[1])
INSIDE = "VGPU_TEST_NAMESPACE"
NOBODY = 65534
OURS = {"libvgpu.so": "libvgpu.so", "libvgpu-sim-rm.so": "src/sim/libvgpu-sim-rm.so",
        "libcuda.so.1": "src/sim/libcuda.so.1", "libnvidia-ml.so.1": "src/sim/libnvidia-ml.so.1",
        "hold": "test/driver/hold", "watch": "test/process/process-watch"}
ETC = ("passwd", "group", "shadow", "nsswitch.conf", "hosts", "hostname", "alternatives", "pam.d",
       "login.defs", "perl", "security", "pam.conf", "environment")


def enter_namespace():
    """Runs this script again where its mounts are nobody else's; how that went where it cannot."""
    if os.environ.get(INSIDE):
        return None
    for options in (["--mount"], ["--mount", "--map-root-user"]):
        command = ["unshare", *options, "--propagation", "private"]
        if shutil.which("unshare") and subprocess.run([*command, "true"], check=False,
                                                      stderr=subprocess.DEVNULL).returncode == 0:
            os.environ[INSIDE] = "root" if len(options) == 1 and os.getuid() == 0 else "mapped"
            os.execvp("unshare", [*command, sys.executable, *sys.argv])
    return "no mount namespace can be made here"


ROOT = None
REASON = enter_namespace()


def mount(*arguments):
    done = subprocess.run(["mount", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise Skip(f"mount {' '.join(arguments)}: {done.stderr.strip()}")


def remove_root():
    subprocess.run(["umount", "-l", ROOT], check=False, stderr=subprocess.DEVNULL)
    os.rmdir(ROOT)


def path(*names):
    return os.path.join(ROOT, *names)


def make_system():
    """The machine's programs, and as much of /etc as they need."""
    for name in sorted(os.listdir("/")):
        if re.fullmatch(r"usr|bin|sbin|lib\w*", name) and os.path.islink("/" + name):
            os.symlink(os.readlink("/" + name), path(name))
        elif re.fullmatch(r"usr|bin|sbin|lib\w*|dev|proc", name):
            os.mkdir(path(name))
            mount("--rbind", "/" + name, path(name))
    for name in ("etc", "tmp", "opt", "root"):
        os.mkdir(path(name))
    os.chmod(path("tmp"), 0o1777)
    for name in ETC:
        if os.path.isdir("/etc/" + name):
            shutil.copytree("/etc/" + name, path("etc", name), symlinks=True, copy_function=copy_readable)
        else:
            copy_readable("/etc/" + name, path("etc", name))


def copy_readable(source, target):
    if os.access(source, os.R_OK) or os.path.islink(source):
        shutil.copy2(source, target, follow_symlinks=False)


def make_root():
    """The root directory, once; ours lies in /opt, where the loader's cache knows it."""
    global ROOT, REASON
    if REASON:
        raise Skip(REASON)
    if ROOT:
        return
    REASON = "the root directory could not be made"
    ROOT = tempfile.mkdtemp(prefix="vgpu-root-")
    atexit.register(remove_root)
    mount("-t", "tmpfs", "-o", "mode=755", "none", ROOT)
    make_system()
    for name, built in OURS.items():
        shutil.copy(os.path.join(BUILD, built), path("opt", name))
    for name in ("id", "cat", "hold"):
        shutil.copy(path("opt", name) if name in OURS else shutil.which(name, path=PATH),
                    path("opt", "suid-" + name))
        os.chmod(path("opt", "suid-" + name), 0o4755)
    with open(path("etc/ld.so.conf"), "w", encoding="ascii") as file:
        file.write("/opt\n")
    subprocess.run(["chroot", ROOT, "ldconfig", "-X"], check=True, capture_output=True)
    REASON = None


def preload(*names):
    """What /etc/ld.so.preload names from now on; nothing: there is none."""
    make_root()
    file = path("etc/ld.so.preload")
    if not names:
        if os.path.exists(file):
            os.remove(file)
        return
    with open(file, "w", encoding="ascii") as list_of_libraries:
        list_of_libraries.write("\n".join("/opt/" + name for name in names) + "\n")


def run(*command, user=0, watched=False, **environment):
    """In the root directory, as root or as a user."""
    before = ["chroot", f"--userspec={user}:{user}", ROOT] if user else ["chroot", ROOT]
    watch = ["/opt/watch", "/tmp/report"] if watched else []
    return subprocess.run(before + watch + list(command), capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, check=False,
                          env=dict(CLEAN, PATH=PATH, HOME="/tmp", **environment))


def seen(*command, **options):
    done = run(*command, **options)
    report = processes(path("tmp/report")) if options.get("watched") else []
    return [str(done.returncode), *done.stdout.splitlines(), *done.stderr.splitlines(), *report]


def traceable():
    preload()
    return run("true", watched=True).returncode == 0


def program(sentence, *command, silent=False, **options):
    def body():
        preload()
        if not shutil.which(command[0], path=PATH) and not command[0].startswith("/opt"):
            raise Skip(f"no {command[0]} here")
        if options.get("user") and os.environ.get(INSIDE) != "root":
            raise Skip("needs another user, and so root")
        limits = {"CUDA_DEVICE_MEMORY_LIMIT": "1g", "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/region"}
        watched = not options.get("user") and traceable()
        native = seen(*command, watched=watched, **limits, **options)
        preload("libvgpu.so")
        ours = seen(*command, watched=watched, **limits, **options)
        lines = list(difflib.unified_diff(native, ours, "native", "preloaded", "", "", 0, ""))
        true(not lines, "they differ\n" + "\n".join(lines))
        true(silent or len(native) > 1, "it says nothing")
        true(not os.path.exists(path("tmp/region")), "a region was made")
    body.__doc__ = sentence
    test(body)


@test
def everywhere():
    """every program has the library, also set-user-ID ones that another user starts"""
    preload("libvgpu.so")
    true("/opt/libvgpu.so" in run("cat", "/proc/self/maps").stdout, "cat has it not")
    if os.environ.get(INSIDE) != "root":
        raise Skip("another user needs root")
    done = run("/opt/suid-cat", "/proc/self/maps", user=NOBODY)
    true("/opt/libvgpu.so" in done.stdout, f"set-user-ID cat has it not: {done.stderr}")


program("a shell's pipes, jobs and traps", "sh", "-c", r"""
a=$(echo inner; exit 4); echo "$a $?"; { echo one; echo two; } | sort -r; sleep 0.01 & wait
( trap 'exit 9' TERM; kill -TERM $(sh -c 'echo $PPID') ); echo $?; umask; ls /proc/self/fd""")
program("bash", "bash", "-c", "trap 'echo bye' EXIT; coproc cat; echo $((6 * 7)); kill -SEGV $$")
program("coreutils, find, grep, sed, awk", "sh", "-c", r"""
ls /opt; find /opt -name 'lib*' | sort | xargs -n 1 basename; grep -c . /etc/passwd; sed -n 1p /etc/passwd
awk 'BEGIN { system("echo system"); exit 3 }'; seq 9 | sort -r | head -n 1""")
program("python3", "/usr/bin/python3", "-E", "-s", "-c", r"""
import os, subprocess, threading
thread = threading.Thread(target=print, args=('thread',)); thread.start(); thread.join()
print(subprocess.run('exit 3', shell=True).returncode)
if os.fork() == 0:
    os._exit(5)
print(os.wait()[1])""")
program("perl", "perl", "-e", "if (!fork) { exit 3 } wait; print $? >> 8, qq(\\n); print `echo piped`")
program("tar and gzip", "sh", "-c", "tar -cf - -C /etc passwd | gzip -n | gzip -d | tar -tf -")
program("git", "git", "--version")
program("openssl", "openssl", "version")
program("busybox, whether static or not", "busybox", "sh", "-c", "echo here; busybox seq 3; exit 4")
program("true", "true", silent=True)
program("su to another user", "su", "nobody", "-s", "/bin/sh", "-c", "id -u; umask; ls /proc/self/fd")
program("set-user-ID id as another user", "/opt/suid-id", user=NOBODY)
program("an ordinary program as another user", "sh", "-c", "id -u; umask; exit 5", user=NOBODY)
program("a program that is traced", "strace", "-qq", "-e", "trace=write,umask,ioctl", "echo", "traced")


def hold(*command, **options):
    """A CUDA program over the simulator; the machine and the region are the caller's."""
    for name in ("machine", "region"):
        if os.path.exists(path("tmp", name)):
            os.remove(path("tmp", name))
    return run(*command, VGPU_SIM="h200", VGPU_SIM_MACHINE="/tmp/machine",
               CUDA_DEVICE_MEMORY_LIMIT="2g", CUDA_DEVICE_MEMORY_SHARED_CACHE="/tmp/region", **options)


@test
def limited():
    """a CUDA program is held to its limit"""
    preload("libvgpu.so", "libvgpu-sim-rm.so")
    done = hold("/opt/hold", "1400", "0")
    equal(done.returncode, 0, done.stdout + done.stderr)
    true(os.path.exists(path("tmp/region")), "no region was made")
    done = hold("/opt/hold", "1600", "0")
    true("CUDA_ERROR_OUT_OF_MEMORY" in done.stdout, done.stdout + done.stderr)


@test
def limited_by_shell():
    """so is one that a shell starts without any of its variables for the loader"""
    preload("libvgpu.so", "libvgpu-sim-rm.so")
    done = hold("sh", "-c", "unset LD_PRELOAD LD_LIBRARY_PATH; sh -c '/opt/hold 1600 0'; exit 0")
    true("CUDA_ERROR_OUT_OF_MEMORY" in done.stdout, done.stdout + done.stderr)


@test
def set_user_id_limited():
    """a set-user-ID CUDA program makes no file that its caller's environment names"""
    if os.environ.get(INSIDE) != "root":
        raise Skip("another user needs root")
    preload("libvgpu.so", "libvgpu-sim-rm.so")
    done = hold("/opt/suid-hold", "100", "0", user=NOBODY)
    equal(done.returncode, 0, done.stdout + done.stderr)
    true(not os.path.exists(path("tmp/region")), "root made the region that nobody named")


@test
def removed_library():
    """where the library is missing programs start all the same"""
    preload("no-such-library.so")
    done = run("sh", "-c", "echo started")
    equal((done.returncode, done.stdout), (0, "started\n"))


tap.main()
