# SPDX-License-Identifier: Apache-2.0
"""A root directory of the test's own, with the machine's programs and an /etc/ld.so.preload. The
script that imports this runs itself again in a mount namespace, where the directory is made; the
machine's own files are not touched."""
import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile

import users
from both import CLEAN, PATH
from tap import Skip

BUILD = os.path.abspath(sys.argv[1])
INSIDE = "VGPU_TEST_NAMESPACE"
NOBODY = users.NOBODY
OURS = {"libvgpu.so": "libvgpu.so", "libvgpu-control.so": "libvgpu-control.so",
        "libvgpu-sim-rm.so": "src/sim/libvgpu-sim-rm.so",
        "libcuda.so.1": "src/sim/libcuda.so.1", "libnvidia-ml.so.1": "src/sim/libnvidia-ml.so.1",
        "hold": "test/driver/hold", "watch": "test/process/process-watch"}
ETC = ("passwd", "group", "shadow", "nsswitch.conf", "hosts", "hostname", "alternatives", "pam.d",
       "login.defs", "perl", "security", "pam.conf", "environment")


def enter_namespace():
    """Runs this script again where its mounts are nobody else's; how that went where it cannot."""
    if os.environ.get(INSIDE):
        return None
    for options in (["--mount"], ["--mount", "--map-root-user"]):
        command = ["unshare", *options, "--propagation", "private"]
        if shutil.which("unshare") and subprocess.run([*command, "true"], check=False,
                                                      stderr=subprocess.DEVNULL).returncode == 0:
            os.environ[INSIDE] = "root" if len(options) == 1 and users.may_change() else "mapped"
            os.execvp("unshare", [*command, sys.executable, *sys.argv])
    return "no mount namespace can be made here"


ROOT = None
REASON = enter_namespace()


def mount(*arguments):
    done = subprocess.run(["mount", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise Skip(f"mount {' '.join(arguments)}: {done.stderr.strip()}")


def remove_root():
    subprocess.run(["umount", "-l", ROOT], check=False, stderr=subprocess.DEVNULL)
    os.rmdir(ROOT)


def path(*names):
    return os.path.join(ROOT, *names)


def make_system():
    """The machine's programs, and as much of /etc as they need."""
    for name in sorted(os.listdir("/")):
        if re.fullmatch(r"usr|bin|sbin|lib\w*", name) and os.path.islink("/" + name):
            os.symlink(os.readlink("/" + name), path(name))
        elif re.fullmatch(r"usr|bin|sbin|lib\w*|dev|proc", name):
            os.mkdir(path(name))
            mount("--rbind", "/" + name, path(name))
    for name in ("etc", "tmp", "opt", "root"):
        os.mkdir(path(name))
    os.chmod(path("tmp"), 0o1777)
    for name in ETC:
        if os.path.isdir("/etc/" + name):
            shutil.copytree("/etc/" + name, path("etc", name), symlinks=True, copy_function=copy_readable)
        else:
            copy_readable("/etc/" + name, path("etc", name))


def copy_readable(source, target):
    if os.access(source, os.R_OK) or os.path.islink(source):
        shutil.copy2(source, target, follow_symlinks=False)


def make_root():
    """The root directory, once; ours lies in /opt, where the loader's cache knows it."""
    global ROOT, REASON
    if REASON:
        raise Skip(REASON)
    if ROOT:
        return
    REASON = "the root directory could not be made"
    ROOT = tempfile.mkdtemp(prefix="vgpu-root-")
    atexit.register(remove_root)
    mount("-t", "tmpfs", "-o", "mode=755", "none", ROOT)
    make_system()
    for name, built in OURS.items():
        shutil.copy(os.path.join(BUILD, built), path("opt", name))
    for name in ("id", "cat", "hold"):
        shutil.copy(path("opt", name) if name in OURS else shutil.which(name, path=PATH),
                    path("opt", "suid-" + name))
        os.chmod(path("opt", "suid-" + name), 0o4755)
    with open(path("etc/ld.so.conf"), "w", encoding="ascii") as file:
        file.write("/opt\n")
    subprocess.run(["chroot", ROOT, "ldconfig", "-X"], check=True, capture_output=True)
    REASON = None


def preload(*names):
    """What /etc/ld.so.preload names from now on; nothing: there is none."""
    make_root()
    file = path("etc/ld.so.preload")
    if not names:
        if os.path.exists(file):
            os.remove(file)
        return
    with open(file, "w", encoding="ascii") as list_of_libraries:
        list_of_libraries.write("\n".join("/opt/" + name for name in names) + "\n")


def run(*command, user=0, watched=False, **environment):
    """In the root directory, as root or as a user."""
    before = ["chroot", f"--userspec={user}:{user}", ROOT] if user else ["chroot", ROOT]
    watch = ["/opt/watch", "/tmp/report"] if watched else []
    return subprocess.run(before + watch + list(command), capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, check=False,
                          env=dict(CLEAN, PATH=PATH, HOME="/tmp", **environment))
