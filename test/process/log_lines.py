# SPDX-License-Identifier: Apache-2.0
"""log_lines BUILD: the lines on stderr that HAMi-core's users search for, by LIBCUDA_LOG_LEVEL."""
import os
import re
import subprocess
import tempfile

import tap
from simulated import BUILD, environment
from tap import equal, test, true

SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "src")
HOLD = os.path.join(BUILD, "test/driver/hold")
LIMIT = "CUDA_DEVICE_MEMORY_LIMIT"
WORDS = ("ERROR", "Warn", "Msg", "Info", "Debug")
# Errors; 1, the default, and 2 also warnings and messages; 3 also infos, 4 also debugs.
SHOWN = {"0": WORDS[:1], None: WORDS[:3], "": WORDS[:3], "1": WORDS[:3], "2": WORDS[:3], "3": WORDS[:4], "4": WORDS,
         "5": WORDS[:3]}
ERROR = re.compile(r"\[HAMI-core (ERROR) \(pid:(\d+) thread=(\d+) ([\w.]+):(\d+)\)\]: (.+)")
OTHERS = re.compile(r"\[HAMI-core (Warn|Msg|Info|Debug)\((\d+):(\d+):([\w.]+):(\d+)\)\]: (.+)")


def lines(mib, level=None, **variables):
    """The lines' words and texts, and the process that ought to have written them."""
    with tempfile.TemporaryDirectory() as directory:
        variables = environment(directory, **variables, **({} if level is None else {"LIBCUDA_LOG_LEVEL": level}))
        with subprocess.Popen([HOLD, str(mib), "0"], env=variables, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            _, said = process.communicate(timeout=60)
    found = []
    for line in said.splitlines():
        match = ERROR.fullmatch(line) or OTHERS.fullmatch(line)
        true(match, f"another form: {line!r}")
        word, pid, thread, file, number, text = match.groups()
        equal((int(pid), int(thread)), (process.pid, process.pid), line)
        true(int(number) > 0 and any(file in names for _, _, names in os.walk(SOURCES)), f"no source: {line}")
        found.append((word, text))
    return found


def says(found, word, pattern):
    true(any(got == word and re.search(pattern, text) for got, text in found), f"no {word} {pattern}: {found}")


@test
def each_level():
    """each level shows its words and those below, and none above; 1 is the default"""
    for level, words in SHOWN.items():
        got = {word for word, _ in lines(1, level, VGPU_LEDGER="api", **{LIMIT: "much"}) +
               lines(3000, level, **{LIMIT: "2g"}) + lines(100, level, VGPU_SIM="no-rm", **{LIMIT: "2g"})}
        equal(got, set(words), f"level {level}")


@test
def errors():
    """a limit that is not understood is an error, at each level"""
    for level in "01234":
        says(lines(1, level, **{LIMIT: "much"}), "ERROR", rf'^{LIMIT}="much" is not a size; accepted: ')


@test
def oom():
    """a refusal is "Device N OOM used / limit", in bytes"""
    for level in (None, "0", "1", "2", "3", "4"):
        says(lines(3000, level, **{LIMIT: "2g"}), "ERROR", r"^Device 0 OOM \d+ / 2147483648 ")
    text = next(text for _, text in lines(3000, None, **{LIMIT: "2g"}) if "OOM" in text)
    used, limit = map(int, re.search(r"OOM (\d+) / (\d+)", text).groups())
    true(0 < used <= limit < used + (3000 << 20), text)


@test
def messages():
    """what a user ought to know once is a message: that the driver's own allocations are not seen"""
    for level in (None, "1", "2"):
        says(lines(100, level, VGPU_SIM="no-rm", **{LIMIT: "2g"}), "Msg", "memory is counted by the API ledger")


@test
def infos_and_debugs():
    """infos say what memory is counted by, debugs which region, slot and device it is"""
    for level in "34":
        says(lines(100, level, **{LIMIT: "2g"}), "Info", "memory is counted by the RM ledger")
    found = lines(100, "4", **{LIMIT: "2g"})
    says(found, "Debug", r"slot 0 of the container's region /\S+/region$")
    says(found, "Debug", r"^device 0 is GPU-\S+$")


@test
def silence():
    """where all is well nothing is said below level 3"""
    for level in ("0", None, "1", "2"):
        equal(lines(100, level, **{LIMIT: "2g"}), [], f"at level {level}")
        equal(lines(100, level), [], f"at level {level}, without a limit")


tap.main()
