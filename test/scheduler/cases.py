# SPDX-License-Identifier: Apache-2.0
"""cases BUILD [DIRECTORY]: the behaviour cases of the kinds schedule, extender.http and
metrics.scheduler against vgpu-scheduler, as files or lists of cases in the directory (the scheduler's own
without one). Cases of schedule run twice: with the annotations written by the filter, and by the binding."""
import copy
import glob
import json
import os
import sys

from scheduler_world import ALLOCATED, NODE, ROOT, TIME, TO_ALLOCATE, World, tap, until

equal, true = tap.equal, tap.true


def load():
    directory = sys.argv[2] if len(sys.argv) > 2 else os.path.join(ROOT, "test/schedule/cases")
    for path in sorted(glob.glob(os.path.join(directory, "*.json"))):
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
        yield from value if isinstance(value, list) else [value]


def world_of(case, *options):
    given = case["input"]
    objects = [("nodes", {"metadata": {"name": n["name"], "annotations": n["annotations"]},
                          "status": {"allocatable": n.get("allocatable") or {"nvidia.com/gpu": "1"}}})
               for n in given.get("nodes", [])]
    objects += [("pods", copy.deepcopy(pod)) for pod in given.get("pods", [])]
    objects += [("resourcequotas", {"metadata": {"name": q["name"], "namespace": q["namespace"]},
                                    "spec": {"hard": q["hard"]}}) for q in given.get("quotas", [])]
    config = given.get("config", {})
    flags = {"nodeSchedulerPolicy": "node-scheduler-policy", "gpuSchedulerPolicy": "gpu-scheduler-policy",
             "defaultMemory": "default-mem", "defaultCores": "default-cores"}
    options = list(options) + [f"--{flags[key]}={value}" for key, value in config.items() if key in flags]
    if "memoryFactor" in config:
        path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"vgpu-config-{os.getpid()}.yaml")
        with open(path, "w", encoding="ascii") as file:
            file.write(f"nvidia:\n  memoryFactor: {config['memoryFactor']}\n")
        options.append(f"--device-config-file={path}")
    return World(objects, options)


def uuids(text):
    return [[d.split(",")[0] for d in place.split(":") if "," in d] for place in text.split(";")[:-1]]


def check_placed(expect, answer, said):
    equal(answer["NodeNames"], [expect["node"]])
    text = said[ALLOCATED]
    if "devices" in expect:
        equal(text, expect["devices"])
    if "devices_set" in expect:
        equal([sorted(u) for u in uuids(text)], [sorted(u) for u in expect["devices_set"]])
    if "devices_any" in expect:
        true(uuids(text) in expect["devices_any"], f"{text} is none of the accepted")
    equal(said[TO_ALLOCATE], text)
    equal(said[NODE], expect["node"])
    true(said[TIME].isdigit(), "a time")


def run_schedule(case, patch):
    expect = case["expect"]
    with world_of(case, f"--compat-filter-patch={'true' if patch else 'false'}") as world:
        pod = world.create("pods", copy.deepcopy(case["input"]["pod"]))
        answer = world.filter(pod, case["input"]["nodeNames"])
        if expect.get("error"):
            true(answer["Error"] and not answer["NodeNames"], f"no error: {answer}")
        elif expect.get("passthrough"):
            equal(answer["NodeNames"], expect.get("node_names", case["input"]["nodeNames"]))
        elif expect["node"] is None:
            equal((answer["FailedNodes"], answer["NodeNames"], answer["Error"]), (expect["failed"], None, ""))
        else:
            equal(answer["Error"], "")
            if not patch:
                equal(world.bind(pod, expect["node"]), "")
            name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
            said = lambda: world.pod(name, space)["metadata"]
            check_placed(expect, answer, said()["annotations"])
            until(lambda: said().get("labels", {}).get(NODE) == expect["node"], "the label")


def subset(wanted, got):
    return all(key in got and got[key] == value for key, value in wanted.items())


def run_extender(case, _):
    given, expect = case["input"], case["expect"]
    with world_of(case) as world:
        method = given.get("method", "POST" if "body" in given else "GET")
        status, text = world.request(method, given["path"], given.get("body"))
        equal(status, expect["status"])
        if "json_subset" in expect:
            true(subset(expect["json_subset"], json.loads(text)), text)
        if expect.get("error_nonempty"):
            true(json.loads(text)["Error"], text)


def samples_of(text):
    samples, types, helps = {}, {}, {}
    for line in text.splitlines():
        words = line.split(" ", 3)
        if line.startswith("# TYPE"):
            types[words[2]] = words[3]
        elif line.startswith("# HELP"):
            helps[words[2]] = words[3]
        elif line:
            key, value = line.rsplit(" ", 1)
            name, _, labels = key.partition("{")
            labels = ",".join(sorted(labels.rstrip("}").split('",'))) if labels else ""
            samples[name + "|" + labels.replace('"', "")] = float(value)
    return samples, types, helps


def run_metrics(case, _):
    expect = case["expect"]
    options = ["--legacy-metrics"] if case["input"].get("legacy") else []
    with world_of(case, *options) as world:
        samples, types, helps = samples_of(world.get("/metrics", world.metrics_port)[1])
        names = {key.split("|")[0] for key in samples}
        for key, value in expect.get("samples", {}).items():
            wanted = next(iter(samples_of(f"{key} {value}\n")[0]))
            true(wanted in samples and abs(samples[wanted] - value) < 1e-9, f"{wanted}: {samples.get(wanted)}")
        for key in expect.get("absent", []):
            true(next(iter(samples_of(f"{key} 0\n")[0])) not in samples, f"{key} is there")
        for name in expect.get("absent_metric", []):
            true(name not in names, f"{name} is there")
        for name, text in expect.get("help", {}).items():
            equal(helps[name], text)
        if "type_all" in expect:
            true(all(kind == expect["type_all"] for name, kind in types.items() if not name.startswith("vgpu_")), types)


KINDS = {"schedule": (run_schedule, (True, False)), "extender.http": (run_extender, (None,)),
         "metrics.scheduler": (run_metrics, (None,))}
for one in load():
    run, modes = KINDS.get(one["kind"], (None, ()))
    for mode in modes:
        def body(case=one, which=mode, function=run):
            function(case, which)
        body.__doc__ = one["name"] + {True: ", by a patch", False: ", by the binding", None: ""}[mode]
        tap.test(body)
tap.main()
