# SPDX-License-Identifier: Apache-2.0
"""A /tmp, a /run and a /dev/shm of the test's own: the script that imports this, before it imports tap,
runs itself again in a mount namespace, where they are mounted."""
import os
import shutil
import subprocess
import sys

import users

INSIDE = "VGPU_TEST_NAMESPACE"
PLACES = ("/tmp", "/run", "/dev/shm")
ALICE, BOB = 1001, 1002


def enter_namespace():
    """Runs the script again; why not, where that cannot be."""
    if os.path.abspath(sys.argv[1]).startswith(tuple(place + "/" for place in PLACES)):
        return "the build lies in /tmp"
    for options in (["--mount"], ["--mount", "--map-root-user"]):
        command = ["unshare", *options, "--propagation", "private"]
        if shutil.which("unshare") and subprocess.run(
                [*command, "mount", "-t", "tmpfs", "none", "/tmp"], check=False,
                stderr=subprocess.DEVNULL).returncode == 0:
            os.environ[INSIDE] = "root" if len(options) == 1 and users.may_change() else "mapped"
            os.execvp("unshare", [*command, sys.executable, *sys.argv])
    return "no mount namespace can be made here"


def mount_places():
    for place in PLACES:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "none", place], check=True)


REASON = None
if INSIDE in os.environ:
    mount_places()
else:
    REASON = enter_namespace()

from tap import Skip  # its directory of temporary files is in our /tmp


def begin():
    """Empties them."""
    if REASON:
        raise Skip(REASON)
    for place in PLACES:
        os.chmod(place, 0o1777)
        for name in os.listdir(place):
            path = os.path.join(place, name)
            (shutil.rmtree if os.path.isdir(path) and not os.path.islink(path) else os.remove)(path)


def left():
    """All that is in them."""
    return sorted(os.path.join(place, name) for top in PLACES
                  for place, directories, files in os.walk(top) for name in directories + files)


def as_user(user):
    """The words that run a command as that user; None: as who runs the test."""
    if user is None:
        return []
    if os.environ[INSIDE] != "root" or not shutil.which("setpriv"):
        raise Skip("another user needs root and setpriv")
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
