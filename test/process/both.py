# SPDX-License-Identifier: Apache-2.0
"""Runs a command natively and preloaded and compares all that can be seen of both: streams, status,
files, and each process's state at its end (watch.c)."""
import difflib
import os
import shutil
import subprocess
import tempfile

from tap import Skip, equal

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FOREIGN = ("CUDA_", "VGPU_", "LD_", "NVIDIA_", "PYENV", "LC_", "LANG", "GIT_", "MAKE", "MFLAGS")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
CLEAN["PATH"] = PATH
SECONDS = 100


class Seen:
    """What a run of a command was seen to say, do and leave."""

    def __init__(self, done, report, files):
        self.status, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
        self.processes, self.files = report, files


def files_below(directory):
    """The files that a command left in its directory, with their sizes."""
    found = {}
    for place, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(place, name)
            found[os.path.relpath(path, directory)] = os.lstat(path).st_size
    return found


def processes(report):
    """The lines of a report, in an order that does not depend on who ended first."""
    lines = []
    with open(report, encoding="utf-8", errors="replace") as file:
        for line in file.read().splitlines():
            state, _, objects = line.partition(" objects=")
            lines.append(state + " objects=" + ",".join(sorted(set(objects.split(",")))))
    return sorted(lines)


def look(command, environment, directory, watcher=None, prepare=None, **options):
    """Runs it in an empty directory of that name."""
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    if prepare:
        prepare(directory)
    report = directory + ".report"
    before = [watcher, report] if watcher else []
    done = subprocess.run(before + list(command), env=environment, cwd=directory, capture_output=True,
                          timeout=SECONDS, check=False,
                          **{"stdin": subprocess.DEVNULL, "umask": 0o027, **options})
    return Seen(done, processes(report) if watcher else [], files_below(directory))


def same(ours, native):
    equal(ours.status, native.status, "status")
    equal(ours.stdout, native.stdout, "stdout")
    equal(ours.stderr, native.stderr, "stderr")
    if ours.processes != native.processes:
        lines = difflib.unified_diff(native.processes, ours.processes, "native", "preloaded", "", "", 0, "")
        raise AssertionError("\n".join(["the processes differ", *lines]))
    equal(ours.files, native.files, "files")


def both(command, preload, limit="1g", watcher=None, extra=None, **options):
    """Runs a command with and without the preload: both must say, be and leave the same. extra: more
    of the environment of both."""
    if not shutil.which(command[0], path=PATH):
        raise Skip(f"no {command[0]} here")
    with tempfile.TemporaryDirectory(prefix="vgpu-inert-") as directory:
        work, home = os.path.join(directory, "work"), os.path.join(directory, "home")
        region = os.path.join(directory, "region")
        environment = dict(CLEAN, HOME=home, CUDA_DEVICE_MEMORY_SHARED_CACHE=region,
                           CUDA_DEVICE_MEMORY_LIMIT=limit, **(extra or {}))
        native = look(command, environment, work, watcher, **options)
        ours = look(command, dict(environment, LD_PRELOAD=preload), work, watcher, **options)
        same(ours, native)
        equal(os.path.exists(region), False, "a region was made")
        return native
