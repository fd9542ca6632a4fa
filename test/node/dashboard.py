# SPDX-License-Identifier: Apache-2.0
"""dashboard BUILD: deploy/grafana/vgpu.json against the metrics that are exported: those of vgpu-monitor by what it
says over a node with regions of all kinds, those of HAMi's scheduler by their names."""
import json
import os
import re
import time

from monitor_world import ROOT, World
from tap import equal, test, true
import tap

from mine import BUILD, MINE
from place import Program

SCHEDULER = {name: {"node", "device_index", "device_uuid", "device_type"}
             for name in ("hami_gpu_memory_limit_bytes", "hami_gpu_memory_allocated_bytes", "hami_gpu_shared_count")}
WORDS = {"count", "sum", "by", "rate", "increase", "label_values"}  # of PromQL and Grafana

with open(os.path.join(ROOT, "deploy/grafana/vgpu.json"), encoding="utf-8") as opened:
    BOARD = json.load(opened)


def exported():
    """name: its labels"""
    names = {}
    with World(BUILD) as world:
        world.pod()
        world.pod("h")
        world.region("uid-h_main", {"uuids": ["GPU-1"], "limit": [1], "last_kernel_time": int(time.time())})
        path = os.path.join(world.container("uid-w_main"), "1.cache")
        with Program("--region", path, f"--sim=1xh200,machine={world.path('machine')}", "--memory", "2g", "--cores",
                     "30", environment=MINE) as program:
            program.got(1)
            world.start("--feedback-interval=200ms", LD_LIBRARY_PATH=os.path.join(BUILD, "src/sim"), VGPU_SIM="1xh200",
                        VGPU_SIM_MACHINE=world.path("machine"))
            world.until(lambda: any(k.startswith("hami_host_gpu") for k in world.samples()), "the cards")
            for key in world.samples():
                name, _, labels = key.partition("{")
                names.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return names


def expressions():
    """(where, expression, legend)"""
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", variable["query"]["query"], ""
    for panel in BOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], target["legendFormat"]


def words_of(expression):
    """Metrics, and the labels that are named outside of texts."""
    plain = re.sub(r'"[^"]*"', '""', re.sub(r"\[[^]]*\]", "", expression))
    inside = " ".join(re.findall(r"\{([^}]*)\}", plain) + re.findall(r"\bby \(([^)]*)\)", plain)
                      + re.findall(r"label_values\([^,]*(?:\{[^}]*\})?, (\w+)\)", plain))
    labels = set(re.findall(r"[a-z_]+", inside))
    metrics = set(re.findall(r"[a-z_][a-z0-9_]*", re.sub(r"\{[^}]*\}", "", plain))) - WORDS - labels
    return metrics, labels


@test
def names():
    """each metric and each label in the dashboard is one that is exported"""
    known = {**exported(), **SCHEDULER}
    used = set()
    for where, expression, legend in expressions():
        metrics, labels = words_of(expression)
        true(metrics and expression.count("(") == expression.count(")"), f"{where}: {expression}")
        for name in metrics:
            true(name in known, f"{where}: {name} is not exported")
            wrong = (labels | set(re.findall(r"\{\{(\w+)\}\}", legend))) - known[name]
            true(not wrong, f"{where}: {name} has no label {wrong}, but {known[name]}")
        used |= metrics
    true({n for n in used if n.startswith("vgpu_")} and len(used) > 14, used)


@test
def layout():
    """panels have an id of their own, a data source that can be chosen, and a place that no other has"""
    ids = [panel["id"] for panel in BOARD["panels"]]
    equal(len(ids), len(set(ids)))
    taken = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        true(not cells & taken and place["x"] + place["w"] <= 24, f"{panel['title']} lies over another")
        taken |= cells
        for target in panel.get("targets", []):
            equal(target["datasource"]["uid"], "${datasource}", panel["title"])


tap.main()
