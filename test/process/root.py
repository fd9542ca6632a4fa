# SPDX-License-Identifier: Apache-2.0
"""root BUILD: programs under an /etc/ld.so.preload, in a root directory of their own (rooted.py)."""
import difflib
import os
import shutil

import tap
from both import PATH, processes
from rooted import INSIDE, NOBODY, path, preload, run
from tap import Skip, equal, test, true


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
def limited_once():
    """and to no less where both of the library's names are there, and one in LD_PRELOAD too"""
    for names in (("libvgpu.so", "libvgpu-control.so"), ("libvgpu-control.so", "libvgpu.so")):
        preload(*names, "libvgpu-sim-rm.so")
        for before in ((), ("env", "LD_PRELOAD=/opt/libvgpu-control.so")):
            done = hold(*before, "/opt/hold", "1400", "0")
            equal((done.returncode, done.stderr), (0, ""), f"{names} {before}: {done.stdout}")
            done = hold(*before, "/opt/hold", "1600", "0")
            true("CUDA_ERROR_OUT_OF_MEMORY" in done.stdout, f"{names} {before}: {done.stdout}{done.stderr}")


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
