# SPDX-License-Identifier: Apache-2.0
"""inert BUILD: programs that use no GPU behave the same with and without the preload."""
import os
import shutil
import subprocess
import sys
import tempfile

import tap
from tap import Skip, equal, test, true

BUILD = sys.argv[1]
LIBRARY = os.path.join(BUILD, "libvgpu.so")
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(("CUDA_", "VGPU_", "LD_", "NVIDIA_"))}


def both(command, limit="1g", **options):
    """Runs it natively and preloaded; both must say and leave the same."""
    if not shutil.which(command[0]):
        raise Skip(f"no {command[0]} here")
    with tempfile.TemporaryDirectory() as directory:
        region = os.path.join(directory, "region")
        inside = dict(CLEAN, LD_PRELOAD=LIBRARY, CUDA_DEVICE_MEMORY_SHARED_CACHE=region)
        if limit:
            inside["CUDA_DEVICE_MEMORY_LIMIT"] = limit
        native = subprocess.run(command, env=CLEAN, capture_output=True, timeout=60, **options)
        ours = subprocess.run(command, env=inside, capture_output=True, timeout=60, **options)
        equal(ours.returncode, native.returncode, "status")
        equal(ours.stdout, native.stdout, "stdout")
        equal(ours.stderr, native.stderr, "stderr")
        equal(os.listdir(directory), [], "files")


def program(sentence, *command, **options):
    def body():
        both(list(command), **options)
    body.__doc__ = sentence
    test(body)


program("bash, its arithmetic and jobs", "bash", "-c",
        "echo $((6 * 7)); (exit 3); echo $?; sleep 0.01 & wait; trap 'echo bye' EXIT")
program("bash with an unusable limit", "bash", "-c", "echo here", limit="abc")
program("ls of a directory", "ls", "-la", "/usr")
program("ls of its own descriptors", "ls", "/proc/self/fd")
program("grep, sed and awk in a pipe", "sh", "-c",
        "grep -c . /etc/passwd; sed -n 1p /etc/passwd; awk -F: 'END { print NR }' /etc/passwd")
program("umask", "sh", "-c", "umask; umask 077; umask")
program("signals, threads and limits of a process", "sh", "-c",
        "grep -E 'Sig(Blk|Ign|Cgt)|Threads|FDSize|Seccomp' /proc/self/status; ulimit -a")
program("python3 with threads and processes", "python3", "-c", """
import ctypes, errno, json, os, signal, socket, subprocess, threading
threads = [threading.Thread(target=print, args=(i,)) for i in range(3)]
for thread in threads:
    thread.start(); thread.join()
print(subprocess.check_output(['echo', 'child']))
print([signal.getsignal(n) for n in range(1, 32) if n not in (9, 19)])
try:
    os.stat('/nonexistent')
except OSError as error:
    print(errno.errorcode[error.errno])
libc = ctypes.CDLL(None)
print(libc.strlen(b'four'), hasattr(libc, 'no_such_function'), hasattr(libc, 'mutex'))
pid = os.fork()
if pid == 0:
    os._exit(5)
print(os.waitpid(pid, 0)[1])
""")
program("python3 asking for functions that sound like the driver's", "python3", "-c", """
import ctypes
libc = ctypes.CDLL(None)
print([hasattr(libc, n) for n in ('curl_easy_init', 'custom', 'cut', 'nvmlFoo', 'cuFoo')])
""")
program("perl", "perl", "-e", "print join(',', map { $_ ** 2 } 1 .. 5), \"\\n\"; exit 4")
program("git", "git", "--version")
program("openssl", "openssl", "version")
program("gdb", "gdb", "--batch", "-ex", "print 6 * 7")
program("node", "node", "-e", "console.log([1, 2, 3].map(x => x * 2).join())")
program("gcc", "gcc", "-dumpmachine")
program("tar and gzip", "sh", "-c", "tar -cf - -C /etc passwd | gzip -n | gzip -d | tar -tf -")
program("a program that fails to start", "sh", "-c", "exec /nonexistent/program")
program("a program killed by a signal", "sh", "-c", "kill -SEGV $$")
program("a terminal program without a terminal", "stty", "size", stdin=subprocess.DEVNULL)
program("dd, which counts its signals", "dd", "if=/dev/zero", "of=/dev/null", "count=1",
        "status=none")


@test
def static_program():
    """a statically linked program runs"""
    busybox = shutil.which("busybox")
    if not busybox:
        raise Skip("no busybox here")
    both([busybox, "echo", "static"])


@test
def no_locale_noise():
    """the loader says nothing where the library is preloaded by its path from anywhere"""
    with tempfile.TemporaryDirectory(prefix="a path with-dash.") as directory:
        copy = os.path.join(directory.replace(" ", "_"), "libvgpu.so")
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        shutil.copy(LIBRARY, copy)
        done = subprocess.run(["true"], env=dict(CLEAN, LD_PRELOAD=copy), capture_output=True)
        equal((done.returncode, done.stdout, done.stderr), (0, b"", b""))
        shutil.rmtree(os.path.dirname(copy))


@test
def mapped_once():
    """a program without CUDA maps the library and nothing else of ours"""
    done = subprocess.run(["cat", "/proc/self/maps"], env=dict(CLEAN, LD_PRELOAD=LIBRARY),
                          capture_output=True, text=True)
    extra = {line.split()[-1] for line in done.stdout.splitlines() if "vgpu" in line}
    equal(extra, {LIBRARY}, "mapped files")
    true("libcuda" not in done.stdout and "libnvidia" not in done.stdout, "a driver is mapped")


tap.main()
