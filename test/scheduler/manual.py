# SPDX-License-Identifier: Apache-2.0
"""manual BUILD: the page vgpu-scheduler(8) against the program's --help and metrics."""
import os
import re
import subprocess

from scheduler_world import BUILD, ROOT, World, make_node, make_pod, tap

equal, test, true = tap.equal, tap.test, tap.true
PROGRAM = os.path.join(BUILD, "src/daemon/vgpu-scheduler")


def page():
    with open(os.path.join(ROOT, "man/vgpu-scheduler.8"), encoding="utf-8") as file:
        return file.read()


def said():
    return subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout


def places():
    return dict(re.findall(r"^\.It Fl Fl ([a-z_0-9-]+)(.*\n(?:(?!\.It |\.El).*\n)*)", page(), re.M))


@test
def flags():
    """the man page has each flag, with its variable, default and what is accepted, and no other flag"""
    rows = re.findall(r"^  --([a-z_-]+) +(\S.*)$", said(), re.M)
    unused = re.findall(r"--([a-z_0-9-]+)", said().partition("Accepted without effect")[2])
    true(len(rows) > 25 and len(unused) > 10, f"{rows} {unused}")
    found = places()
    equal(sorted(found), sorted([name for name, _ in rows] + unused + ["help", "version"]), "flags")
    for name, text in rows:
        words = re.findall(r"\(also ([A-Z_]+)\)", text) + re.findall(r" \[([^\]]+)\]$", text)
        for accepted in re.findall(r"accepted: ([a-z ]+?)(?: \[| \(|$)", text):
            words += accepted.split()
        for word in words:
            true(word in found[name], f"--{name}: {word} is not in {found[name]!r}")


@test
def no_other_values():
    """and no default, variable or accepted word that the program has not"""
    rows = dict(re.findall(r"^  --([a-z_-]+) +(\S.*)$", said(), re.M))
    for name, text in places().items():
        for default in re.findall(r"^Default: (.*)\.$", text, re.M):
            true(rows[name].endswith(f"[{default}]"), f"--{name}: {default}")
        for variable in re.findall(r"^\.Ev ([A-Z_]+) \.$", text, re.M):
            true(f"(also {variable})" in rows[name], f"--{name}: {variable}")
        for accepted in re.findall(r"^Accepted: (.*)\.$", text, re.M):
            true("accepted: " + accepted.replace(",", "") in rows[name], f"--{name}: {accepted}")


@test
def metrics():
    """each metric that is not HAMi's is in the man page, and no other"""
    with World([("nodes", make_node("n1"))]) as world:
        world.create("pods", make_pod("p"))
        text = world.get("/metrics", world.metrics_port)[1]
    own = set(re.findall(r"^# TYPE (vgpu_[a-z_]+)", text, re.M))
    true(len(own) > 5, own)
    equal(sorted(set(re.findall(r"vgpu_scheduler_[a-z_]+", page()))), sorted(own), "metrics")


@test
def requests():
    """each path that it serves is in the man page"""
    with open(os.path.join(ROOT, "src/daemon/scheduler.c"), encoding="utf-8") as file:
        served = re.findall(r'"(GET|POST)", "(/[a-z]+)"', file.read())
    true(len(served) > 6, served)
    for method, path in served:
        true(f"{method} {path}" in page(), f"{method} {path}")


tap.main()
