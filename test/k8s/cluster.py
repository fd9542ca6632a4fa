# SPDX-License-Identifier: Apache-2.0
"""cluster BUILD [WORD...]: vgpu's node side in a cluster of one node, made of the real programs of
Kubernetes (peers.py). Run by scripts/test-cluster, which makes namespaces and removes all files."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
import tap  # noqa: E402 pylint: disable=wrong-import-position
from tap import Skip, equal, needed, test, true  # pylint: disable=wrong-import-position

import peers  # pylint: disable=wrong-import-position
from control_plane import ControlPlane, wait_for  # pylint: disable=wrong-import-position
from machine import Machine  # pylint: disable=wrong-import-position
from node import IMAGE, Node  # pylint: disable=wrong-import-position

BUILD = sys.argv[1]


class World:
    plane = node = api = None


@needed
def starts():
    """a cluster of one node starts, and runs a Pod from our image"""
    world_starts()
    World.api.call("POST", "/api/v1/namespaces/default/pods", {
        "metadata": {"name": "plain"},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                 "containers": [{"name": "c", "image": IMAGE, "imagePullPolicy": "Never",
                                 "command": ["vgpu", "--version"]}]}})
    wait_for("the Pod has ended", lambda: World.api.get("/api/v1/namespaces/default/pods/plain")["status"]["phase"] == "Succeeded")
    equal(World.plane.kubectl("logs", "plain").stdout.split()[0], "vgpu")


def world_starts():
    if World.plane:
        return
    reason = os.environ.get("VGPU_TEST_CLUSTER_REASON") or peers.why_not()
    if reason:
        raise Skip(reason)
    print("# " + "; ".join(peers.versions()), flush=True)
    machine = Machine(os.environ["TMPDIR"], os.environ["VGPU_TEST_CLUSTER"])
    World.plane = ControlPlane(machine)
    World.api = World.plane.api
    World.node = Node(World.plane, BUILD)
    World.plane.start_all()
    World.node.make_image()
    World.node.start_runtime()
    World.node.start_kubelet()
    wait_for("the node is ready", World.node.is_ready)
    wait_for("the default ServiceAccount is there",
             lambda: World.api.found("/api/v1/namespaces/default/serviceaccounts/default"))


tap.main()
