# SPDX-License-Identifier: Apache-2.0
"""rights BUILD: the chart gives each account the rights that its programs use, and no other. What they use is what
the fake API server was asked for while they ran through their own tests."""
import json
import os
import subprocess
import sys
import tempfile
import threading

import helm
from tap import equal, test, true
import tap

from mine import BUILD

ROOT = helm.ROOT
# What is run: the server of each writes what it was asked for. Programs by their user agents; "vgpu" is that of the
# device plugin's allocation in a test program, "kube-driver" that of src/kube's events in another one.
PLUGIN = """
import sys
sys.path[:0] = [{folder!r}]
import plugin_bed
with plugin_bed.Node() as node:
    node.start()
    node.wait_registered()
    node.fault("xid 1 79")
    node.wait_event("GPUUnhealthy")
"""
MONITOR = """
import sys
sys.path[:0] = [{folder!r}, {process!r}]
import mine
from monitor_world import World
with World(mine.BUILD) as world:
    world.start()
    world.pod()
    world.ticks(2)
"""
RUNS = {"scheduler": ["test/scheduler/scheduler.py"], "certgen": ["test/certgen/certgen.py"],
        "node": ["test/node/allocate.py", PLUGIN, MONITOR], "events": ["test/kube/event.py"]}
AGENTS = {"scheduler": {"vgpu-scheduler"}, "certgen": {"vgpu-certgen"}, "node": {"vgpu", "vgpu-device-plugin", "vgpu-monitor"},
          "events": {"kube-driver"}}
# kube-scheduler's own, beside what Kubernetes' roles give it: it makes and renews the Lease, whose name is ours.
KUBE_SCHEDULER = {("coordination.k8s.io", "leases", "create"), ("coordination.k8s.io", "leases", "get"),
                  ("coordination.k8s.io", "leases", "update")}
USED, FAILED = {}, []


def run(name, program):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "asked")
        node, process = (os.path.join(ROOT, "test", folder) for folder in ("node", "process"))
        words = [os.path.join(ROOT, program)] if program.startswith("test/") else ["-c", program.format(folder=node, process=process)]
        done = subprocess.run([sys.executable, *words, BUILD], env={**os.environ, "VGPU_TEST_RECORD": path},
                              capture_output=True, text=True, check=False)
        if done.returncode:
            FAILED.append(f"{name}: {(done.stdout + done.stderr)[-600:]}")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found = [json.loads(line) for line in file]
            USED.setdefault(name, set()).update(
                tuple(one) for one in found if (one[0] or "").partition("/")[0] in AGENTS[name])


def used(name):
    """{(group, resource, verb, name of the object or "")} of a program's, by its own tests."""
    if not USED:
        helm.program()
        threads = [threading.Thread(target=run, args=(name, program)) for name, programs in RUNS.items() for program in programs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    equal(FAILED, [], "tests that failed")
    return {one[1:5] for one in USED[name]}


def granted(found, account):
    """{(group, resource, verb): names of objects, {""} for all} by the chart's own roles."""
    rights = {}
    for (kind, _), binding in found.items():
        if not kind.endswith("RoleBinding") or binding["subjects"][0]["name"] != account:
            continue
        role = found.get((binding["roleRef"]["kind"], binding["roleRef"]["name"]))
        for rule in role["rules"] if role else ():
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        true("*" not in (group, resource, verb), f"{account} may all of something")
                        rights.setdefault((group, resource, verb), set()).update(rule.get("resourceNames", [""]))
    return rights


def events():
    return {one for one in used("events") if one[1] == "events"}


def compare(wanted, rights, more=frozenset()):
    plain = {one[:3] for one in wanted}
    equal(sorted(plain - set(rights)), [], "used, and not granted")
    equal(sorted(set(rights) - plain - more), [], "granted, and not used")


@test
def scheduler():
    """the scheduler's account has the rights that vgpu-scheduler uses, and those to the Lease"""
    rights = granted(helm.objects(), "vgpu-scheduler")
    wanted = used("scheduler") | events()
    compare(wanted, rights, KUBE_SCHEDULER)
    leases = {key: names for key, names in rights.items() if key[1] == "leases"}
    true(all(names == {"vgpu-scheduler"} or key[2] == "create" for key, names in leases.items()), f"of one Lease: {leases}")
    true(all(one[3] for one in wanted if one[1] == "leases"), "the Lease is asked for by its name")
    rights = granted(helm.objects({"scheduler": {"leaderElect": False}}), "vgpu-scheduler")
    compare({one for one in wanted if one[1] != "leases"}, rights)


@test
def scheduler_roles():
    """kube-scheduler gets Kubernetes' own roles for it, where it is there"""
    for values, wanted in (({}, {"system:kube-scheduler", "system:volume-scheduler", "extension-apiserver-authentication-reader"}),
                           ({"scheduler": {"kubeScheduler": {"enabled": False}}}, set())):
        found = helm.objects(values)
        roles = {one["roleRef"]["name"] for (kind, _), one in found.items() if kind.endswith("RoleBinding")
                 and (one["roleRef"]["kind"], one["roleRef"]["name"]) not in found}
        equal(roles, wanted, f"with {values}")


@test
def node():
    """the account of device plugin and monitor has the rights that they use"""
    compare(used("node") | events(), granted(helm.objects(), "vgpu-device-plugin"))


@test
def certgen():
    """the jobs' account has the rights that vgpu-certgen uses, each to its own objects alone"""
    found = helm.objects()
    rights = granted(found, "vgpu-admission")
    compare(used("certgen"), rights)
    for (group, resource, verb), names in rights.items():
        wanted = {"": {"vgpu-scheduler-tls", "vgpu-scheduler-proof"}}.get(group, {"vgpu-webhook"})
        equal(names, {""} if verb == "create" else wanted, f"{verb} {resource}")
    true(("ClusterRole", "vgpu-admission") in found and not any(
        "secrets" in rule["resources"] for rule in found["ClusterRole", "vgpu-admission"]["rules"]), "Secrets of its namespace alone")


tap.main()
