# SPDX-License-Identifier: Apache-2.0
"""region_file BUILD: what `vgpu region` says of a region's file, finds wrong in it, and mends."""
import fcntl
import json
import os
import random
import shutil
import signal
import struct
import time

import tap
from tap import equal, test, true

from mine import VGPU
from place import (DEVICE_BYTES, DEVICES, FILE_BYTES, NOBODY, OFFSET, Place, child_of, need_nobody, read,
                   refused_line, tool)

SLOTS, SLOT_BYTES = OFFSET + 8448, 8320
COMPUTE, HISTORY, IDENTITY = OFFSET + 8528128, OFFSET + 9060608, OFFSET + 9126144
F_OFD_SETLK = 37
FAR = struct.pack("<Q", time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 10**15)


def region(*arguments, **more):
    return tool(VGPU, "region", *arguments, **more)


def look(path, *arguments, status=0, **more):
    done = region("--json", *arguments, path, **more)
    equal((done.returncode, done.stderr), (status, ""), " ".join(arguments))
    return json.loads(done.stdout)


def write(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def word(path, offset):
    return struct.unpack("<Q", read(path, offset, 8))[0]


def sound(path):
    done = region("--check", path)
    equal((done.returncode, done.stdout, done.stderr), (0, "sound\n", ""))


@test
def decoded():
    """a region is shown with its limits, orders, devices and processes, for people and for programs"""
    names = {"VGPU_POD_NAME": "trainer-0", "VGPU_CONTAINER_NAME": "main"}
    with Place() as place, place.program("--memory", "2g", "--cores", "30", environment=names) as program:
        program.got(100)
        said = look(place.region)
        device, slot = said["devices"][0], said["slots"][0]
        equal((said["region"], said["head"]["version"], said["head"]["device_count"]), (1, 4, 1))
        equal((device["memory_limit"], device["core_limit"], device["memory_closed"]), (2 << 30, 30, False))
        equal((slot["slot"], slot["state"], slot["pid"]), (0, "live", child_of(program)))
        true(slot["usage"][0]["buffer"] >= 100 << 20, slot)
        equal((said["identity"]["pod"], said["identity"]["container"], said["hami"]["utilization_switch"]),
              ("trainer-0", "main", 1))
        text = region(place.region).stdout
        for words in (device["uuid"], "2.0GiB", f"process {child_of(program)}", "trainer-0", "limit 30 %"):
            true(words in text, f"no {words!r} in {text}")


@test
def lives():
    """a region in which programs live and work is sound"""
    with Place() as place, place.program("--memory", "2g", "--cores", "30") as first, \
            place.program("--memory", "2g") as second:
        for _ in range(5):
            first.got(10)
            second.got(10)
            sound(place.region)
        equal(look(place.region, "--repair")["findings"], [])


# Offset, bytes, the finding's place, and what a repair leaves (None: whatever it takes).
NONSENSE = (
    (OFFSET + 32, struct.pack("<I", 65), "head", struct.pack("<I", 1)),            # device_count
    (OFFSET + 36, struct.pack("<I", 2**32 - 1), "head", struct.pack("<I", 1)),     # slot_high
    (OFFSET + 56, struct.pack("<I", 101), "head", struct.pack("<I", 0)),           # default_core_limit
    (OFFSET + 60, struct.pack("<I", 9), "head", struct.pack("<I", 1)),             # defaults_set
    (OFFSET + 68, struct.pack("<I", 2), "head", struct.pack("<I", 1)),             # paused
    (OFFSET + 76, struct.pack("<I", 3), "head", struct.pack("<I", 0)),             # priority_set
    (OFFSET + 80, FAR, "head", bytes(8)),                                          # window_closed_ns
    (OFFSET + 88, FAR, "head", bytes(8)),                                          # window_until_ns
    (OFFSET + 104, FAR, "head", bytes(8)),                                         # coupled_ns
    (OFFSET + 112, FAR, "head", bytes(8)),                                         # ready_asked_ns
    (OFFSET + 96, struct.pack("<I", 1000), "head", struct.pack("<I", 0)),          # default_core_soft_limit
    (DEVICES + 72, struct.pack("<I", 101), "device 0", struct.pack("<I", 0)),      # core_limit
    (DEVICES + 76, struct.pack("<I", 101), "device 0", struct.pack("<I", 0)),      # core_soft_limit
    (DEVICES + 88, struct.pack("<Q", 1 << 60), "device 0", bytes(8)),              # orphaned
    (COMPUTE + 8, struct.pack("<Q", 1 << 62), "device 0", None),                   # charged_ns
    (COMPUTE + 16, FAR, "device 0", bytes(8)),                                     # refilled_ns
    (HISTORY + 16 + 16 * 5, FAR, "device 0", bytes(8)),                            # a mark's time
    (IDENTITY, struct.pack("<Q", 3), "identity", bytes(8)),
    (IDENTITY, struct.pack("<Q", 2) + b"x" * 448, "identity", bytes(8)),           # texts without an end
    (0, struct.pack("<i", 1), "HAMi's words", struct.pack("<i", 19920718)),        # HAMi's magic number
    (4, struct.pack("<II", 9, 9), "HAMi's words", struct.pack("<II", 1, 2)),       # its version
    (56, struct.pack("<Q", 17), "HAMi's words", struct.pack("<Q", 1)),             # its device_count
    (56, bytes(8), "HAMi's words", struct.pack("<Q", 1)),
    (64, b"GPU-another\33\n" + bytes(35), "HAMi's words", None),                   # a uuid there
    (64, b"x" * 96, "HAMi's words", None),
    (2008900, struct.pack("<i", 7), "HAMi's words", struct.pack("<i", 1)),         # utilization_switch
    (SLOTS + 5 * SLOT_BYTES, struct.pack("<Q", 3), "slot 5", bytes(8)),            # no state
)


@test
def nonsense():
    """each value that cannot be is found, and set back by a repair while a program lives, which goes on"""
    with Place() as place, place.program("--memory", "1g") as program:
        program.got(10)
        for offset, data, where, after in NONSENSE:
            before = read(place.region, offset, len(data))
            write(place.region, offset, data)
            found = look(place.region, "--check", status=1)
            true(where in [finding["where"] for finding in found["findings"]], f"{offset}: {found}")
            done = region("--check", place.region)
            equal((done.returncode, done.stdout.count("\n")), (1, len(found["findings"])), done.stdout)
            equal(read(place.region, offset, len(data)), data, f"{offset}: a check that writes")
            said = look(place.region, "--repair")
            true(said["sound"] and all(finding["mended"] for finding in said["findings"]), f"{offset}: {said}")
            if "HAMi" in where and after is None:
                equal(read(place.region, offset, len(data)), before, f"{offset}: after the repair")
            if after is not None:
                equal(read(place.region, offset, len(after)), after, f"{offset}: after the repair")
            sound(place.region)
            write(place.region, offset, before)
        program.got(10)
        program.refused(2000)


@test
def dead():
    """the slot of a killed process is found and freed by a repair, and that of a living one stays"""
    with Place() as place, place.program("--memory", "2g") as living, \
            place.program("--memory", "2g", before=("setsid",)) as victim:
        living.got(100)
        victim.got(100)
        slots = {slot["pid"]: slot["slot"] for slot in look(place.region)["slots"]}
        at = SLOTS + slots[child_of(victim)] * SLOT_BYTES
        kept, own = read(place.region, at, SLOT_BYTES), word(place.region, SLOTS)
        os.kill(child_of(victim), signal.SIGKILL)
        victim.process.wait(timeout=20)
        write(place.region, at, kept)
        said = look(place.region, "--check")
        found = said["findings"]
        equal([finding["where"] for finding in found], [f"slot {slots[struct.unpack('<I', kept[:4])[0] >> 2]}"])
        true("dead" in found[0]["text"] and found[0]["usual"] and said["sound"], said)
        equal(look(place.region, "--repair")["sound"], True)
        equal(word(place.region, at) & 3, 0, "the slot's state")
        true(own == word(place.region, SLOTS) or at == SLOTS, "the other's slot")
        sound(place.region)
        living.got(100)


@test
def claimed():
    """a slot that is being claimed is left where an open file holds its lock, and freed where its claimer is gone"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        at, gone = SLOTS + 9 * SLOT_BYTES, 1 << 32 | 4194303 << 2 | 1
        write(place.region, at, struct.pack("<Q", gone))
        with open(place.region, "r+b") as held:
            fcntl.fcntl(held, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0))
            sound(place.region)
            write(place.region, at, struct.pack("<Q", gone | 3))  # no state
            said = look(place.region, "--repair", status=1)
            equal((word(place.region, at), said["findings"][0]["mended"]), (gone | 3, False))
            write(place.region, at, struct.pack("<Q", gone))
        equal(look(place.region, "--check", status=1)["findings"][0]["where"], "slot 9")
        equal(look(place.region, "--repair")["sound"], True)
        equal(word(place.region, at) & 3, 0)


@test
def left():
    """what only a living process can put right is left and said, with status 1"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        write(place.region, SLOTS + 128 + 64 * 8 + 8 * 1, struct.pack("<Q", 0))
        write(place.region, SLOTS + 128 + 128 + 24, struct.pack("<Q", 1 << 60))  # imported, of device 1
        said = look(place.region, "--repair", status=1)
        equal((said["sound"], said["findings"][0]["where"], said["findings"][0]["mended"]),
              (False, "slot 0, device 1", False))
        true("left: " in region("--repair", place.region).stdout, "the words")


@test
def foreign():
    """what is no region, or one of another version, is refused and left as it is"""
    with Place() as place:
        with place.program("--memory", "2g") as program:
            program.got(1)
        cases = [("text", b"not yours\n", None), ("empty", b"", None), ("hole", b"", FILE_BYTES)]
        for name, data, size in cases:
            with open(f"{place.directory}/{name}", "wb") as file:
                file.write(data)
                file.truncate(size or len(data))
        for name, offset, value in (("version", 8, 3), ("order", 12, 1), ("slots", 28, 16)):
            shutil.copyfile(place.region, f"{place.directory}/{name}")
            write(f"{place.directory}/{name}", OFFSET + offset, struct.pack("<I", value))
        shutil.copyfile(place.region, f"{place.directory}/short")
        os.truncate(f"{place.directory}/short", OFFSET + 9000)
        for name in ("text", "empty", "hole", "version", "order", "slots", "short"):
            path = f"{place.directory}/{name}"
            before = read(path, 0, FILE_BYTES)
            refused_line(region(path), 1, path)
            for way in ("--check", "--repair"):
                done = region(way, path)
                equal((done.returncode, done.stderr, done.stdout.count("\n")), (1, "", 1), f"{way} {name}")
                equal(look(path, way, status=1)["sound"], False)
            equal(read(path, 0, FILE_BYTES) == before, True, f"{name}: was written")
        os.mkfifo(f"{place.directory}/pipe")
        for path, words in ((f"{place.directory}/pipe", "region"), (place.directory, "directory"), ("/dev/zero", "region"),
                            (f"{place.directory}/nothing", "No such file")):
            refused_line(region("--check", path), 1, path, words)


@test
def rights():
    """another user may look where the file may be read, and may not repair"""
    need_nobody("/usr/bin/python3")
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        write(place.region, OFFSET + 68, struct.pack("<I", 2))
        equal(region("--check", place.region, user=NOBODY).returncode, 1)
        refused_line(region("--repair", place.region, user=NOBODY), 1, place.region, "owner and root")
        equal(read(place.region, OFFSET + 68, 4), struct.pack("<I", 2))
        os.chmod(place.region, 0o600)
        refused_line(region(place.region, user=NOBODY), 1, place.region, "ermission")
        write(place.region, OFFSET + 68, struct.pack("<I", 0))


@test
def hostile():
    """whatever is in a region, it is shown, checked and repaired, and then has nothing left that could be mended"""
    seed = random.randrange(1 << 32)
    choice = random.Random(seed)
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        path = place.directory + "/copy"
        for i in range(30):
            shutil.copyfile(place.region, path)
            for _ in range(choice.randrange(1, 40)):
                start, size = choice.choice([(OFFSET + 32, 224), (DEVICES, 8 * DEVICE_BYTES), (SLOTS, 4 * SLOT_BYTES),
                                             (2008896, 64), (COMPUTE, 200), (HISTORY, 2048), (IDENTITY, 512)])
                data = choice.choice([b"\xff" * 8, b"\0" * 8, b"\33[2J\n\r\t\x80", choice.randbytes(16),
                                      struct.pack("<Q", os.getpid() << 2 | 2), struct.pack("<Q", 1 << 2 | 1)])
                write(path, start + choice.randrange(size) // 8 * 8, data)
            for way in ((), ("--check",), ("--repair",), ("--check",)):
                what = f"seed {seed}, file {i}, {way}"
                done = region("--json", *way, path)
                true(done.returncode in (0, 1), f"{what}: {done.returncode} {done.stderr!r}")
                said = json.loads(done.stdout)
                text = region(*way, path)
                true(text.returncode in (0, 1) and "\33" not in text.stdout, f"{what}: {text.returncode}")
            left_over = [finding for finding in said["findings"] if finding["mendable"]
                         and "slot_high" not in finding["text"]]
            true(len(left_over) <= 2, f"seed {seed}, file {i}: {left_over}")


@test
def refused():
    """arguments that cannot be meant are one line and status 2"""
    for arguments, words in (((), ("no file",)), (("a", "b"), ("b", "too many")), (("--bogus", "a"), ("--bogus",)),
                             (("--check", "--repair", "a"), ("exclude",)), (("",), ("path",)),
                             (("a", "--json=1"), ("takes no value",))):
        refused_line(region(*arguments), 2, *words)


@test
def of_hami():
    """a region that HAMi-core left is called so, and a program makes it ours"""
    with Place() as place:
        with open(place.region, "wb") as file:
            file.write(struct.pack("<iii", 19920718, 1, 2))
            file.truncate(2008952)
        refused_line(region(place.region), 1, "it is a region of HAMi-core's")
        said = region("--check", place.region)
        equal((said.returncode, said.stderr), (1, ""))
        true("makes it ours" in said.stdout, said.stdout)
        with place.program("--memory", "2g") as program:
            program.got(1)
            equal(look(place.region, "--check")["findings"], [])


tap.main()
