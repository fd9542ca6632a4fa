# SPDX-License-Identifier: Apache-2.0
"""release BUILD: what `vgpu pause --release`, `vgpu resume` and `vgpu ps` say of a container whose memory moves."""
import json
import os
import signal
import struct
import subprocess
import time

import tap
from tap import equal, test, true

from mine import BUILD, VGPU
from place import OFFSET, Place, child_of, read, refused_line, tool

ON = ("--memory", "8g", "--oversubscribe")


def order(place, command, *options, status=0):
    done = tool(VGPU, command, *options, "--region", place.region)
    equal((done.returncode, done.stderr), (status, ""), f"{command} {options}: {done.stdout}")
    return done.stdout


def container(place):
    return json.loads(order(place, "ps", "--json"))["containers"][0]


def spilled(place):
    return container(place)["devices"][0]["memory"]["spilled"] >> 20


def ready_bytes(place):
    """What each slot has ready, by docs/region.md; no process has ended yet."""
    return [struct.unpack("<Q", read(place.region, OFFSET + 8448 + slot * 8320 + 96, 8))[0] for slot in range(4)]


def no_memory(place):
    """The environment of a tool on a machine that has no memory left."""
    meminfo = place.directory + "/meminfo"
    with open(meminfo, "w") as file:
        file.write("MemTotal: 67108864 kB\nMemFree: 0 kB\nMemAvailable: 0 kB\n")
    return {"LD_PRELOAD": f"{BUILD}/test/hook/libtest-meminfo.so", "VGPU_TEST_MEMINFO": meminfo}


@test
def moves():
    """--release moves what can be moved, the answer and `vgpu ps` tell it, and a resume brings it back"""
    with Place() as place, place.program(*ON) as program:
        program.got(300)
        said = order(place, "pause", "--release")
        for words in ("paused: its programs wait", "released: 300MiB in host memory", "contexts"):
            true(words in said, f"no {words!r} in {said}")
        seen = container(place)
        equal((seen["paused"], seen["released"], spilled(place)), (True, True, 300), seen)
        process = seen["processes"][0]
        equal((process["release"], process["released"] >> 20), ("released", 300), process)
        table = order(place, "ps")
        true(",released" in table, table)
        said = order(place, "resume")
        true("resumed" in said and "300MiB came back from host memory" in said, said)
        seen = container(place)
        equal((seen["paused"], seen["released"], spilled(place)), (False, False, 0), seen)
        equal(seen["processes"][0]["release"], None, seen)
        program.got(100)


@test
def as_json():
    """the JSON of both commands has what was released and what stays"""
    with Place() as place, place.program(*ON) as program:
        program.got(200)
        said = json.loads(order(place, "pause", "--release", "--json"))
        release = said["release"]
        equal((release["released"] >> 20, release["movable"], release["moved"]), (200, 0, 1), said)
        true(release["context"] > 0 and said["paused"], said)
        said = json.loads(order(place, "resume", "--json"))
        equal((said["release"]["released"], said["release"]["movable"] >> 20), (0, 200), said)


@test
def again():
    """a second --release moves what came since, and a pause that was in force stays one"""
    with Place() as place, place.program(*ON) as program:
        program.got(100)
        order(place, "pause")
        true("released: 100MiB" in order(place, "pause", "--release"), "of a paused container")
        true(container(place)["paused"], "paused")
        program.got(50)
        true("released: 150MiB" in order(place, "pause", "--release"), "again")
        order(place, "resume")
        equal(spilled(place), 0)


@test
def on_demand():
    """--on-demand does not pause, and a resume brings the memory back as well"""
    with Place() as place, place.program(*ON) as program:
        program.got(100)
        said = order(place, "pause", "--release", "--on-demand")
        true("not paused" in said and "released: 100MiB" in said, said)
        seen = container(place)
        equal((seen["paused"], spilled(place)), (False, 100), seen)
        true("100MiB came back" in order(place, "resume"), "resume")
        equal(spilled(place), 0)


@test
def works_on():
    """of a program that works on, --on-demand says that its memory went and is back"""
    with Place() as place:
        program = subprocess.Popen(
            [VGPU, "run", "--region", place.region, f"--sim=1xh200,machine={place.directory}/machine", *ON, "--",
             f"{BUILD}/vgpu-load", "--shape", "copies", "--copy-size", "64MiB", "--seconds", "0"],
            stdout=subprocess.DEVNULL, env=dict(os.environ, VGPU_IDLE_RELEASE="0"))
        try:
            end, said = time.monotonic() + 60, ""
            while "has it back: it works" not in said and time.monotonic() < end:
                time.sleep(0.1)
                said = tool(VGPU, "pause", "--release", "--on-demand", "--region", place.region).stdout
            true("1 process had its memory moved and has it back: it works" in said, said)
        finally:
            program.terminate()
            program.wait(60)


@test
def not_movable():
    """of a container without oversubscription one line says that nothing can be moved, and it is paused"""
    with Place() as place, place.program("--memory", "8g") as program:
        program.got(100)
        said = order(place, "pause", "--release")
        true("nothing released: none of its memory can be moved" in said and "paused" in said, said)
        true(container(place)["paused"], "it is paused")
        true("resumed" in order(place, "resume"), "resumed")


@test
def no_room():
    """where host memory is short it is refused, with what lacks, and nothing is changed"""
    with Place() as place, place.program(*ON, environment={"VGPU_HOST_POOL": "100m"}) as program:
        program.got(300)
        done = tool(VGPU, "pause", "--release", "--region", place.region)
        refused_line(done, 1, "host memory is short", "200MiB")
        seen = container(place)
        equal((seen["paused"], seen["released"], spilled(place)), (False, False, 0), seen)
        program.got(10)


@test
def ready():
    """where the machine's memory is short, what host memory is ready for is released"""
    with Place() as place, place.program(*ON, environment={"VGPU_HOST_POOL_READY": "300m"}) as program:
        program.got(200)
        end = time.monotonic() + 60
        while sum(ready_bytes(place)) < 200 << 20 and time.monotonic() < end:
            time.sleep(0.05)
        done = tool(VGPU, "pause", "--release", "--region", place.region, environment=no_memory(place))
        equal((done.returncode, done.stderr), (0, ""), done.stdout)
        true("released: 200MiB" in done.stdout, done.stdout)
        order(place, "resume")


@test
def not_ready():
    """where the machine's memory is short and none is ready, it is refused"""
    with Place() as place, place.program(*ON) as program:
        program.got(200)
        done = tool(VGPU, "pause", "--release", "--region", place.region, environment=no_memory(place))
        refused_line(done, 1, "host memory is short", "200MiB")
        equal(spilled(place), 0)


@test
def stopped():
    """a process that is stopped does not answer: it is said, and a later resume finds all as it was"""
    with Place() as place, place.program(*ON) as program:
        program.got(100)
        pid = child_of(program)
        os.kill(pid, signal.SIGSTOP)
        said = order(place, "pause", "--release")
        true("1 process did not answer" in said, said)
        os.kill(pid, signal.SIGCONT)
        order(place, "resume")
        end = time.monotonic() + 20
        while spilled(place) and time.monotonic() < end:
            time.sleep(0.05)
        equal(spilled(place), 0)
        program.got(10)


@test
def arguments():
    """--on-demand without --release is refused"""
    done = tool(VGPU, "pause", "--on-demand")
    refused_line(done, 2, "--on-demand goes with --release")


tap.main()
