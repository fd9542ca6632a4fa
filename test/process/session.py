# SPDX-License-Identifier: Apache-2.0
"""session BUILD: shells of a container that have none of its variables: by ssh, by su, by env -i. Its
library is in /etc/ld.so.preload, and its limits are in the region (rooted.py)."""
import os
import shlex
import shutil
import subprocess

import rooted
import tap
from both import CLEAN, PATH
from rooted import INSIDE, path, preload, run
from tap import Skip, equal, test, true

SSHD = "/usr/sbin/sshd"
LIMIT = {"CUDA_DEVICE_MEMORY_LIMIT": "2g"}
DEFAULT, PINNED = "tmp/cudevshr.cache", "etc/vgpu/region"
MACHINE = "VGPU_SIM=h200 VGPU_SIM_MACHINE=/tmp/machine"
REFUSED = f"{MACHINE} /opt/hold 1600 0; env; exit 0"
SERVED = f"{MACHINE} /opt/hold 1400 0"


def begin(region, **limits):
    """A container whose programs make their region there: it is the first of them, and ends."""
    preload("libvgpu.so", "libvgpu-sim-rm.so")
    for name in ("tmp/machine", DEFAULT, PINNED):
        if os.path.exists(path(name)):
            os.remove(path(name))
    os.makedirs(path("etc/vgpu"), exist_ok=True)
    done = run("sh", "-c", f"{MACHINE} /opt/hold 100 0; chmod 666 /tmp/machine",
               CUDA_DEVICE_MEMORY_SHARED_CACHE="/" + region, **limits)
    equal(done.returncode, 0, done.stdout + done.stderr)
    true(os.path.exists(path(region)), "no region was made")


def is_held(session):
    """Whoever runs commands so is under the limit, and has none of the variables."""
    done = session(REFUSED)
    true("CUDA_ERROR_OUT_OF_MEMORY" in done.stdout, done.stdout + done.stderr)
    true("CUDA_" not in done.stdout.replace("CUDA_ERROR", "") and "LD_" not in done.stdout, done.stdout)
    done = session(SERVED)
    true("CUDA_SUCCESS" in done.stdout, done.stdout + done.stderr)


def login(command):
    return run("env", "-i", "sh", "-l", "-c", command)


def su(user):
    def session(command):
        return run("su", "-", user, "-s", "/bin/sh", "-c", command, **LIMIT)
    return session


def ssh(command):
    """Through a server of its own, which talks over its standard streams. The server has the
    container's variables, as one that the container's first process starts."""
    keys = path("root/.ssh")
    if not os.path.exists(keys):
        os.makedirs(keys, mode=0o700)
        os.makedirs(path("run/sshd"), mode=0o755)
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{keys}/{key}"], check=True)
        shutil.copy(f"{keys}/user.pub", f"{keys}/authorized_keys")
        with open(path("etc/sshd_config"), "w", encoding="ascii") as file:
            file.write("HostKey /root/.ssh/host\nUsePAM no\nPermitRootLogin yes\nLogLevel QUIET\n")
    server = f"chroot {shlex.quote(rooted.ROOT)} {SSHD} -i -f /etc/sshd_config"
    return subprocess.run(["ssh", "-F", "none", "-o", f"ProxyCommand={server}", "-i", f"{keys}/user",
                           "-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no",
                           "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "root@container", command],
                          capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                          check=False, env=dict(CLEAN, **LIMIT))


def needs_ssh():
    """Before the library is in place: this takes it away."""
    for name in ("ssh", "ssh-keygen", SSHD):
        if not shutil.which(name, path=PATH):
            raise Skip(f"no {name} here")
    if os.environ.get(INSIDE) != "root":
        raise Skip("a server that changes its user needs root")
    preload()
    done = ssh("exit 3")
    if done.returncode != 3:
        raise Skip(f"no session by ssh can be had here: {done.stderr.strip()[:100]}")


@test
def login_shell():
    """a login shell without the container's variables is under the container's limit"""
    begin(DEFAULT, **LIMIT)
    is_held(login)


@test
def by_su():
    """so is one of su, as root and as another user"""
    begin(DEFAULT, **LIMIT)
    if os.environ.get(INSIDE) != "root":
        raise Skip("su needs root, and other users")
    is_held(su("root"))
    is_held(su("nobody"))


@test
def by_ssh():
    """so is a session by ssh"""
    needs_ssh()
    begin(DEFAULT, **LIMIT)
    is_held(ssh)


@test
def pinned():
    """root's region at the pinned path holds them where the lost variables named another"""
    begin(PINNED, **LIMIT)
    is_held(login)
    if os.environ.get(INSIDE) != "root":
        raise Skip("another user needs root")
    is_held(su("nobody"))
    done = su("nobody")(f"export CUDA_DEVICE_MEMORY_LIMIT=9g; {REFUSED}")
    true("CUDA_ERROR_OUT_OF_MEMORY" in done.stdout, f"another user's own limit holds: {done.stdout}")


@test
def pinned_by_ssh():
    """also by ssh"""
    needs_ssh()
    begin(PINNED, **LIMIT)
    is_held(ssh)


@test
def session_is_quiet():
    """a session by ssh without CUDA says and leaves what it does without us"""
    needs_ssh()
    command = ("echo out; echo err >&2; umask; ls /proc/self/fd; "
               "grep -E 'Sig(Blk|Ign|Cgt)|Threads' /proc/self/status; exit 4")
    native = ssh(command)
    preload("libvgpu.so")
    ours = ssh(command)
    equal((ours.returncode, ours.stdout, ours.stderr), (native.returncode, native.stdout, native.stderr))
    equal(native.returncode, 4, "status")


tap.main()
