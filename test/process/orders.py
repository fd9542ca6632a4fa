# SPDX-License-Identifier: Apache-2.0
"""orders BUILD: `vgpu pause`, `vgpu resume`, soft limits and priorities, as the region's words say.
What becomes of running programs: pause.py."""
import contextlib
import os
import re
import signal
import struct
import subprocess
import time

import tap
from tap import equal, test, true

from mine import MINE, VGPU
from place import (DEVICE_BYTES, DEVICES, NOBODY, OFFSET, VARIABLE, Place, child_of, need_nobody, read,
                   refused_line, tool)

SWITCH, RECENT_KERNEL, HAMI_PRIORITY = 2008900, 2008904, 2008908  # HAMi's layout
BY_ENVIRONMENT, LIVE = 1, 2


def vgpu(command, *arguments, **more):
    return tool(VGPU, command, *arguments, **more)


def done(command, place, *arguments, **more):
    """What a command that succeeds says, without the line that names the region."""
    answer = vgpu(command, "--region", place.region, *arguments, **more)
    equal((answer.returncode, answer.stderr), (0, ""), f"{command} {arguments}")
    true(answer.stdout.startswith(f"region {place.region} (named by --region)\n"), answer.stdout)
    return answer.stdout.splitlines()[1:]


def of(program):
    """The line by which an order says whom it reaches."""
    pid = child_of(program)
    return f"1 process: {pid} ({read(f'/proc/{pid}/comm', 0, 64).decode().strip()})"


def word(place, offset, form="I"):
    return struct.unpack(form, read(place.region, offset, struct.calcsize(form)))[0]


def epoch(place):
    return word(place, OFFSET + 64)


def paused(place):
    return word(place, OFFSET + 68)


def priority(place):
    """The priority and who set it; HAMi's monitor reads the same."""
    level, by = struct.unpack("II", read(place.region, OFFSET + 72, 8))
    equal(word(place, HAMI_PRIORITY, "i"), level if by else 1, "HAMi's word")
    return level, by


def cores(place, device=0):
    """The compute limit and the soft limit."""
    return struct.unpack("II", read(place.region, DEVICES + device * DEVICE_BYTES + 72, 8))


def limit(place):
    """The memory limit for devices that were not met yet."""
    return word(place, OFFSET + 48, "Q")


def write(place, offset, value, form="i"):
    with open(place.region, "r+b") as file:
        file.seek(offset)
        file.write(struct.pack(form, value))


WAITS = "its programs wait until 'vgpu resume'"


@test
def pause_and_resume():
    """a pause and a resume are in the region, each raises the epoch, and each may be said twice"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        equal(paused(place), 0, "the word at the start")
        for command, said, kept in (("pause", [f"paused: {WAITS}", of(program)], 1),
                                    ("pause", [f"paused already: {WAITS}", of(program)], 1),
                                    ("resume", ["resumed", of(program)], 0), ("resume", ["it was not paused"], 0)):
            before = epoch(place)
            equal(done(command, place), said, command)
            equal(paused(place), kept, f"the word after {command}")
            true(epoch(place) != before, f"{command} raises no epoch")
        program.got(1)


@test
def choosing():
    """a container is named by a process of it or by the environment as well"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        answer = vgpu("pause", "--pid", str(child_of(program)))
        true(f"region {place.region} (of process " in answer.stdout, answer.stdout)
        equal(paused(place), 1, "the word")
        answer = vgpu("resume", environment={VARIABLE: place.region})
        equal(answer.stdout, f"region {place.region} (named by {VARIABLE})\nresumed\n{of(program)}\n")
        equal(paused(place), 0, "the word")


@test
def shown():
    """`vgpu set` shows a pause, a hold by HAMi's monitor and a priority; a resume says what holds still"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        true(not any(line.startswith(("paused", "HAMi", "priority"))
                     for line in done("set", place, "--cores", "30")), "nothing to show is shown")
        done("pause", place)
        write(place, RECENT_KERNEL, -1)
        equal(done("set", place, "--priority", "0")[:3],
              [f"paused: {WAITS}", "HAMi's monitor has it wait", "priority 0"], "the lines")
        equal(done("resume", place), ["resumed", of(program), "HAMi's monitor has it wait all the same"], "resume")
        write(place, RECENT_KERNEL, 3)
        equal(done("set", place, "--priority", "4")[0], "priority 4", "the line")


@test
def tool_killed():
    """a container that a killed tool paused is resumed by another process, also with the lock held"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        command = f"'{VGPU}' pause --region '{place.region}' && kill -KILL $$"
        ended = subprocess.run(["sh", "-c", command], env=MINE, stdout=subprocess.DEVNULL, check=False)
        equal((ended.returncode, paused(place)), (-signal.SIGKILL, 1), "the end and the word")
        done("resume", place)
        equal(paused(place), 0, "the word")


@test
def nobody():
    """where no process lives a pause is refused, whatever names the region, and changes nothing"""
    with Place() as place:
        with place.program("--memory", "2g") as program:
            program.got(1)
        named = {VARIABLE: place.region}
        for answer in (vgpu("pause", "--region", place.region), vgpu("pause", environment=named),
                       vgpu("pause", "--json", environment=named)):
            refused_line(answer, 1, place.region, "there is nothing to pause", "nothing is changed")
            true("since before" not in answer.stderr, answer.stderr)
        equal(paused(place), 0, "the word")
        with place.program("--memory", "2g") as program:
            program.got(1)
            done("pause", place)
        refused_line(vgpu("pause", "--region", place.region), 1, "It is paused since before")
        equal(done("resume", place), ["resumed"], "a resume")


@test
def many():
    """a pause names all processes that it reaches"""
    with Place() as place, contextlib.ExitStack() as stack:
        programs = [stack.enter_context(place.program("--memory", "8g")) for _ in range(3)]
        for program in programs:
            program.got(1)
        said = done("pause", place)[1]
        true(said.startswith("3 processes: "), said)
        equal(sorted(map(int, re.findall(r"(\d+) \(", said))), sorted(map(child_of, programs)), "processes")


@test
def later_programs():
    """a pause outlives the container's programs, and holds for those that come later"""
    with Place() as place:
        with place.program("--memory", "2g") as program:
            program.got(1)
            done("pause", place)
        with place.program("--memory", "3g") as program:
            program.ask(1)
            end = time.monotonic() + 20
            while limit(place) != 3 << 30:
                true(time.monotonic() < end, "the container does not start again")
                time.sleep(0.01)
            equal(paused(place), 1, "the word of a container that starts again")
            done("resume", place)
            equal(program.answer(), 0, "the allocation")


@test
def another_file():
    """a pause holds in the file that takes another's place"""
    with Place() as place, place.program("--memory", "2g", "--priority", "4") as program:
        program.got(1)
        done("pause", place)
        program.got(1)
        os.unlink(place.region)
        end = time.monotonic() + 20
        while not os.path.exists(place.region) or not priority(place)[1]:
            true(time.monotonic() < end, "the region is not made anew")
            program.got(1)
            time.sleep(0.01)
        equal((paused(place), priority(place)), (1, (4, BY_ENVIRONMENT)), "the words")


@test
def other_user():
    """only the file's owner and root may pause and resume"""
    need_nobody(VGPU)
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        refused_line(vgpu("pause", "--region", place.region, user=NOBODY), 1, "owner and root")
        equal(paused(place), 0, "the word")
        done("pause", place)
        refused_line(vgpu("resume", "--region", place.region, user=NOBODY), 1, "owner and root")
        equal(paused(place), 1, "the word")
        os.chown(place.region, NOBODY, NOBODY)
        done("resume", place, user=NOBODY)
        equal(paused(place), 0, "the word")


@test
def bad_orders():
    """an argument that is not understood, and no region, is one line each, and nothing is paused"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        for command in ("pause", "resume"):
            for arguments, said in ((["now"], '"now"'), (["--device", "0"], "is not an option"),
                                    (["--pid"], "needs a value"), (["--pid", "x"], '"x"'),
                                    (["--region", ""], "accepted"),
                                    (["--pid", "1", "--region", "x"], "exclude")):
                refused_line(vgpu(command, *arguments, environment={VARIABLE: place.region}), 2, said)
            missing = place.directory + "/none"
            refused_line(vgpu(command, "--region", missing), 1, missing, "No such file")
            true(not os.path.exists(missing), "it was made")
            answer = vgpu(command, "--help")
            equal((answer.returncode, answer.stderr), (0, ""), "--help")
            true("--region" in answer.stdout and "--pid" in answer.stdout, answer.stdout)
        equal(paused(place), 0, "the word")


@test
def soft_limits():
    """soft limits come from the options of `vgpu run`, one for all devices or one each"""
    with Place() as place, place.program("--cores", "30,40", "--soft-cores", "60,0",
                                         sim="2xh200") as program:
        program.got(1, 0)
        program.got(1, 1)
        equal((cores(place, 0), cores(place, 1)), ((30, 60), (40, 0)), "the words")
    with Place() as place, place.program("--cores", "30", "--soft-cores", "100",
                                         environment={"CUDA_CORE_SOFT_LIMIT_0": "50"}) as program:
        program.got(1)
        equal(cores(place), (30, 100), "the words")


@test
def soft_limits_set():
    """a soft limit that is set while programs run is in the region, alone or with the limit"""
    with Place() as place, place.program("--cores", "30", sim="3xh200") as program:
        program.got(1, 0)
        program.got(1, 1)
        before = epoch(place)
        said = done("set", place, "--soft-cores", "60")
        true(", cores 30 %, up to 60 % while the GPU is otherwise idle; " in said[0], said)
        true(epoch(place) != before, "no epoch is raised")
        equal((cores(place, 0), cores(place, 1)), ((30, 60), (30, 60)), "the words")
        done("set", place, "--cores", "10", "--soft-cores", "100", "--device", "1")
        equal((cores(place, 0), cores(place, 1)), ((30, 60), (10, 100)), "the words")
        program.got(1, 2)
        equal(cores(place, 2), (30, 60), "the words of a device that was met later")
        said = done("set", place, "--soft-cores", "0")
        true("up to" not in " ".join(said), said)
        equal(cores(place, 1), (10, 0), "the words")


@test
def soft_limits_in_vain():
    """a soft limit that has no effect is said to have none"""
    with Place() as place, place.program("--cores", "30") as program:
        program.got(1)
        for arguments, said in ((["--soft-cores", "30"], "device 0: the soft limit of 30 % is not above "
                                 "the limit of 30 %: it has no effect"),
                                (["--soft-cores", "50", "--cores", "0"], "device 0: there is no compute "
                                 "limit, so the soft limit of 50 % has no effect")):
            answer = vgpu("set", "--region", place.region, *arguments)
            equal((answer.returncode, answer.stderr), (0, f"vgpu: set: {said}\n"), str(arguments))
            true("up to" not in answer.stdout, answer.stdout)


@test
def priorities():
    """a priority comes from the first process, and what is set while programs run is not set back"""
    with Place() as place:
        with place.program("--priority", "0") as program:
            program.got(1)
            equal(priority(place), (0, BY_ENVIRONMENT), "the words")
            with place.program("--priority", "3") as other:
                other.got(1)
                equal(priority(place), (0, BY_ENVIRONMENT), "the words beside another")
        with place.program() as program:
            program.got(1)
            equal(priority(place), (0, BY_ENVIRONMENT), "the words without a variable")
        with place.program("--priority", "3") as program:
            program.got(1)
            equal(priority(place), (3, BY_ENVIRONMENT), "the words when it starts again")
            before = epoch(place)
            true("priority 2" in done("set", place, "--priority", "2"), "the line")
            equal((priority(place), epoch(place) != before), ((2, LIVE), True), "the words, the epoch")
        with place.program("--priority", "5", "--memory", "1g") as program:
            program.got(1)
            equal(priority(place), (2, LIVE), "the words after")
            program.refused(1500)  # a priority that was set is no limit that others would keep


@test
def no_priority():
    """without a priority the region says so, and HAMi's monitor reads the usual one"""
    for variables in ({}, {"CUDA_TASK_PRIORITY": ""}):
        with Place() as place, place.program(environment=variables) as program:
            program.got(1)
            equal(priority(place)[1], 0, "who set it")
            equal((word(place, SWITCH, "i"), word(place, RECENT_KERNEL, "i")), (1, 2), "HAMi's words")


@test
def bad_values():
    """a soft limit and a priority that are not understood are one line, and nothing is changed"""
    with Place() as place, place.program("--cores", "30", "--soft-cores", "60",
                                         "--priority", "3") as program:
        program.got(1)
        for arguments, said in ((["--soft-cores", "101"], '"101"'), (["--soft-cores", "x"], '"x"'),
                                (["--soft-cores"], "needs a value"), (["--priority", "-1"], '"-1"'),
                                (["--priority", "high"], '"high"'), (["--priority", ""], '""'),
                                (["--priority", "4294967296"], "accepted"),
                                (["--priority", "1", "--device", "0"], "whole container")):
            refused_line(vgpu("set", "--region", place.region, *arguments), 2, said)
        equal((cores(place), priority(place)), ((30, 60), (3, BY_ENVIRONMENT)), "the words")
    for arguments, said in ((["--soft-cores", "101"], '"101"'), (["--soft-cores", "20,x"], '"x"'),
                            (["--priority", "-1"], '"-1"'), (["--priority", ""], '""')):
        refused_line(vgpu("run", *arguments, "--", "true"), 2, said)


tap.main()
