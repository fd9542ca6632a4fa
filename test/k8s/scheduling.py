# SPDX-License-Identifier: Apache-2.0
"""scheduling BUILD [WORD...]: vgpu-scheduler under a real API server, kube-scheduler and controller
manager (scheduling_world.py). Run by scripts/test-cluster, which makes namespaces and removes all files.
The first test always runs. An observer looks at each change of a Pod whether a device is over-committed."""
import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
# pylint: disable=wrong-import-position
import tap  # noqa: E402
from tap import equal, true

from control_plane import Refused, wait_for
from hami import ALLOCATED, LOCK, PHASE
from observer import NODE, shares
from scheduling_world import ADDRESSES, NAME, World, pod

PODS = "/api/v1/namespaces/default/pods"
# Two nodes of vgpu's plugin and one of HAMi's, of two cards of 10,000 MiB each: three Pods of 3,000 MiB
# on a card.
ROOM = 18


def refusal(function, *arguments, **more):
    """(status, text) of the API server's; None: it was done."""
    try:
        function(*arguments, **more)
    except Refused as error:
        return error.status, str(error)
    return None


def refused(function, *arguments, **more):
    found = refusal(function, *arguments, **more)
    true(found, "it was not refused")
    return found


def test(function):
    """One that begins without Pods of others."""
    def alone():
        if World.api:
            World.clean()
        function()
        World.check()
    alone.__doc__ = function.__doc__
    return tap.test(alone)


def events(name, reason):
    found = World.api.get(f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name}")["items"]
    return [one["message"] for one in found if one["reason"] == reason]


@test
def starts():
    """a Pod goes through webhook, kube-scheduler and extender over TLS, and has its devices with the Binding"""
    World.start(sys.argv[1])
    World.add_node("n-1")
    World.add_node("n-2")
    World.add_node("n-3", ours=False)
    World.create("one", 3000, cores=30)
    made = World.get("one")
    equal(made["spec"]["schedulerName"], NAME, "the scheduler that the webhook wrote")
    found = World.wait_running("one")
    annotations, node = found["metadata"]["annotations"], found["spec"]["nodeName"]
    got = shares(found)
    true(len(got) == 1 and len(got[0]) == 1 and got[0][0][1:] == (3000, 30), got)
    equal(annotations[NODE], node, "the annotation")
    true(re.fullmatch(r"\S{20,}", annotations["vgpu.io/proof"]), annotations)
    wait_for("the plugin's outcome stands", lambda: World.get("one")["metadata"]["annotations"][PHASE] == "success")
    print(f"# labels of the Pod after the Binding: {found['metadata'].get('labels')}")
    wait_for("its events are there", lambda: events("one", "BindingSucceed") and events("one", "FilteringSucceed"))


@test
def label():
    """a bound Pod has the label of its node, whether the API server takes labels of a Binding or not"""
    World.need()
    World.create("labelled", 3000)
    node = World.wait_running("labelled")["spec"]["nodeName"]
    wait_for("the label is there", lambda: World.get("labelled")["metadata"].get("labels", {}).get(NODE) == node, 30)
    tap.checked()


@test
def plain():
    """a Pod without devices stays with the cluster's own scheduler, and with ours it is bound too"""
    World.need()
    World.create("plain", None, cards=0)
    World.create("named", None, cards=0, schedulerName=NAME)
    equal(World.wait_running("plain")["spec"]["schedulerName"], "default-scheduler")
    true(ALLOCATED not in World.wait_running("named")["metadata"].get("annotations", {}), "it has devices")


@test
def deployments():
    """Deployments scale up and down: devices are given back, taken again, and never over-committed"""
    World.need()
    World.deploy("first", 10)
    World.wait_counts("first", 10, 0)
    equal(World.observer.total(), (30000, 10), "what is held")
    World.scale("first", ROOM + 6)
    World.wait_counts("first", ROOM, 6)
    waiting = next(one for one in World.pods() if one["status"]["phase"] == "Pending")["metadata"]["name"]
    text = wait_for("an event says why one waits", lambda: events(waiting, "FilteringFailed"))[-1]
    true("CardInsufficientMemory" in text, text)
    World.scale("first", 4)
    World.wait_counts("first", 4, 0)
    wait_for("the devices are free", lambda: World.observer.total() == (12000, 4))
    World.deploy("second", ROOM)
    World.wait_counts("second", ROOM - 4, 4)
    for _ in range(3):  # both at once
        World.scale("first", 12)
        World.scale("second", 3)
        World.wait_counts("second", 3, 0)
        World.wait_counts("first", 12, 0)
        World.scale("first", 2)
        World.scale("second", 14)
        World.wait_counts("first", 2, 0)
        World.wait_counts("second", 14, 0)
    World.scale("first", 0)
    World.scale("second", 0)
    World.wait_counts("first", 0, 0)
    World.wait_counts("second", 0, 0)
    wait_for("nothing is held", lambda: World.observer.total() == (0, 0))
    true(World.observer.highest >= 0.9, f"the fullest card was at {World.observer.highest}")
    true(LOCK not in World.api.get("/api/v1/nodes/n-3")["metadata"]["annotations"], "a node's lock has stayed")


@test
def jobs():
    """Pods that end by themselves give their devices back though they are not deleted"""
    World.need()
    for index in range(ROOM):
        World.create(f"job-{index}")
    wait_for("all run", lambda: all(one["status"]["phase"] == "Running" for one in World.pods()))
    World.create("next")
    wait_for("an event says why it waits", lambda: events("next", "FilteringFailed"))
    World.keeper.api.patch(f"{PODS}/job-0/status", {"status": {"phase": "Succeeded"}})
    World.wait_running("next")
    equal(World.get("job-0")["status"]["phase"], "Succeeded")


@test
def quota():
    """a namespace's quota holds at the webhook and at the filter, and is free again when Pods are gone"""
    World.need()
    World.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    World.api.call("POST", "/api/v1/namespaces/team/resourcequotas", {"metadata": {"name": "gpu"}, "spec": {"hard": {
        "limits.nvidia.com/gpumem": "7000"}}})
    wait_for("the ServiceAccount is there",
             lambda: World.api.found("/api/v1/namespaces/team/serviceaccounts/default"))
    status, text = wait_for("the quota is known", lambda: refusal(
        World.api.call, "POST", "/api/v1/namespaces/team/pods?dryRun=All", pod("try", 8000)))
    true(status == 403 and "quota" in text, text)
    World.deploy("shared", 2, space="team")
    World.wait_counts("shared", 2, 0, space="team")
    wait_for("the third is refused", lambda: refused_by_quota("team"))
    # Those that got past the webhook at once with others wait at the filter.
    World.create("late", 3000, space="team", labels={"hami.io/webhook": "ignore"}, schedulerName=NAME)
    time.sleep(3)
    true("nodeName" not in World.get("late", "team")["spec"], "it was bound beyond the quota")
    World.scale("shared", 0, space="team")
    World.wait_running("late", "team")
    equal(World.observer.total(), (3000, 1), "what is held")


def refused_by_quota(space):
    try:
        World.api.call("POST", f"/api/v1/namespaces/{space}/pods?dryRun=All", pod("try", 3000))
    except Refused as error:
        return error.status == 403 and "quota" in str(error)
    return False


@test
def bypass():
    """a Pod that passes by the webhook gets devices by the filter, or none at all, never unknown ones"""
    World.need()
    passed = {"hami.io/webhook": "ignore"}
    World.create("ours", 3000, labels=passed, schedulerName=NAME)
    equal(shares(World.wait_running("ours"))[0][0][1], 3000, "its memory")
    # The cluster's own scheduler knows no node with this resource.
    World.create("other", 3000, labels=passed)
    # What names its node has no devices by our annotations; the device plugin refuses it.
    World.create("placed", 3000, labels=passed, nodeName="n-1")
    true(ALLOCATED not in World.get("placed")["metadata"].get("annotations", {}), "it has devices")
    time.sleep(3)
    true("nodeName" not in World.get("other")["spec"], "it was bound")
    status, text = refused(World.create, "placed-too", 3000, nodeName="n-1")
    true(status == 403, text)


@test
def owned():
    """users, an administrator too, can neither write, change nor remove what says which devices a Pod has"""
    World.need()
    World.create("mine", 3000, api=World.alice)
    found = World.wait_running("mine")
    before = World.get("mine")["metadata"]["annotations"]
    wrong = f"GPU-{found['spec']['nodeName']}-0,NVIDIA,9000,0:;"
    for who in (World.alice, World.api):
        for labels in ({}, {"hami.io/webhook": "ignore"}):
            status, text = refused(World.create, "forged", 3000, api=who, labels=labels, annotations={ALLOCATED: wrong})
            true(status == 403 and ALLOCATED in text, text)
        for value in (wrong, None):
            for key in (ALLOCATED, NODE, "vgpu.io/proof", PHASE):
                status, text = refused(who.patch, f"{PODS}/mine", {"metadata": {"annotations": {key: value}}})
                true(status == 403 and key in text, text)
        who.patch(f"{PODS}/mine", {"metadata": {"annotations": {"note": "mine"}}})
    status, text = refused(World.api.patch, f"{PODS}/mine/status", {"metadata": {"annotations": {ALLOCATED: None}}})
    true(status == 403, text)
    World.create("unbound", None, cards=0, schedulerName="nobody")
    status, text = refused(World.api.call, "POST", f"{PODS}/unbound/binding", {
        "metadata": {"name": "unbound", "annotations": {ALLOCATED: wrong}}, "target": {"kind": "Node", "name": "n-1"}})
    true(status == 403, text)
    after = World.get("mine")["metadata"]["annotations"]
    after.pop("note")
    for key in (ALLOCATED, NODE, "vgpu.io/proof"):
        equal(after[key], before[key], key)


@test
def webhook_down():
    """without a scheduler Pods are refused under failurePolicy Fail; under Ignore none gets a device unseen"""
    World.need()
    for pair in ADDRESSES:
        World.plane.stop("vgpu-" + pair, signal.SIGKILL)
        World.plane.stop("kube-" + pair, signal.SIGKILL)
    wait_for("the Service has no endpoints", lambda: not World.api.get(
        "/api/v1/namespaces/kube-system/endpoints/vgpu-scheduler").get("subsets"))
    status, text = wait_for("Pods are refused", lambda: refusal(
        World.api.call, "POST", PODS + "?dryRun=All", pod("try", 3000)))
    true(status >= 400 and "webhook" in text, text)
    World.register_webhooks("Ignore")

    def made():
        World.create("unseen", 3000)
        return True
    wait_for("a Pod is made", made)
    equal(World.get("unseen")["spec"].get("schedulerName"), "default-scheduler", "its scheduler")
    time.sleep(5)
    true("nodeName" not in World.get("unseen")["spec"], "it was bound")
    World.register_webhooks()
    World.start_missing()
    wait_for("one of the schedulers is ready", World.leader)

    def runs():
        try:
            World.create("seen", 3000)
        except Refused as error:
            if error.status == 409:
                return True
            raise
        return True
    wait_for("Pods are taken again", runs)
    World.wait_running("seen")


@test
def restarts():
    """vgpu-scheduler is killed again and again amid a rollout: all Pods come, nothing is over-committed"""
    World.need()
    World.register_webhooks("Ignore")  # what is made meanwhile has the scheduler's name already
    World.deploy("rolled", ROOM, schedulerName=NAME)
    for _ in range(6):
        time.sleep(0.7)
        for pair in ADDRESSES:
            World.plane.stop("vgpu-" + pair, signal.SIGKILL)
        World.start_missing()
    World.wait_counts("rolled", ROOM, 0)
    World.api.patch("/apis/apps/v1/namespaces/default/deployments/rolled", {"spec": {
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "50%"}},
        "template": {"metadata": {"annotations": {"round": "2"}}}}})
    for _ in range(4):
        time.sleep(1)
        pair = World.leader() or "a"
        World.plane.stop("vgpu-" + pair, signal.SIGKILL)
        World.start_missing()
    wait_for("all Pods are of the second round", lambda: all(
        one["metadata"].get("annotations", {}).get("round") == "2" for one in World.pods()))
    World.wait_counts("rolled", ROOM, 0)
    equal(World.observer.total(), (3000 * ROOM, ROOM), "what is held")


@test
def failover():
    """the leading kube-scheduler and its vgpu-scheduler are killed: the other pair takes over"""
    World.need()
    World.deploy("moving", 4)
    World.wait_counts("moving", 4, 0)
    for replicas in (ROOM, 6, ROOM):
        old = wait_for("one of the schedulers is ready", World.leader)
        World.scale("moving", replicas)
        time.sleep(0.4)
        started = time.monotonic()
        for name in ("vgpu-", "kube-"):
            World.plane.stop(name + old, signal.SIGKILL)
        other = next(one for one in ADDRESSES if one != old)
        true(World.ask(other, "/readyz")[0] != 200, "the other was ready while the Lease was not its own")
        wait_for("the other one leads", lambda other=other: World.ask(other, "/readyz")[0] == 200)
        print(f"# {other} leads {time.monotonic() - started:.1f} s after the end of {old}")
        World.start_missing()
        World.wait_counts("moving", replicas, 0)
        true(World.ask(old, "/readyz")[0] != 200, "the old one is ready beside the new one")
    equal(World.observer.total(), (3000 * ROOM, ROOM), "what is held")


@test
def api_server():
    """the API server is killed amid a rollout: all Pods come when it is back"""
    World.need()
    World.deploy("through", ROOM)
    time.sleep(1)
    # A kube-scheduler that cannot renew its Lease ends, and kubelet would start it again.
    schedulers = {name: World.plane.processes.pop(name) for name in ["kube-" + pair for pair in ADDRESSES]}
    World.plane.stop("apiserver", signal.SIGKILL)
    time.sleep(3)
    World.plane.start_api_server()
    World.plane.processes.update({name: one for name, one in schedulers.items() if one.poll() is None})
    World.start_missing()
    World.wait_counts("through", ROOM, 0)
    equal(World.observer.total(), (3000 * ROOM, ROOM), "what is held")


def chosen(words):
    if words:
        tap.TESTS[1:] = [one for one in tap.TESTS[1:] if any(word in tap.sentence_of(one) for word in words)]


chosen(sys.argv[2:])
tap.main()
