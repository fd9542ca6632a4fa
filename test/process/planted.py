# SPDX-License-Identifier: Apache-2.0
"""planted BUILD: what others put where vgpu run looks, under /tmp and at the region's path."""
import os
import shutil
import subprocess
import tempfile
import threading
import time

import users
from mine import MINE, VGPU
from tap import Skip, equal, main, test, true

REGION_BYTES, REGION_OFFSET, HEAD_BYTES = 11137792, 2011136, 32
REGION_HEAD = (b"VGPUREG1" + (1).to_bytes(4, "little") + (0x01020304).to_bytes(4, "little") +
               (8528128).to_bytes(8, "little") + (64).to_bytes(4, "little") +
               (1024).to_bytes(4, "little"))


def run(*arguments):
    """One that hangs is an error: its time is bounded."""
    return subprocess.run([VGPU, "run", *arguments, "--", "true"], env=MINE, capture_output=True,
                          text=True, timeout=20, check=False)


class Left:
    """A directory as an earlier run leaves it: old enough to be swept."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="vgpu-run-", dir="/tmp")
        while len(self.path) != len("/tmp/vgpu-run-XXXXXX"):
            os.rmdir(self.path)
            self.path = f"/tmp/vgpu-run-{os.urandom(3).hex()}"
            os.mkdir(self.path)
        return self

    def put(self, name, text):
        with open(f"{self.path}/{name}", "w", encoding="utf-8") as file:
            file.write(text)

    def age(self):
        os.utime(self.path, (1, 1))

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def hostile_region(path):
    with open(path, "wb") as file:
        file.truncate(REGION_BYTES)
        file.seek(REGION_OFFSET)
        file.write(REGION_HEAD)
        file.write(b"\xfe" * (REGION_BYTES - REGION_OFFSET - HEAD_BYTES))


def sweep(left):
    left.age()
    done = run()
    equal((done.returncode, done.stderr), (0, ""))


def swept(left):
    """Whether a run removes it. Another test's `vgpu run` may be doing so at this moment: waits 10 s at most."""
    sweep(left)
    end = time.monotonic() + 10
    while os.path.exists(left.path) and time.monotonic() < end:
        time.sleep(0.05)
    return not os.path.exists(left.path)


def kept(left):
    sweep(left)
    return os.path.exists(left.path)


@test
def pipe():
    """a pipe under the name of what is read holds nobody up"""
    for name in ("where", "region", "machine"):
        with Left() as left:
            os.mkfifo(f"{left.path}/{name}")
            if name == "region":
                left.put("where", f"{left.path}/region")
            true(swept(left), f"{name} was kept")


@test
def links():
    """links in a left directory are removed, and what they point at stays"""
    with tempfile.TemporaryDirectory() as other, Left() as left:
        victim = f"{other}/victim"
        with open(victim, "w", encoding="utf-8") as file:
            file.write("not yours")
        for name in ("where", "region", "machine"):
            os.symlink(victim, f"{left.path}/{name}")
        true(swept(left), "kept")
        with open(victim, encoding="utf-8") as file:
            equal(file.read(), "not yours")


@test
def linked_directory():
    """a link under the name of a run's directory is left alone, with what it points at"""
    name = f"/tmp/vgpu-run-{os.urandom(3).hex()}"
    with tempfile.TemporaryDirectory() as other:
        with open(f"{other}/region", "w", encoding="utf-8") as file:
            file.write("not yours")
        os.utime(other, (1, 1))
        os.symlink(other, name)
        try:
            equal(run().returncode, 0)
            true(os.path.lexists(name) and os.path.exists(f"{other}/region"), "removed")
        finally:
            os.unlink(name)


@test
def other_users():
    """another user's directory is left alone, and another user's word is not followed"""
    if not users.may_change():
        raise Skip("another user needs root")
    with Left() as left:
        os.chown(left.path, 65534, 65534)
        true(kept(left), "removed")
    with Left() as left, tempfile.TemporaryDirectory() as other:
        hostile_region(f"{other}/region")
        before = os.stat(f"{other}/region").st_atime_ns
        left.put("where", f"{other}/region")
        os.chown(f"{left.path}/where", 65534, 65534)
        true(swept(left), "kept for another user's word")
        equal(os.stat(f"{other}/region").st_atime_ns, before, "read")


@test
def hostile():
    """a left region of hostile words is looked at, and removed: nobody lives in it"""
    with Left() as left:
        hostile_region(f"{left.path}/region")
        left.put("where", f"{left.path}/region")
        true(swept(left), "kept")


@test
def shortened():
    """a left region that is shortened while it is looked at harms nobody"""
    with tempfile.TemporaryDirectory() as other:
        path, stop = f"{other}/region", threading.Event()
        hostile_region(path)

        def shorten():
            turn = 0
            while not stop.is_set():
                turn += 1
                os.truncate(path, turn * 65521 % REGION_BYTES)
                time.sleep(0.0002)
                hostile_region(path)

        thread = threading.Thread(target=shorten)
        thread.start()
        try:
            for _ in range(25):
                with Left() as left:
                    left.put("where", path)
                    left.age()
                    done = run()
                    equal((done.returncode, done.stderr), (0, ""))
        finally:
            stop.set()
            thread.join()


@test
def named():
    """--region refuses a pipe, a directory and a device before anything is run"""
    with tempfile.TemporaryDirectory() as other:
        os.mkfifo(f"{other}/pipe")
        for path in (f"{other}/pipe", other, "/dev/null"):
            done = run("--region", path)
            equal(done.returncode, 2, path)
            true("no regular file" in done.stderr, done.stderr)


main()
