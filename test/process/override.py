# SPDX-License-Identifier: Apache-2.0
"""override BUILD: /overrideEnv, in a root directory of the test's own (rooted.py)."""
import json
import os
import shutil

import tap
from mine import VGPU
from rooted import INSIDE, NOBODY, path, preload, run
from tap import Skip, equal, test, true

LIMIT = {"CUDA_DEVICE_MEMORY_LIMIT": "8g"}


def hold(mib, text, user=0, mode=0o644, owner=0, **variables):
    """What an allocation of so many MiB says where that file lies; nothing: there is none."""
    preload("libvgpu.so", "libvgpu-sim-rm.so")
    for name in ("tmp/machine", "tmp/region", "tmp/other", "overrideEnv"):
        if os.path.exists(path(name)):
            os.remove(path(name))
    if text is not None:
        with open(path("overrideEnv"), "w", encoding="ascii") as file:
            file.write(text)
        os.chown(path("overrideEnv"), owner, owner)
        os.chmod(path("overrideEnv"), mode)
    variables = {"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/region", **variables}
    return run("/opt/hold", str(mib), "0", user=user, VGPU_SIM="h200", VGPU_SIM_MACHINE="/tmp/machine",
               **variables)


def granted(done):
    true("CUDA_SUCCESS" in done.stdout, done.stdout + done.stderr)
    return done


def refused(done):
    true("CUDA_ERROR_OUT_OF_MEMORY" in done.stdout, done.stdout + done.stderr)
    return done


def said(done):
    """What was said beside the refusal itself."""
    return [line for line in done.stderr.splitlines() if " OOM " not in line and "account_" not in line]


@test
def goes_first():
    """a limit in the file holds where the environment has none, and before one that it has"""
    equal(granted(hold(3000, None, **LIMIT)).stderr, "")
    equal(said(refused(hold(3000, "CUDA_DEVICE_MEMORY_LIMIT=2g\n"))), [])
    granted(hold(1000, "CUDA_DEVICE_MEMORY_LIMIT=2g\n"))
    equal(said(refused(hold(3000, "CUDA_DEVICE_MEMORY_LIMIT=2g\n", **LIMIT))), [])
    granted(hold(3000, "CUDA_DEVICE_MEMORY_LIMIT=4g\n", CUDA_DEVICE_MEMORY_LIMIT="2g"))
    granted(hold(3000, "CUDA_DEVICE_MEMORY_LIMIT=\n", CUDA_DEVICE_MEMORY_LIMIT="2g"))


@test
def beside():
    """what the file does not name is the environment's"""
    refused(hold(3000, "CUDA_DEVICE_SM_LIMIT=50\n", CUDA_DEVICE_MEMORY_LIMIT="2g"))
    refused(hold(3000, "CUDA_DEVICE_MEMORY_LIMIT_0=2g\n", **LIMIT))


@test
def region():
    """it can name the region, before the environment does"""
    granted(hold(100, "CUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp/other\n", **LIMIT))
    true(os.path.exists(path("tmp/other")) and not os.path.exists(path("tmp/region")), "the other region")


@test
def other_user():
    """another user's program has root's file, and nobody heeds another user's"""
    if os.environ.get(INSIDE) != "root":
        raise Skip("another user needs root")
    refused(hold(3000, "CUDA_DEVICE_MEMORY_LIMIT=2g\n", user=NOBODY, **LIMIT))
    done = granted(hold(3000, "CUDA_DEVICE_MEMORY_LIMIT=2g\n", owner=NOBODY, mode=0o644, **LIMIT))
    equal(len(said(done)), 1, done.stderr)
    true("/overrideEnv is not read: it is neither root's" in said(done)[0], done.stderr)


@test
def writable():
    """a file that others may write is not read, and one line says so"""
    done = granted(hold(3000, "CUDA_DEVICE_MEMORY_LIMIT=2g\n", mode=0o666, **LIMIT))
    equal(len(said(done)), 1, done.stderr)
    true("/overrideEnv is not read: others may write it" in said(done)[0], done.stderr)


@test
def not_understood():
    """a line that is not understood is reported, and the device is full; so is a value, or an index"""
    for text, word in (("CUDA_DEVICE_MEMORY_LIMIT 2g\n", '"CUDA_DEVICE_MEMORY_LIMIT 2g"'),
                       ("CUDA_DEVICE_MEMORY_LIMIT=much\n", '"much"'),
                       ("CUDA_DEVICE_MEMORY_LIMIT_64=1g\n", "_64")):
        done = refused(hold(1, text, **LIMIT))
        equal(len(said(done)), 1, done.stderr)
        true(word in said(done)[0] and "accepted: " in said(done)[0], done.stderr)


@test
def unreadable():
    """one that a program's user may not read is reported, and the device is full"""
    if os.environ.get(INSIDE) != "root":
        raise Skip("another user needs root")
    done = refused(hold(1, "A=1\n", user=NOBODY, mode=0o600, **LIMIT))
    true("/overrideEnv cannot be read: Permission denied" in done.stderr, done.stderr)


@test
def shown():
    """`vgpu doctor` says that there is one, and shows the limit that holds"""
    for text in ("CUDA_DEVICE_MEMORY_LIMIT=2g\n", None):
        hold(1, text, **LIMIT)
        shutil.copy(VGPU, path("opt/vgpu"))
        done = run("/opt/vgpu", "doctor", "--json", VGPU_SIM="h200", VGPU_SIM_MACHINE="/tmp/machine",
                   CUDA_DEVICE_MEMORY_SHARED_CACHE="/tmp/region-of-doctor", **LIMIT)
        true(not os.path.exists(path("tmp/region-of-doctor")), "the doctor left its region")
        checks = [(line["check"], line["status"], line["text"]) for line in json.loads(done.stdout)["checks"]]
        told = [line for line in checks if line[:2] == ("environ", "ok") and "/overrideEnv is there" in line[2]]
        equal(len(told), 1 if text else 0, checks)
        limit = "memory 2048 MiB" if text else "memory 8192 MiB"
        true([line for line in checks if line[0] == "limits" and limit in line[2]], checks)


@test
def others():
    """a program without CUDA does not look at it"""
    preload()
    native = run("sh", "-c", "env; exit 3", A="1")
    with open(path("overrideEnv"), "w", encoding="ascii") as file:
        file.write("nonsense\nA=2\n")
    preload("libvgpu.so")
    ours = run("sh", "-c", "env; exit 3", A="1")
    equal((ours.returncode, ours.stdout, ours.stderr), (native.returncode, native.stdout, native.stderr))
    os.remove(path("overrideEnv"))


tap.main()
