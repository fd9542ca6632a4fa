# SPDX-License-Identifier: Apache-2.0
"""cases BUILD [DIRECTORY...]: the behaviour cases of the kinds schedule, webhook, request.parse, lock,
extender.http and metrics.scheduler over HTTP against vgpu-scheduler, as files or lists of cases in the directories (those of our other tests
without one). Cases of schedule run twice: with the annotations written by the filter, and by the binding."""
import base64
import copy
import datetime
import glob
import json
import os
import re
import sys

from scheduler_world import (ALLOCATED, LOCK, NODE, ROOT, TIME, TO_ALLOCATE, World, make_node, make_pod, tap, until)
import api_patch

equal, true = tap.equal, tap.true
TIME_TEXT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def load():
    own = [os.path.join(ROOT, "test", folder, "cases") for folder in ("schedule", "admission", "cluster")]
    for directory in sys.argv[2:] or own:
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
    for key, flag in (("schedulerName", "scheduler-name"), ("owners", "owners")):
        if key in config:
            value = config[key]
            options.append(f"--{flag}={','.join(value) if isinstance(value, list) else value}")
    if case["kind"] == "webhook":  # HAMi's cases say it where it is true
        options.append("--force-overwrite-default-scheduler="
                       + str(bool(config.get("forceOverwriteDefaultScheduler"))).lower())
    others = {*flags, "schedulerName", "owners", "forceOverwriteDefaultScheduler"}
    nvidia = {key: value for key, value in config.items() if key not in others}
    if nvidia:
        path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"vgpu-config-{os.getpid()}.yaml")
        with open(path, "w", encoding="ascii") as file:
            json.dump({"nvidia": nvidia}, file)  # which is YAML, too
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


def at(value, pointer):
    """(whether it is there, what is there)"""
    for name in pointer.split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list):
            if not name.isdigit() or int(name) >= len(value):
                return False, None
            value = value[int(name)]
        elif not isinstance(value, dict) or name not in value:
            return False, None
        else:
            value = value[name]
    return True, value


def without_empty(value):
    if isinstance(value, dict):
        kept = {key: without_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, {}, [])}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


def check_env(expect, pod):
    containers = {c["name"]: {e["name"]: e.get("value") for e in c.get("env") or []}
                  for kind in ("initContainers", "containers") for c in pod["spec"].get(kind) or []}
    for name, wanted in expect.get("env", {}).items():
        true(wanted.items() <= containers[name].items(), f"{name}: {containers[name]}")
    for name, absent in expect.get("env_absent", {}).items():
        equal([key for key in absent if key in containers[name]], [], f"{name}'s variables")


def run_webhook(case, _):
    review, expect = case["input"]["review"], case["expect"]
    path = "/validate" if case["input"].get("role") == "validate" else "/webhook"
    with world_of(case) as world:
        text = review if isinstance(review, str) else json.dumps(review)
        status, body = world.request("POST", path, text)
        equal(status, 200)
        answer = json.loads(body)
        response = answer["response"]
        for key, got in (("allowed", response["allowed"]), ("uid", response.get("uid")),
                         ("apiVersion", answer.get("apiVersion")),
                         ("code", response.get("status", {}).get("code", 200))):
            if key in expect:
                equal(got, expect[key], key)
        message = response.get("status", {}).get("message", "")
        true(expect.get("message_contains", "") in message, message)
        pod = review["request"].get("object") if isinstance(review, dict) else None
        if not response["allowed"] or not isinstance(pod, dict):
            return
        patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
        after = api_patch.apply("application/json-patch+json", copy.deepcopy(pod), patch)
        for pointer, value in expect.get("after", {}).items():
            found, got = at(after, pointer)
            true(found and str(got) == str(value), f"{pointer} is {got}, not {value}")
        for pointer in expect.get("absent", []):
            true(not at(after, pointer)[0], f"{pointer} is there")
        if expect.get("unchanged"):
            equal(without_empty(after), without_empty(pod))
        check_env(expect, after)


def run_request(case, _):
    """By what a Pod with the container gets on a node with much of all."""
    expect, total, resources = case["expect"], 2147483647, case["input"]["resources"]
    with world_of(case) as world:
        node = make_node("n1", cards=8, memory=total, count=200)
        names = case["input"].get("config", {})
        count = names.get("resourceCountName", "nvidia.com/gpu")
        node["status"]["allocatable"] = {count: "1000"}
        world.create("nodes", node)
        pod = make_pod("p", cards=0)
        pod["spec"]["containers"][0]["resources"] = resources
        pod = world.create("pods", pod)
        until(lambda: world.metric("hami_gpu_core_limit_ratio") is not None, "the node")
        answer = world.filter(pod, ["n1"])
        if expect.get("none"):
            equal((answer["NodeNames"], answer["Error"]), (["n1"], ""))
            equal(world.metric("hami_vgpu_memory_allocated_bytes"), None)
            return
        if expect["nums"] > 8:
            true("NodeInsufficientDevice" in answer["FailedNodes"]["n1"], answer)
            return
        equal(world.bind(pod, "n1"), "")
        devices = [d.split(",") for d in world.said("p")[ALLOCATED].split(";")[0].split(":") if d]
        memory = expect["mem"] or total * expect["mem_percent"] // 100
        cores = min(expect["cores"], 100)  # as a device has no more
        equal([d[2:] for d in devices], [[str(memory), str(cores)]] * expect["nums"])


def long_since(pod):
    """It was created before each lock."""
    pod["metadata"]["creationTimestamp"] = "2000-01-01T00:00:00Z"
    return pod


def run_lock(case, _):
    given, expect = case["input"], case["expect"]
    form, zone = "%Y-%m-%dT%H:%M:%SZ", datetime.timezone.utc
    own = given["pod"]
    with World((), [f"--node-lock-timeout={given['expiry']}"]) as world:
        text = given.get("annotation")
        found = re.match(TIME_TEXT, text or "")
        if found:  # as long ago as in the case
            age = datetime.datetime.strptime(given["now"], form) - datetime.datetime.strptime(found[0], form)
            text = (datetime.datetime.now(zone) - age).strftime(form) + text[len(found[0]):]
        node = make_node(given["node"], ours=False, **({LOCK: text} if text is not None else {}))
        world.create("nodes", node)
        for name in given["existing_pods"]:
            space, name = name.split("/")
            if (space, name) != (own["namespace"], own["name"]):
                world.create("pods", long_since(make_pod(name, cards=0, namespace=space)))
        pod = world.create("pods", long_since(make_pod(own["name"], namespace=own["namespace"])))
        until(lambda: world.filter(pod, [given["node"]])["NodeNames"], "the node")
        error = world.bind(pod, given["node"])
        after = world.node(given["node"])["metadata"]["annotations"].get(LOCK)
        equal(error == "", expect["result"] == "acquired", error)
        true(expect.get("error_contains", "") in error, error)
        if "annotation_after_regex" in expect:
            wanted = re.sub(TIME_TEXT, lambda _: TIME_TEXT, expect["annotation_after_regex"])
            true(re.search(wanted, after or ""), after)
        if expect.get("patched") is False:
            equal(after, text, "the annotation")


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


def is_for_http(case):
    """Cases of the pure parts may give what no API server has: those stay with them."""
    given = case["input"]
    if case["kind"] == "webhook":
        pod = given.get("review", {}).get("request", {}).get("object")
        return (isinstance(pod, dict) and isinstance(pod.get("spec"), dict)
                and all("name" in quota for quota in given.get("quotas", []))
                and all("spec" in other for other in given.get("pods", []))
                and all(isinstance(e, dict) for c in pod["spec"].get("containers") or [] if isinstance(c, dict)
                        for e in c.get("env") or []))
    if case["kind"] == "lock":
        text = given.get("annotation") or ""
        return not text[:1].isdigit() or bool(re.match(TIME_TEXT + "(,|$)", text)) and "-02-29" not in text
    return True


KINDS = {"schedule": (run_schedule, (True, False)), "webhook": (run_webhook, (None,)), "lock": (run_lock, (None,)),
         "request.parse": (run_request, (None,)), "extender.http": (run_extender, (None,)),
         "metrics.scheduler": (run_metrics, (None,))}
for one in load():
    run, modes = KINDS.get(one["kind"], (None, ()))
    modes = modes if run and is_for_http(one) else ()
    for mode in modes:
        def body(case=one, which=mode, function=run):
            function(case, which)
        body.__doc__ = one["name"] + {True: ", by a patch", False: ", by the binding", None: ""}[mode]
        tap.test(body)
tap.main()
