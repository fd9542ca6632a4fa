# SPDX-License-Identifier: Apache-2.0
"""monitor_cases DIRECTORY [BUILD]: runs the behaviour cases of the kinds metrics.monitor and feedback, a file
being a case or a list of cases, against vgpu-monitor as a black box: a fake API server with the case's Pods,
region files with its words, and what /metrics then says and the files then hold."""
import json
import os
import pathlib
import sys
import time

from monitor_world import ROOT, World
import tap

DIRECTORY = sys.argv[1]
BUILD = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else os.path.join(ROOT, "build"))
SLACK_S = 30  # of a time that goes on while the test runs


def load():
    for path in sorted(pathlib.Path(DIRECTORY).glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        for case in content if isinstance(content, list) else [content]:
            if case["kind"] in ("metrics.monitor", "feedback"):
                yield case


def put_regions(world, given):
    """Their last_kernel_time is as far from now as it is from the case's `now`."""
    shift = int(time.time()) - given["now"] if "now" in given else 0
    regions = []
    for number, region in enumerate(given["regions"]):
        region = dict(region)
        if region.get("last_kernel_time"):
            region["last_kernel_time"] += shift
        directory = f"{region.get('pod_uid', f'uid-{number}')}_{region.get('container', 'main')}"
        regions.append(world.region(directory, region))
    return regions


def check_metrics(world, case):
    expect = case["expect"]
    samples, families = world.scrape()
    for key, value in expect.get("samples", {}).items():
        tap.true(key in samples, f"no {key}")
        if "elapsed" in key or "last_kernel" in key:
            tap.true(value <= samples[key] <= value + SLACK_S, f"{key} is {samples[key]}, not {value}")
        else:
            tap.equal(samples[key], value, key)
    absent = expect.get("absent", [])
    for key in [absent] if isinstance(absent, str) else absent:
        tap.true(key not in samples, f"{key} is there")
    absent = expect.get("absent_metric", [])
    for name in [absent] if isinstance(absent, str) else absent:
        tap.true(name not in families, f"{name} is there")
    for name, text in expect.get("help", {}).items():
        tap.equal(families[name][1], text, f"the help of {name}")
    if "type_all" in expect:
        names = [name for name in families if not name.startswith("vgpu_")]
        tap.equal({families[name][0] for name in names}, {expect["type_all"]}, "the types of HAMi's families")


def run_metrics(case):
    given = case["input"]
    with World(BUILD) as world:
        for pod in given.get("pods", []):
            world.server.put("pods", pod)
        put_regions(world, given)
        world.start(*(["--legacy-metrics"] if given.get("legacy") else []), NODE_NAME=given.get("node", "n1"))
        check_metrics(world, case)
        tap.equal(world.end(), 0, "the exit status")


def run_feedback(case):
    """The next round is 5 s away when the first is over."""
    with World(BUILD) as world:
        regions = put_regions(world, case["input"])
        world.start()
        world.until(lambda: world.samples()["vgpu_monitor_ticks_total"] >= 1, "a round")
        after = [region.words() for region in regions]
        tap.equal(world.samples()["vgpu_monitor_ticks_total"], 1, "rounds")
        for number, wanted in enumerate(case["expect"]["after"]):
            got = dict(zip(("utilization_switch", "recent_kernel"), after[number]))
            for key, value in wanted.items():
                tap.equal(got[key], value, f"{key} of region {number}")


def add(case):
    def run():
        (run_metrics if case["kind"] == "metrics.monitor" else run_feedback)(case)
    run.__doc__ = f"{case['kind']}: {case['name']}"
    tap.test(run)


for each in load():
    add(each)
tap.main()
