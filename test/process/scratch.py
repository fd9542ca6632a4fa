# SPDX-License-Identifier: Apache-2.0
"""One directory for all temporary files of a script, which goes however the script ends: a process
beside it, in a session of its own, removes it."""
import os
import signal
import subprocess
import tempfile


# What is left alive may make its region's directory anew: it is looked at until that is over.
REMOVE = """cat
for _ in $(seq 60); do
    rm -rf --one-file-system -- "$1"
    sleep 1
    [ -e "$1" ] || exit
done"""


class GivenUp(SystemExit):
    """A runner ends this program."""


def give_up(number, _frame):
    raise GivenUp(128 + number)


def begin():
    """Where `tempfile` makes files from now on. Where the script runs again within mounts of its own
    (rooted.py) nothing is removed for it: the machine's own directories may be below."""
    if "VGPU_TEST_NAMESPACE" in os.environ:
        return
    root = tempfile.mkdtemp(prefix="t-")
    os.chmod(root, 0o711)  # for other users' programs
    # Its input ends with this process; no other has the pipe's end.
    subprocess.Popen(["sh", "-c", REMOVE, "sh", root],
                     stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                     start_new_session=True, cwd="/", env={"PATH": "/usr/bin:/bin"})
    tempfile.tempdir = root


def end_in_order():
    """A runner that gives up ends us so: what is to be done at the end is done."""
    signal.signal(signal.SIGTERM, give_up)
