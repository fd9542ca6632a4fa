# SPDX-License-Identifier: Apache-2.0
"""demo BUILD: scripts/demo, on the simulator. What it measures is not judged here: a busy machine may
spoil that, and then it says so. That it says so, shows all its acts and leaves nothing is."""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import tap
from tap import Skip, equal, test, true

from mine import BUILD, MINE

DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/demo")
ACTS = 5
COLUMNS = 80


def start(directory, *acts, build=BUILD, **variables):
    """The demo in a session of its own, without a terminal; its temporary files are in `directory`."""
    if os.path.exists("/dev/nvidiactl"):
        raise Skip("there is a card, on which the demo would run")
    return subprocess.Popen(["sh", DEMO, build, *acts],
                            env={**MINE, "TMPDIR": directory, "LC_ALL": "C", **variables},
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, start_new_session=True)


def members(session):
    """The processes of a session, which those of `timeout` stay in as well."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                    found.append(file.read().replace("\0", " "))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def nothing_left(directory, program):
    equal(members(program.pid), [], "processes")
    equal(os.listdir(directory), [], "temporary files")


def verdicts(said):
    return re.findall(r"^  (ok|FAILED)  +(.*)$", said, re.MULTILINE)


@test
def whole():
    """the demo shows all acts in 80 columns, its status is its verdict, and it leaves nothing"""
    with tempfile.TemporaryDirectory() as directory, start(directory) as program:
        said = program.communicate(timeout=200)[0]
        failed = [text for verdict, text in verdicts(said) if verdict == "FAILED"]
        equal(re.findall(r"^(\d)\. ", said, re.MULTILINE), [str(i + 1) for i in range(ACTS)], said)
        equal(program.returncode, 1 if failed else 0, said)
        bars = [line for line in said.splitlines() if re.match(r" +[0-9.]+ s  ", line)]
        true(len(bars) > 40, f"{len(bars)} bars")
        true(max(map(len, bars)) <= COLUMNS, max(bars, key=len))
        true("as expected:\n    Device 0 OOM" in said and "HAMI-core ERROR" not in said, "an expected refusal looks like an error")
        nothing_left(directory, program)
        print(f"# not as promised on this machine now: {failed}" if failed else "# all as promised")


@test
def no_act():
    """an act that does not exist is refused before anything is shown"""
    with tempfile.TemporaryDirectory() as directory, start(directory, "view", "dance") as program:
        said = program.communicate(timeout=100)[0]
        equal((program.returncode, '"dance"' in said, said.count("\n")), (2, True, 1), said)


@test
def odd_place():
    """a build that lies in a directory with a space in its name is shown all the same"""
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as place:
        shutil.copytree(BUILD, f"{place}/a place", symlinks=True, ignore=lambda _, names: [
            name for name in names if name.endswith((".p", ".a")) or name in (
                "test", "bench", "meson-info", "meson-logs", "meson-private")])
        with start(directory, "view", "refusal", build=f"{place}/a place") as program:
            said = program.communicate(timeout=100)[0]
            equal((program.returncode, len(verdicts(said))), (0, 5), said)
            nothing_left(directory, program)


@test
def unkept():
    """where no compute limit is kept, the demo says so and fails"""
    with tempfile.TemporaryDirectory() as directory, \
            start(directory, "tenants", GPU_CORE_UTILIZATION_POLICY="disable") as program:
        said = program.communicate(timeout=100)[0]
        true("FAILED" in dict(verdicts(said)), said)
        equal(program.returncode, 1, said)
        nothing_left(directory, program)


@test
def interrupted():
    """a demo that is interrupted or ended in the midst of an act leaves nothing, and says by what it ended"""
    for act, shown, number, status in (("tenants", "vgpu pause", signal.SIGTERM, 143),
                                       ("tenants", " s  one ", signal.SIGINT, 130),
                                       ("share", " s  #", signal.SIGHUP, 143)):
        with tempfile.TemporaryDirectory() as directory, start(directory, act) as program:
            for line in program.stdout:
                if shown in line:
                    break
            time.sleep(0.2)
            # As a terminal does, to all of the foreground.
            os.killpg(program.pid, number)
            program.communicate(timeout=60)
            equal(program.returncode, status, f"the status after {number}")
            nothing_left(directory, program)


tap.main()
