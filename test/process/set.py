# SPDX-License-Identifier: Apache-2.0
"""set BUILD: other limits for a container that runs, by `vgpu set` and by `shrreg-tool`."""
import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import time

import tap
from tap import Skip, equal, test, true

from mine import BUILD, VGPU
from place import (DEVICE_BYTES, DEVICES, FILE_BYTES, NOBODY, OFFSET, VARIABLE, Place, child_of,
                   need_nobody, nobody_can_run, read, refused_line, tool)

SHRREG = os.path.join(BUILD, "shrreg-tool")
F_OFD_SETLK = 37


def vgpu_set(*arguments, **more):
    return tool(VGPU, "set", *arguments, **more)


def change(*arguments, **more):
    """A change that is made, without a word on stderr; what was said."""
    done = vgpu_set(*arguments, **more)
    equal((done.returncode, done.stderr), (0, ""), " ".join(arguments))
    return done.stdout


def words_of(path, device=0):
    """memory_limit, memory_closed, core_limit of the file's entry."""
    with open(path, "rb") as file:
        file.seek(DEVICES + device * DEVICE_BYTES)
        entry = file.read(DEVICE_BYTES)
    return struct.unpack_from("QQ", entry, 48) + struct.unpack_from("I", entry, 72)


@test
def lowered():
    """a memory limit that is lowered refuses the next allocation, and one that is raised lets it pass"""
    with Place() as place, place.program("--memory", "4g") as program:
        program.got(1000)
        change("--region", place.region, "--memory", "2g")
        program.refused(1000)
        program.got(10)
        change("--region", place.region, "--memory", "3GiB")
        program.got(1000)


@test
def below_use():
    """a limit below what is in use is said to be, and refuses all further allocations"""
    with Place() as place, place.program("--memory", "4g") as program:
        program.got(2560)
        done = vgpu_set("--region", place.region, "--memory", "2g")
        equal(done.returncode, 0, done.stderr)
        true(re.fullmatch(r"vgpu: set: device 0: [23]\.\d GiB in use, over the new limit of 2\.0 GiB: "
                          r"further allocations will be refused\n", done.stderr), done.stderr)
        program.refused(1)
        change("--region", place.region, "--cores", "50")
        change("--region", place.region, "--memory", "4g")
        program.got(1)


@test
def near_use():
    """an excess that rounding would hide is given in bytes"""
    with Place() as place, place.program("--memory", "4g") as program:
        program.got(2048)
        change("--region", place.region, "--memory", "5g")
        used = struct.unpack("Q", read(place.region, OFFSET + 8448 + 128, 8))[0]
        done = vgpu_set("--region", place.region, "--memory", str(used - 1))
        true(f"{used} bytes in use, over the new limit of {used - 1}:" in done.stderr, done.stderr)


@test
def no_limit_before():
    """a container that started without a limit takes one, and 0 takes it away"""
    with Place() as place, place.program() as program:
        program.got(100)
        change("--region", place.region, "--memory", "1g")
        program.refused(1000)
        change("--region", place.region, "--memory", "0")
        program.got(1000)


@test
def not_understood_before():
    """a device that was full for a limit that was not understood has the limit that is set"""
    with Place() as place, place.program(environment={"CUDA_DEVICE_MEMORY_LIMIT": "much"}) as program:
        program.refused(1)
        equal(words_of(place.region)[1] != 0, True, "closed")
        change("--region", place.region, "--memory", "2g")
        program.got(100)
        program.refused(2000)


@test
def cores():
    """a compute limit is in the region at once; 100 and 0 are none; memory is left as it is"""
    with Place() as place, place.program("--memory", "2g", "--cores", "80") as program:
        program.got(1)
        equal(words_of(place.region), (2 << 30, 0, 80), "the words")
        for given, kept in (("20", 20), ("1", 1), ("99", 99), ("100", 0), ("50", 50), ("0", 0)):
            change("--region", place.region, "--cores", given)
            equal(words_of(place.region), (2 << 30, 0, kept), f"the words after {given}")


@test
def one_device():
    """--device changes one device, without it all change"""
    with Place() as place, place.program("--memory", "2g", sim="2xh200") as program:
        program.got(1, 0)
        program.got(1, 1)
        said = change("--region", place.region, "--memory", "8g", "--cores", "30", "--device", "1")
        equal(re.findall(r"^device (\d)", said, re.M), ["1"], "devices")
        equal((words_of(place.region, 0), words_of(place.region, 1)),
              ((2 << 30, 0, 0), (8 << 30, 0, 30)), "the words")
        program.refused(3000, 0)
        program.got(3000, 1)
        said = change("--region", place.region, "--memory", "9g")
        equal(re.findall(r"^device (\d)", said, re.M), ["0", "1"], "devices")
        program.got(3000, 0)
        line = refused_line(vgpu_set("--region", place.region, "--cores", "3", "--device", "2"), 1)
        true("device 2" in line and "2 devices" in line, line)


@test
def not_met():
    """what was set for all devices holds for one that is met later, whatever the environment there"""
    for first, later in ((["--memory", "4g"], []), (["--memory", "4g"], ["--memory", "4g"]),
                         ([], ["--memory", "8g"])):
        with Place() as place, place.program(*first, sim="3xh200") as program:
            program.got(1, 0)
            change("--region", place.region, "--memory", "2g", "--cores", "30")
            with place.program(*later, sim="3xh200") as other:
                other.refused(3000, 1)
                other.got(1, 1)
            program.got(1, 0)
            os.unlink(place.region)
            until_made(place.region, program)
            program.refused(3000, 2)
            program.got(1, 2)
            equal([words_of(place.region, i) for i in range(2)], 2 * [(2 << 30, 0, 30)],
                  f"{first}, {later}: the words")


@test
def by_pid():
    """--pid finds the region of a process of the container"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        said = change("--pid", str(child_of(program)), "--memory", "1g")
        true(f"region {place.region} (of process " in said, said)
        program.refused(1500)


@test
def by_pid_elsewhere():
    """--pid finds a region whose path means nothing outside of the container's mounts"""
    before = ["unshare", "--mount", "--propagation", "private"]
    if os.getuid() != 0 or tool(*before, "mount", "-t", "tmpfs", "none", "/mnt").returncode:
        raise Skip("no mount namespace can be made here")
    with Place() as place:
        os.mkdir(place.directory + "/in")
        place.region = place.directory + "/in/region"
        mounting = [*before, "sh", "-c",
                    f'mount -t tmpfs none {place.directory}/in && chmod 1777 {place.directory}/in '
                    '&& exec "$@"', "sh"]
        with place.program("--memory", "2g", before=mounting) as program:
            program.got(1)
            true(not os.path.exists(place.region), "the region is seen outside")
            change("--pid", str(child_of(program)), "--memory", "1g")
            program.refused(1500)
            program.got(100)


@test
def by_pid_as_user():
    """--pid needs no more rights than the process's own user has"""
    python = need_nobody(sys.executable, "/usr/bin/python3")
    with Place() as place, place.program("--memory", "2g", python=python, user=NOBODY) as program:
        program.got(1)
        change("--pid", str(child_of(program)), "--memory", "1g", user=NOBODY)
        program.refused(1500)


@test
def by_pid_deleted():
    """--pid refuses a region whose file was deleted: what is set there would be lost"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        os.unlink(place.region)
        refused_line(vgpu_set("--pid", str(child_of(program)), "--memory", "1g"), 1, "deleted")
        until_made(place.region, program)
        change("--pid", str(child_of(program)), "--memory", "1g")
        program.refused(1500)


@test
def by_pid_below():
    """--pid of `vgpu run`, or of a shell above it, is the container of what it started, if that is one"""
    with Place() as place, Place() as other, place.program(
            "--memory", "2g", before=["sh", "-c", '"$@"; true', "sh"]) as program:
        program.got(1)
        shell = program.process.pid
        run = int(read(f"/proc/{shell}/task/{shell}/children", 0, 4096).split()[0])
        for pid, limit, refused in ((run, "1g", 1500), (shell, "800m", 600)):
            said = change("--pid", str(pid), "--memory", limit)
            true(f"region {place.region} (of process " in said and f"is below {pid})" in said, said)
            program.refused(refused)
        with other.program("--memory", "1g") as second:
            second.got(1)
            refused_line(vgpu_set("--pid", str(os.getpid()), "--cores", "3"), 1, "several containers", str(os.getpid()))
        program.refused(600)


@test
def bad_pid():
    """--pid of a process that is not there, has no region or may not be looked at is one line"""
    refused_line(vgpu_set("--pid", str(os.getpid()), "--cores", "3"), 1, "no region")
    with subprocess.Popen(["true"]) as ended:
        pass
    refused_line(vgpu_set("--pid", str(ended.pid), "--cores", "3"), 1, "no process", str(ended.pid))
    if nobody_can_run(VGPU):
        refused_line(vgpu_set("--pid", str(os.getpid()), "--cores", "3", user=NOBODY), 1, "denied")


@test
def by_environment():
    """without --region and --pid the environment names the region, and the answer says so"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        said = change("--memory", "1g", environment={VARIABLE: place.region})
        equal(said.splitlines()[0], f"region {place.region} (named by {VARIABLE})", "the line")
        program.refused(1500)
        # A limit's variable that is bad, or anything else in the environment, is none of ours.
        change("--memory", "3g", environment={VARIABLE: place.region, "VGPU_LEDGER": "no",
                                              "CUDA_DEVICE_MEMORY_LIMIT": "bad"})
        program.got(1500)


@test
def later_environment():
    """what was set holds against the environment of processes that come while one lives"""
    for first in (["--memory", "2g"], []):
        with Place() as place, place.program(*first) as program:
            program.got(1)
            change("--region", place.region, "--memory", "3g", "--cores", "30")
            for later in (["--memory", "8g", "--cores", "90"], first, []):
                with place.program(*later) as other:
                    other.got(1)
                    other.refused(3000)
                program.refused(3000)
                equal(words_of(place.region)[0::2], (3 << 30, 30), f"after {first}, {later}")


@test
def restart():
    """a container that starts again keeps what was set, unless it asks for other limits than before"""
    with Place() as place:
        with place.program("--memory", "4g") as program:
            program.got(1)
            change("--region", place.region, "--memory", "1g")
        with place.program("--memory", "4g") as program:
            program.refused(1500)
        with place.program("--memory", "3g") as program:
            program.got(1500)


def until_made(path, program):
    """Lets the program work until it has noticed that its region's file is gone."""
    for _ in range(100):
        program.got(1)
        if os.path.exists(path):
            return
        time.sleep(0.001)
    raise AssertionError(f"{path} is not made anew")


@test
def made_anew():
    """a region that is deleted and made again has what was set"""
    with Place() as place, place.program("--memory", "4g") as program:
        program.got(1)
        change("--region", place.region, "--memory", "1g", "--cores", "30")
        program.got(1)
        os.unlink(place.region)
        until_made(place.region, program)
        program.refused(1500)
        equal(words_of(place.region), (1 << 30, 0, 30), "the words")


BAD = [
    ([], "nothing to set"), (["--device", "0"], "nothing to set"),
    (["--memory", "much"], '"much"'), (["--memory", "-1"], '"-1"'), (["--memory", ""], '""'),
    (["--memory", "99999999999g"], "accepted"), (["--memory", "1g,2g"], '"1g,2g"'),
    (["--cores", "101"], '"101"'), (["--cores", "-3"], '"-3"'), (["--cores", "half"], '"half"'),
    (["--cores", "4294967297"], "accepted"), (["--cores", "20", "--device", "64"], '"64"'),
    (["--cores", "20", "--device", "-1"], '"-1"'), (["--cores", "20", "--device", "GPU"], '"GPU"'),
    (["--cores"], "needs a value"), (["--core-s", "1"], "is not an option"),
    (["--cores", "20", "10"], '"10"'), (["--cores", "20", "--pid", "1", "--region", "x"], "exclude"),
    (["--cores", "20", "--pid", "0"], '"0"'), (["--cores", "20", "--pid", "x\n"], r"x\n"),
    (["--cores", "20", "--region", ""], "accepted"),
    (["--cores", "20", "--region", "x" * 5000], "accepted"),
]


@test
def bad_arguments():
    """an argument that is not understood is one line and status 2, and nothing is changed"""
    with Place() as place, place.program("--memory", "2g", "--cores", "40") as program:
        program.got(1)
        for arguments, word in BAD:
            refused_line(vgpu_set(*arguments, environment={VARIABLE: place.region}), 2, word)
        equal(words_of(place.region), (2 << 30, 0, 40), "the words")


@test
def help_text():
    """--help tells all options"""
    done = vgpu_set("--help")
    equal((done.returncode, done.stderr), (0, ""))
    for option in ("--memory", "--cores", "--device", "--region", "--pid"):
        true(option in done.stdout, option)


@test
def no_region():
    """a file that is missing, foreign, too short, a directory or a link is refused in one line and left"""
    with Place() as place:
        path = place.directory + "/file"
        for content, size in ((b"", 0), (b"text\n", 0), (b"text\n", FILE_BYTES), (b"", FILE_BYTES),
                              (b"", 2008952), (b"", 100)):
            with open(path, "wb") as file:
                file.write(content)
                file.truncate(size or len(content))
            before = read(path, 0, FILE_BYTES + 1)
            refused_line(vgpu_set("--region", path, "--cores", "3"), 1, path, "not a region")
            equal(read(path, 0, FILE_BYTES + 1) == before, True, "the file is as it was")
        os.unlink(path)
        refused_line(vgpu_set("--region", path, "--cores", "3"), 1, path, "No such file")
        true(not os.path.exists(path), "it was made")
        refused_line(vgpu_set("--region", place.directory, "--cores", "3"), 1, "directory")
        with place.program("--memory", "2g") as program:
            program.got(1)
            os.symlink(place.region, path)
            refused_line(vgpu_set("--region", path, "--cores", "3"), 1, "symbolic link")
            os.truncate(place.region, FILE_BYTES - 5000)
            refused_line(vgpu_set("--region", place.region, "--cores", "3"), 1, "not a region")


@test
def other_version():
    """a region of another version is refused in one line and left as it is"""
    with Place() as place:
        with place.program("--memory", "2g") as program:
            program.got(1)
        with open(place.region, "r+b") as file:
            file.seek(OFFSET + 8)
            file.write(struct.pack("I", 99))
        refused_line(vgpu_set("--region", place.region, "--memory", "1g"), 1, "version")
        equal(words_of(place.region)[0], 2 << 30, "the limit")


@test
def other_user():
    """the region of another user is refused in one line, root may change every one"""
    need_nobody(VGPU)
    with Place() as place:
        with place.program("--memory", "2g") as program:
            program.got(1)
        refused_line(vgpu_set("--region", place.region, "--memory", "1g", user=NOBODY), 1, "owner")
        os.chmod(place.region, 0o600)
        refused_line(vgpu_set("--region", place.region, "--memory", "1g", user=NOBODY), 1, "denied")
        equal(words_of(place.region)[0], 2 << 30, "the limit")
        os.chown(place.region, NOBODY, NOBODY)
        change("--region", place.region, "--memory", "1g", user=NOBODY)
        change("--region", place.region, "--memory", "3g")
        equal(words_of(place.region)[0], 3 << 30, "the limit")


@test
def hostile():
    """a region full of nonsense harms nobody who looks at it or changes it"""
    with Place() as place:
        with place.program("--memory", "2g") as program:
            program.got(1)
        with open(place.region, "r+b") as file:
            file.seek(OFFSET + 32)
            file.write(b"\xff" * (256 - 32))  # counts, hash and defaults
            file.write(b"\x1b\n\xff" * (64 * DEVICE_BYTES // 3))
            file.seek(OFFSET + 8448)
            file.write(bytes([2, 0, 0, 0, 255, 255, 255, 255]) + b"\xff" * 8312)
        for command in ([VGPU, "set", "--region", place.region, "--memory", "1g", "--cores", "3"],
                        [SHRREG, "--region", place.region, "--print"]):
            done = tool(*command)
            equal(done.returncode, 0, done.stderr)
            for line in (done.stdout + done.stderr).splitlines():
                true(line.isprintable(), repr(line))
        equal(words_of(place.region, 63), (1 << 30, 0, 3), "the words of the last device")


@test
def locked():
    """a region whose lock somebody keeps is given up after 2 s in one line, unchanged"""
    with Place() as place:
        with place.program("--memory", "2g") as program:
            program.got(1)
        with open(place.region, "r+b") as file:
            fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, OFFSET, 1, 0))
            refused_line(vgpu_set("--region", place.region, "--memory", "1g"), 1, "lock")
        equal(words_of(place.region)[0], 2 << 30, "the limit")
        change("--region", place.region, "--memory", "1g")


@test
def without_streams():
    """tools without standard streams, and with few descriptors, write nothing into the region"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        head = read(place.region, 0, 64)
        pid = str(child_of(program))
        for streams in ("1>&-", "2>&-", "0<&- 1>&- 2>&-"):
            for limit in ("", "ulimit -n 64; "):
                for words in ((VGPU, "set", "--memory", "2g", "--pid", pid), (VGPU, "set", "--memory", "1m", "--pid", pid),
                              (VGPU, "pause", "--pid", pid), (VGPU, "resume", "--json", "--region", place.region),
                              (VGPU, "region", "--repair", place.region), (VGPU, "ps", "--pid", pid),
                              (VGPU, "set", "--memory", "2g", "--region", place.region),
                              (SHRREG, "--region", place.region, "--print")):
                    done = tool("sh", "-c", f'{limit}exec "$@" {streams}', "sh", *words)
                    true(done.returncode in (0, 1), f"{streams} {words}: {done}")
                    equal(read(place.region, 0, 64), head, f"{limit}{streams} {words}")
        equal(tool("sh", "-c", '"$0" ps --region "$1" 1>&-', VGPU, place.region).returncode, 1, "nothing was written")


@test
def killed_program():
    """what a killed program held does not count as in use"""
    with Place() as place, place.program("--memory", "8g") as program:
        program.got(1)
        with place.program("--memory", "8g") as other:
            other.got(4096)
            os.kill(child_of(other), signal.SIGKILL)
            other.process.wait(timeout=20)
        said = change("--region", place.region, "--memory", "2g")
        true(re.search(r"^device 0, GPU-\S+: memory 2\.0 GiB, cores no limit; \d+ MiB in use$", said,
                       re.M), said)


@test
def shrreg_set():
    """shrreg-tool --set-sm-limit changes a device's compute limit and nothing else"""
    with Place() as place, place.program("--memory", "2g", "--cores", "80", sim="2xh200") as program:
        program.got(1, 0)
        program.got(1, 1)
        done = tool(SHRREG, "--set-sm-limit", "1", "20", environment={VARIABLE: place.region})
        equal((done.returncode, done.stderr), (0, ""))
        equal((words_of(place.region, 0)[2], words_of(place.region, 1)), (80, (2 << 30, 0, 20)))
        done = tool(SHRREG, f"--region={place.region}", "--set-sm-limit", "0", "100")
        equal((done.returncode, words_of(place.region, 0)[2]), (0, 0))
        done = tool(SHRREG, "--region", place.region, "--print")
        equal(done.returncode, 0, done.stderr)
        true(re.search(r"^device 1, GPU-\S+: memory 2\.0 GiB, cores 20 %; \d+ MiB in use$",
                       done.stdout, re.M), done.stdout)


tap.main()
