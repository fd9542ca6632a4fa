# SPDX-License-Identifier: Apache-2.0
"""A machine for a kubelet, inside this one: directories and addresses that only the test's namespaces
see, cgroups below one of the test's own."""
import os
import subprocess

# What a kubelet, a runtime and our daemons use by these names; in the test's directory in truth.
DIRECTORIES = ["/var/lib/kubelet", "/var/log", "/run", "/tmp/vgpulock", "/usr/local/vgpu"]
# The kubelet sets these where they are different. They are the whole machine's, so it is shown files.
SETTINGS = {"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
            "kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000}
NODE_ADDRESS = "10.99.0.1"
SERVICE_ADDRESS = "10.96.0.1"  # of the Service "kubernetes": nothing has to translate it


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def hierarchies():
    """Where cgroups are made: of version 1 one place a controller, of version 2 one."""
    base = "/sys/fs/cgroup"
    if os.path.exists(base + "/cgroup.controllers"):
        return [base]
    return sorted({os.path.realpath(f"{base}/{name}") for name in os.listdir(base)})


class Machine:
    """`directory` has all files; it and the cgroups are removed by scripts/test-cluster."""

    def __init__(self, directory, name):
        self.directory, self.cgroup = directory, name
        self.make_cgroups()
        # As on a node with systemd; among the namespaces that are made from here on.
        run("mount", "--make-rshared", "/")
        for path in DIRECTORIES:
            self.hide(path)
        for path, value in SETTINGS.items():
            if os.path.exists("/proc/sys/" + path):
                self.show("/proc/sys/" + path, value)
        for address in (NODE_ADDRESS, SERVICE_ADDRESS):
            run("ip", "address", "add", address + "/32", "dev", "lo")
        run("ip", "link", "set", "lo", "up")
        run("hostname", "n1")

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def hide(self, path):
        mine = self.path("root", path.strip("/").replace("/", "-"))
        os.makedirs(mine, exist_ok=True)
        os.makedirs(path, exist_ok=True)
        run("mount", "--bind", mine, path)

    def show(self, path, value):
        mine = self.path("setting-" + os.path.basename(path))
        with open(mine, "w", encoding="ascii") as file:
            file.write(f"{value}\n")
        run("mount", "--bind", mine, path)

    def make_cgroups(self):
        for hierarchy in hierarchies():
            os.makedirs(f"{hierarchy}/{self.cgroup}", exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # of version 1: empty at first, and then useless
                if os.path.exists(f"{hierarchy}/{self.cgroup}/{name}"):
                    with open(f"{hierarchy}/{name}", encoding="ascii") as file:
                        value = file.read()
                    with open(f"{hierarchy}/{self.cgroup}/{name}", "w", encoding="ascii") as file:
                        file.write(value)
