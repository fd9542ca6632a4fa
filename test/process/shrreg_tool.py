# SPDX-License-Identifier: Apache-2.0
"""shrreg_tool BUILD: HAMi-core's tool, with all of its options, on containers that run and on none."""
import os
import re
import struct
import subprocess
import time

import tap
from tap import equal, test, true

from mine import BUILD
from place import (DEVICES, FILE_BYTES, NOBODY, OFFSET, VARIABLE, Place, child_of, need_nobody, read,
                   refused_line, tool)

SHRREG = os.path.join(BUILD, "shrreg-tool")
MEMORY, CORES = "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT"


def shrreg(place, *arguments, **more):
    """What it said, without a word on stderr."""
    done = tool(SHRREG, "--region", place.region, *arguments, **more)
    equal((done.returncode, done.stderr), (0, ""), " ".join(arguments))
    return done.stdout


def create(place, status=0, **environment):
    done = tool(SHRREG, "--create_new", environment={VARIABLE: place.region, **environment})
    equal(done.returncode, status, done.stderr)
    return done


def paused(place):
    return struct.unpack("I", read(place.region, OFFSET + 68, 4))[0]


def works(place):
    """Whether the device is kept busy by the container, looked at for a while."""
    def busy():
        return struct.unpack("Q", read(place.region, OFFSET + 8528128 + 24, 8))[0]
    before = busy()
    time.sleep(0.3)
    return busy() > before


def until(condition, what):
    end = time.monotonic() + 60
    while not condition():
        true(time.monotonic() < end, f"not: {what}")


@test
def words():
    """--help names each option, --version says ours and HAMi's"""
    said = tool(SHRREG, "--help").stdout
    for word in ("--create_new", "--print", "--suspend", "--resume", "--set-sm-limit", "--version"):
        true(word in said, f"no {word} in {said}")
    true(re.fullmatch(r"shrreg-tool \d+\.\d+\.\d+\nshrreg size: 2008952, version 1\.2\n",
                      tool(SHRREG, "--version").stdout), "--version")


@test
def refused():
    """what is not understood is one line and status 2, and nothing before or behind it is done"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        for arguments in (["--set-sm-limit"], ["--set-sm-limit", "0"], ["--set-sm-limit", "0", "101"],
                          ["--set-sm-limit", "x", "20"], ["--set-sm-limit", "0", "20", "30"],
                          ["--print", "all"], ["--nonsense"], ["--suspend", "--nonsense"],
                          ["--suspend", "--set-sm-limit", "0", "half"], ["--suspend", "now"]):
            refused_line(tool(SHRREG, *arguments, environment={VARIABLE: place.region}), 2, "shrreg-tool: ")
        equal(paused(place), 0, "paused")
    equal(tool(SHRREG).returncode, 2, "no option")
    for arguments in (["--region"], ["--print", "--region", "/no/such/file"], ["--print", "--region=/no/such/file"]):
        refused_line(tool(SHRREG, *arguments), 2, "--region", "before all other options")
    for word in ("--print", "--suspend", "--resume"):
        refused_line(tool(SHRREG, "--region", "/no/such/file", word), 1, "No such file")


@test
def prints():
    """--print shows each device's limits, and what each process holds of it by kind"""
    with Place() as place, place.program("--memory", "4g", "--cores", "40", sim="2xh200") as program, \
            place.program("--memory", "4g", "--cores", "40", sim="2xh200") as other:
        program.got(1000, 0)
        program.got(2048, 1)
        other.got(100, 0)
        said = shrreg(place, "--print")
        true(re.search(r"^device 0, GPU-\S+: memory 4\.0 GiB, cores 40 %; \d\.\d GiB in use$", said, re.M), said)
        for pid, device, size in ((child_of(program), 0, r"1000 MiB"), (child_of(program), 1, r"2\.0 GiB"),
                                  (child_of(other), 0, r"100 MiB")):
            true(re.search(rf"^process {pid} \(python3\S*\), device {device}: .* in use: contexts \d+ MiB, "
                           rf"(modules \d+ MiB, )?allocations {size}", said, re.M), f"{pid}, {device}: {said}")
        equal(len(re.findall(r"^process ", said, re.M)), 3, said)
    said = shrreg(place, "--print") if os.path.exists(place.region) else ""
    true("process " not in said, said)


@test
def nobody_left():
    """a process that was killed is not printed"""
    with Place() as place, place.program("--memory", "4g") as program:
        program.got(1)
        with place.program("--memory", "4g") as other:
            other.got(100)
            gone = child_of(other)
            os.kill(gone, 9)
            other.process.wait(timeout=20)
        said = shrreg(place, "--print")
        true(f"process {gone} " not in said and f"process {child_of(program)} " in said, said)


@test
def suspends():
    """--suspend and --resume are vgpu's pause and resume, and --print says which holds"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        true("paused: its programs wait" in shrreg(place, "--suspend"), "--suspend")
        equal(paused(place), 1, "paused")
        true("\npaused: " in shrreg(place, "--print"), "--print")
        true("paused already" in shrreg(place, "--suspend"), "again")
        true("\nresumed\n" in shrreg(place, "--resume"), "--resume")
        equal(paused(place), 0, "paused")
        true("it was not paused" in shrreg(place, "--resume"), "again")


@test
def waits():
    """what a suspended container launches waits until it is resumed"""
    with Place() as place:
        load = [f"{BUILD}/vgpu", "run", f"--sim=h200,machine={place.directory}/machine", "--region",
                place.region, "--memory", "4g", "--cores", "80", "--", f"{BUILD}/test_runtime_launch"]
        with subprocess.Popen(load, stdout=subprocess.PIPE, text=True) as program:
            try:
                true("work" in program.stdout.readline(), "no report")
                shrreg(place, "--suspend")
                until(lambda: not works(place), "it waits")
                shrreg(place, "--resume")
                until(lambda: works(place), "it works again")
            finally:
                program.terminate()
                program.stdout.read()


@test
def in_order():
    """several options are done in their order, up to the first that fails"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        said = shrreg(place, "--set-sm-limit", "0", "20", "--suspend", "--print")
        true("cores 20 %" in said and said.rindex("\npaused: ") > said.index("resume'"), said)
        done = tool(SHRREG, "--region", place.region, "--resume", "--set-sm-limit", "7", "20", "--suspend")
        equal(done.returncode, 1, done.stderr)
        equal(paused(place), 0, "paused")


@test
def makes():
    """--create_new makes a region with the limits of the environment, which a program then has"""
    with Place() as place:
        equal(create(place, **{MEMORY: "2g", CORES: "30"}).stdout,
              f"region {place.region} made, with the limits of the environment\n")
        equal(os.stat(place.region).st_size, FILE_BYTES, "size")
        true("all devices: memory 2.0 GiB, cores 30 %" in shrreg(place, "--print"), "--print")
        with place.program() as program:
            program.got(1)
            program.refused(2000)
    with Place() as place:
        create(place, **{f"{MEMORY}_1": "1g", MEMORY: "2g"})
        with place.program(environment={f"{MEMORY}_1": "1g", MEMORY: "2g"}, sim="2xh200") as program:
            program.got(1000, 0)
            program.refused(1000, 1)


@test
def no_directory():
    """--create_new makes no directory: it refuses, naming the one that is missing"""
    with Place() as place:
        name = f"{place.directory}/none/deep/x"
        for done in (tool(SHRREG, "--region", name, "--create_new"),
                     tool(SHRREG, "--create_new", environment={VARIABLE: name})):
            refused_line(done, 1, f"there is no directory {place.directory}/none/deep;")
        true(not os.path.exists(f"{place.directory}/none"), "a directory was made")


@test
def little_memory():
    """--create_new tells of a memory limit that no context fits into"""
    with Place() as place:
        said = create(place, **{MEMORY: "2", f"{MEMORY}_1": "300m", f"{MEMORY}_2": "4g"}).stderr.splitlines()
        equal([re.search("limit of (.*) is less", line)[1] for line in said], ["2 bytes", "300 MiB"], "lines")


@test
def nobody_to_suspend():
    """--suspend where no process lives changes nothing and says so, with HAMi-core's exit status"""
    with Place() as place:
        create(place)
        done = tool(SHRREG, "--region", place.region, "--suspend")
        refused_line(done, 0, place.region, "there is nothing to pause")
        equal(paused(place), 0, "the word")


@test
def makes_anew():
    """where nobody lives --create_new forgets what was set, in the same file"""
    with Place() as place:
        with place.program("--memory", "4g", "--cores", "50") as program:
            program.got(1)
            shrreg(place, "--set-sm-limit", "0", "20", "--suspend")
        equal(paused(place), 1, "the word")
        before = os.stat(place.region)
        true("made anew: what it held is forgotten" in create(place, **{MEMORY: "1g"}).stdout, "what it said")
        after = os.stat(place.region)
        equal((after.st_ino, after.st_size), (before.st_ino, before.st_size), "the file")
        equal((paused(place), read(place.region, DEVICES, 48)), (0, bytes(48)), "pause and device")
        said = shrreg(place, "--print")
        true("all devices: memory 1.0 GiB, cores no limit" in said and "\ndevice" not in said, said)
        with place.program("--memory", "1g") as program:
            program.got(1)
            program.refused(1000)


@test
def lives():
    """--create_new leaves a region alone in which a process lives"""
    with Place() as place, place.program("--memory", "4g") as program:
        program.got(1000)
        before = read(place.region, OFFSET, FILE_BYTES)
        done = create(place, 1, **{MEMORY: "1g"})
        refused_line(done, 1, place.region, "processes of the container live in it")
        true(read(place.region, OFFSET, 64) == before[:64], "it was changed")
        program.got(1500)
        os.kill(child_of(program), 9)
        program.process.wait(timeout=20)
        true("anew" in create(place).stdout, "after its end")


@test
def races():
    """programs that start while it is made anew again and again lose no limit"""
    with Place() as place:
        for turn in range(10):
            command = [SHRREG, "--region", place.region, "--create_new"]
            with subprocess.Popen(["sh", "-c", 'for i in $(seq 20); do "$@" >/dev/null 2>&1; done', "sh", *command],
                                  env={**os.environ, MEMORY: "2g"}) as maker:
                with place.program("--memory", "2g") as program:
                    program.got(1)
                    program.refused(2000)
                maker.wait()
            equal(maker.returncode in (0, 1), True, f"turn {turn}")


@test
def others():
    """what is no region is refused in one line and left; HAMi-core's own, or an empty file, becomes one"""
    with Place() as place:
        for content, size in ((b"text\n", 0), (b"x", 100)):
            with open(place.region, "wb") as file:
                file.write(content)
                file.truncate(size or len(content))
            before = read(place.region, 0, FILE_BYTES + 1)
            refused_line(create(place, 1), 1, place.region, "something else lies there")
            true(read(place.region, 0, FILE_BYTES + 1) == before, "it was changed")
        for size in (0, 2008952):
            with open(place.region, "wb") as file:
                file.truncate(size)
            true("made" in create(place).stdout, "made")
            equal(os.stat(place.region).st_size, FILE_BYTES, "size")


@test
def bad_environment():
    """a limit that is not understood makes no region: one line, status 2"""
    with Place() as place:
        for name, value in ((MEMORY, "much"), (f"{MEMORY}_1", "2gg"), (CORES, "half"), (f"{MEMORY}_64", "1g")):
            done = create(place, 2, **{name: value})
            true(done.stderr.count("\n") == 1 and name in done.stderr and "accepted: " in done.stderr, done.stderr)
            true(not os.path.exists(place.region), "it was made")
        refused_line(tool(SHRREG, "--region", "", "--create_new"), 2, "accepted")


@test
def other_user():
    """another user's region is not made anew, root may do so with each"""
    need_nobody(SHRREG)
    with Place() as place:
        create(place, **{MEMORY: "2g"})
        done = tool(SHRREG, "--create_new", environment={VARIABLE: place.region}, user=NOBODY)
        refused_line(done, 1, "only its file's owner and root may")
        os.chown(place.region, NOBODY, NOBODY)
        create(place)


@test
def bounded():
    """all of them answer at once, also on a container that waits"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        shrreg(place, "--suspend")
        start = time.monotonic()
        shrreg(place, "--print", "--set-sm-limit", "0", "50", "--resume")
        true(time.monotonic() - start < 20, "slow")


tap.main()
