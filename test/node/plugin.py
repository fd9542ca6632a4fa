# SPDX-License-Identifier: Apache-2.0
"""plugin BUILD: the real vgpu-device-plugin with a fake API server, a fake kubelet and simulated cards."""
import datetime
import json
import os
import re
import signal
import subprocess
import time

from plugin_bed import BUILD, GPU, PROGRAM, REGISTER, ROOT, SCORES, Node, Plugin, health_of, tap, wait_for

equal, test, true = tap.equal, tap.test, tap.true
FIELDS = {"id", "index", "count", "devmem", "devcore", "type", "mode", "health"}


def uuids(node):
    return [card["id"] for card in node.wait_registered()]


@test
def registers():
    """the kubelet is offered replicas of each card, and the node gets one register annotation"""
    with Node() as node:
        node.start()
        register = node.kubelet.wait("register")
        equal((register["resource"], register["endpoint"]), (GPU, "nvidia-gpu.sock"))
        cards = node.wait_registered()
        equal(len(cards), 2)
        # What is 0 is left out: the first card's index, and the NUMA node.
        equal({key: value for key, value in cards[1].items() if key not in ("id", "numa")},
              {"index": 1, "count": 3, "devmem": 143771, "devcore": 100, "type": "NVIDIA H200",
               "mode": "hami-core", "health": True})
        true("index" not in cards[0] and re.fullmatch(r"GPU-[0-9a-f-]{36}", cards[0]["id"]), cards[0])
        devices = node.wait_devices(lambda d: len(d) == 6)
        equal(list(devices), [f"{card['id']}-{i}" for card in cards for i in range(3)])
        true(all(devices.values()), devices)
        true(re.fullmatch(r"\d+\.\d+\.\d+", node.annotation("vgpu.io/plugin")), "the plugin's version")
        # Several looks at the cards later.
        time.sleep(5)
        equal(len(node.patches()), 1, "patches of the node")
        equal(node.patches()[0]["content_type"], "application/merge-patch+json")


@test
def configured():
    """scaling, split count, filters and the node's own entry shape what is offered"""
    with Node("3xa100") as node:
        node.write("device-config.yaml", "nvidia:\n  deviceSplitCount: 4\n  deviceMemoryScaling: 1.5\n"
                   "  deviceCoreScaling: 2\n")
        node.write("config.json", {"nodeconfig": [
            {"name": "other", "devicesplitcount": 9},
            {"name": "n1", "devicesplitcount": 2, "filterdevices": {"index": [1]}}]})
        node.start("--device-cores-scaling", "1.2")
        cards = node.wait_registered()
        equal([(c.get("index", 0), c["count"], c["devcore"]) for c in cards], [(0, 2, 120), (2, 2, 120)])
        equal(cards[0]["devmem"], int(40960 * 1.5) if cards[0]["devmem"] < 70000 else int(81920 * 1.5))
        equal(len(node.wait_devices(lambda d: d)), 4)


@test
def read_again():
    """SIGHUP reads the configuration again; a bad one changes nothing"""
    with Node() as node:
        plugin = node.start()
        node.wait_devices(lambda d: len(d) == 6)
        node.write("device-config.yaml", "nvidia: {deviceSplitCount: 5}\n")
        plugin.process.send_signal(signal.SIGHUP)
        node.wait_devices(lambda d: len(d) == 10)
        node.wait_registered(lambda cards: all(card["count"] == 5 for card in cards))
        for bad, words in (("nvidia: [", "not YAML"), ("nvidia: &a [*a]", "refers to itself")):
            node.write("device-config.yaml", bad)
            since = plugin.log.count()
            plugin.process.send_signal(signal.SIGHUP)
            line = plugin.wait_line("what was read before stays", since)
            true(words in line, line)
        node.write("device-config.yaml", "nvidia: {deviceSplitCount: 2000, deviceMemoryScaling: 2}\n")
        since = plugin.log.count()
        plugin.process.send_signal(signal.SIGHUP)
        true("deviceSplitCount is 2000: a whole number from 1 to 1024" in
             plugin.wait_line("deviceSplitCount", since), plugin.log.lines[-3:])
        node.wait_registered(lambda cards: cards[0]["devmem"] == 2 * 143771)


@test
def bad_settings():
    """what is not understood is one line with name, value and what is accepted"""
    with Node() as node:
        for flags, environment, status, words in (
                (["--mig-strategy", "single"], {}, 2, ["--mig-strategy", '"single"', "none mixed"]),
                (["--device-split-count=0"], {}, 2, ["--device-split-count", '"0"', "1 to 1024"]),
                (["--device-memory-scaling", "1e3"], {}, 2, ["--device-memory-scaling", "1e3", "up to 100"]),
                ([], {"DEVICE_LIST_STRATEGY": "envvar,nothing"}, 2,
                 ["DEVICE_LIST_STRATEGY", "envvar,nothing", "cdi-cri"]),
                ([], {"PASS_DEVICE_SPECS": "maybe"}, 2, ["PASS_DEVICE_SPECS", "maybe", "true or false"]),
                ([], {"HOOK_PATH": "usr/local"}, 2, ["HOOK_PATH", "usr/local", "absolute path"]),
                (["--resource-name=gpu"], {}, 2, ["--resource-name", "gpu", "nvidia.com/gpu"]),
                (["--surprise"], {}, 2, ["--surprise", "--help"]),
                (["--device-discovery-strategy=tegra"], {}, 2, ["tegra", "auto nvml"]),
                (["--kubelet-socket"], {}, 2, ["--kubelet-socket", "value"]),
                ([], {"NODE_NAME": ""}, 2, ["--node-name", "NODE_NAME"]),
                (["--config-file", "/nowhere.yaml"], {}, 1, ["/nowhere.yaml", "No such file"]),
                ([], {"KUBECONFIG": "/nowhere"}, 1, ["/nowhere"])):
            got, lines = node.refuse(*flags, environment=environment)
            equal(got, status, f"status of {flags} {environment}")
            equal(len(lines), 1, f"lines of {flags} {environment}: {lines}")
            true(lines[0].startswith("ERROR ") and all(word in lines[0] for word in words), lines)
        node.write("config.json", {"nodeconfig": [{"name": "n1", "operatingmode": "mps"}]})
        got, lines = node.refuse()
        equal((got, len(lines)), (1, 1), "MPS")
        true("mps" in lines[0] and "hami-core" in lines[0], lines)


@test
def accepted_flags():
    """HAMi's flags without a meaning here are accepted; help and version are answered"""
    with Node() as node:
        plugin = node.start("-v=4", "--fail-on-init-error=false", "--mps-root=/x", "--imex-required",
                            "--nvidia-cdi-hook-path", "/usr/bin/nvidia-ctk", "--disable-core-limit=false")
        node.wait_registered()
        equal(len(plugin.log.find(lambda line: "has no effect" in line)), 3)
    for flag, word in (("--help", "--device-split-count"), ("--version", "vgpu-device-plugin ")):
        done = subprocess.run([PROGRAM, flag], capture_output=True, text=True, check=True)
        true(word in done.stdout and not done.stderr, done)


@test
def man_page():
    """the man page has each flag, its variable and default, and no other flag"""
    with open(os.path.join(ROOT, "man/vgpu-device-plugin.8"), encoding="utf-8") as file:
        page = file.read()
    text = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
    unread = re.search(r"^Accepted without effect:(.*)$", text, re.M)[1].split()
    rows = re.findall(r"^  --([a-z-]+) +(.*)$", text, re.M) + [(name[2:], "") for name in unread]
    true(len(rows) > 30, f"{len(rows)} flags")
    places = dict(re.findall(r"^\.It Fl Fl ([a-z-]+)(.*\n(?:(?!\.It |\.El).*\n)*)", page, re.M))
    equal(set(places) - {"help", "version"}, {name for name, _ in rows}, "flags of the man page")
    for name, rest in rows:
        for word in re.findall(r"\(also ([A-Z_]+)\)", rest) + re.findall(r" \[([^\]]+)\]$", rest):
            true(word in places[name], f"--{name}: {word} is not in {places[name]!r}")


@test
def late_driver():
    """a driver that is loaded later is found without a restart"""
    with Node(driver=False) as node:
        plugin = node.start()
        plugin.wait_line("no NVML: ")
        equal(node.annotation(REGISTER), None)
        equal(node.kubelet.devices(), None)
        node.load_driver()
        node.wait_devices(lambda d: len(d) == 6 and all(d.values()))
        node.wait_registered()
        equal(len(plugin.log.find(lambda line: "no NVML" in line)), 1, "lines about the missing driver")


@test
def xid():
    """an Xid marks its card; an operator's annotation brings it back, and is removed"""
    with Node() as node:
        node.start()
        first, second = uuids(node)
        node.wait_devices(lambda d: len(d) == 6)
        node.fault("xid 1 31")  # a program's own fault
        node.fault("xid 1 79")
        devices = node.wait_devices(lambda d: health_of(d, second) is False)
        equal(health_of(devices, first), True)
        cards = node.wait_registered(lambda cards: "health" not in cards[1])
        equal(cards[0]["health"], True)
        event = node.wait_event("GPUUnhealthy")
        true(second in event["message"] and "Xid 79" in event["message"], event)
        equal((event["involvedObject"]["kind"], event["involvedObject"]["name"]), ("Node", "n1"))
        node.annotate(**{"vgpu.io/healthy": f"GPU-unknown, {second}"})
        node.wait_devices(lambda d: health_of(d, second) is True)
        node.wait_registered(lambda cards: cards[1].get("health"))
        wait_for("removal", lambda: node.annotation("vgpu.io/healthy") is None)
        node.wait_event("GPUHealthy")
        # The same card again, and the same words again.
        node.fault("ecc 1")
        node.wait_devices(lambda d: health_of(d, second) is False)
        node.annotate(**{"vgpu.io/healthy": second})
        node.wait_devices(lambda d: health_of(d, second) is True)


@test
def xid_restart():
    """a restart of the plugin does not make a card healthy; a reset of the card does"""
    with Node() as node:
        plugin = node.start()
        first, second = uuids(node)
        node.fault("xid 0 48")
        node.wait_devices(lambda d: health_of(d, first) is False)
        node.plugins.remove(plugin)
        equal(plugin.end(), 0)
        equal(list(json.load(open(node.path("hook/vgpu/health.json"), encoding="utf-8"))), [first])
        since = node.kubelet.events.count()
        again = node.start()
        node.kubelet.wait("devices", since)
        equal(health_of(node.kubelet.devices(), first), False)
        equal(health_of(node.kubelet.devices(), second), True)
        again.wait_line("unhealthy since before the start: Xid 48")
        node.fault("reset 0")
        node.wait_devices(lambda d: health_of(d, first) is True)
        wait_for("end of the file", lambda: not os.path.exists(node.path("hook/vgpu/health.json")))


@test
def ignored_xids():
    """DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS choose the Xids that count"""
    with Node() as node:
        node.start(environment={"DP_DISABLE_HEALTHCHECKS": "79", "DP_ENABLE_HEALTHCHECKS": "31"})
        first, second = uuids(node)
        node.wait_devices(lambda d: len(d) == 6)
        node.fault("xid 0 79")
        node.fault("xid 1 31")
        devices = node.wait_devices(lambda d: health_of(d, second) is False)
        equal(health_of(devices, first), True)


@test
def lost():
    """a lost card is unhealthy, stays in the list, and returns when NVML has answered for 30 s"""
    with Node() as node:
        plugin = node.start()
        first, second = uuids(node)
        before = list(node.wait_devices(lambda d: len(d) == 6))
        node.fault("lost 0")
        devices = node.wait_devices(lambda d: health_of(d, first) is False)
        equal(list(devices), before, "order of the devices")
        equal(health_of(devices, second), True)
        node.wait_registered(lambda cards: "health" not in cards[0] and len(cards) == 2)
        true("lost" in plugin.wait_line(f"{first} is unhealthy").lower(), plugin.log.lines[-3:])
        equal(len(plugin.log.find(lambda line: "is unhealthy" in line)), 1, "lines about it")
        begun = time.monotonic()
        node.fault("back 0")
        node.wait_devices(lambda d: health_of(d, first) is True)
        true(time.monotonic() - begun >= 29, "it returned too early")


@test
def kubelet_restarts():
    """the plugin registers again with a kubelet that comes back"""
    with Node() as node:
        node.start()
        node.wait_devices(lambda d: len(d) == 6)
        for _ in range(3):
            since = node.kubelet.events.count()
            node.kubelet.do("stop")
            node.kubelet.do("start")
            node.kubelet.wait("devices", since, lambda event: len(event["devices"]) == 6)


@test
def server_fails():
    """a failed patch is made again, and what somebody removed is written again"""
    with Node() as node:
        node.server.fault(method="PATCH", path="/nodes/", status=403, count=1)
        node.server.fault(method="PATCH", path="/nodes/", status=500, count=2)
        node.start()
        node.wait_registered()
        equal(len(node.patches()), 1, "patches that were carried out")
        node.remove_annotation(REGISTER)
        node.wait_registered()
        node.server.cut_watches()
        node.remove_annotation(REGISTER)
        node.wait_registered()


@test
def server_comes_later():
    """devices are offered while the API server does not answer"""
    with Node() as node:
        node.server.fault(path="", status=503, count=30)
        node.start()
        node.wait_devices(lambda d: len(d) == 6)
        equal(node.annotation(REGISTER), None)
        with node.server.lock:
            node.server.faults.clear()
        node.wait_registered()


@test
def mig_mixed():
    """with the strategy mixed MIG devices are resources of their own, whole cards stay"""
    with Node("2xa100,mig=1g.10gb+2g.20gb") as node:
        node.start("--mig-strategy=mixed")
        small = node.wait_devices(lambda d: d, "nvidia.com/mig-1g.10gb")
        large = node.wait_devices(lambda d: d, "nvidia.com/mig-2g.20gb")
        whole = node.wait_devices(lambda d: d)
        true(all(re.fullmatch(r"MIG-[0-9a-f-]{36}", name) for name in [*small, *large]), (small, large))
        equal((len(small), len(large), len(whole)), (1, 1, 3))
        cards = node.wait_registered()
        equal([card["index"] for card in cards], [1], "cards that are shared out")
        # An Xid of the card is its instances'.
        node.fault("xid 0 79")
        node.wait_devices(lambda d: set(d.values()) == {False}, "nvidia.com/mig-1g.10gb")
        node.wait_devices(lambda d: set(d.values()) == {False}, "nvidia.com/mig-2g.20gb")
        true(all(node.kubelet.devices().values()), "the other card")


@test
def mig_none():
    """with the strategy none a card in MIG mode is a card"""
    with Node("2xa100,mig=1g.10gb+2g.20gb") as node:
        node.start()
        equal(len(node.wait_registered()), 2)
        equal(len(node.wait_devices(lambda d: d)), 6)


@test
def topology():
    """scores of the cards' connections are written where they are asked for"""
    with Node("3xh200") as node:
        node.start(environment={"ENABLE_TOPOLOGY_SCORE": "true"})
        cards = uuids(node)
        wait_for("scores", lambda: node.annotation(SCORES))
        scores = json.loads(node.annotation(SCORES))
        equal({row["uuid"]: row["score"] for row in scores},
              {one: {other: 30 for other in cards if other != one} for one in cards})
    with Node() as node:
        node.start()
        node.wait_registered()
        equal(node.annotation(SCORES), None)


@test
def old_scheduler():
    """for schedulers up to HAMi 2.7 the register is CSV, and their handshake is answered"""
    with Node(annotations={"hami.io/node-handshake": "Requesting_2026.01.02 03:04:05"}) as node:
        node.start("--register-format=csv")
        text = wait_for("register", lambda: node.annotation(REGISTER))
        rows = [row.split(",") for row in text.rstrip(":").split(":")]
        equal([row[1:7] + row[7:] for row in rows],
              [["3", "143771", "100", "NVIDIA-NVIDIA H200", "0", "true", str(i), "hami-core"]
               for i in range(2)])
        answered = wait_for("answer", lambda: (node.annotation("hami.io/node-handshake") or "").startswith(
            "Reported"))
        true(answered, "handshake")
        node.annotate(**{"hami.io/node-handshake": "Requesting_2026.01.02 03:05:05"})
        wait_for("second answer",
                 lambda: node.annotation("hami.io/node-handshake").startswith("Reported"))


@test
def two_plugins():
    """a second plugin on the node waits, and takes over when the first has gone"""
    with Node() as node:
        first = node.start()
        node.wait_devices(lambda d: len(d) == 6)
        second = node.start()
        second.wait_line("another")
        since = node.kubelet.events.count()
        node.plugins.remove(first)
        equal(first.end(), 0)
        node.kubelet.wait("devices", since, lambda event: len(event["devices"]) == 6)


@test
def allocates():
    """Allocate answers with the limits of the Pod that the node's lock names"""
    with Node() as node:
        node.start()
        first, second = uuids(node)
        node.wait_devices(lambda d: len(d) == 6)
        assigned = f"{second},NVIDIA,3000,30:;"
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        node.server.put("pods", {
            "metadata": {"name": "p1", "namespace": "default", "labels": {"hami.io/vgpu-node": "n1"},
                         "annotations": {"hami.io/vgpu-node": "n1", "hami.io/bind-phase": "allocating",
                                         "hami.io/bind-time": str(int(time.time())),
                                         "hami.io/vgpu-devices-to-allocate": assigned,
                                         "hami.io/vgpu-devices-allocated": assigned}},
            "spec": {"nodeName": "n1", "containers": [
                {"name": "c", "resources": {"limits": {GPU: "1", "nvidia.com/gpumem": "3000"}}}]},
            "status": {"phase": "Pending"}})
        node.annotate(**{"hami.io/mutex.lock": f"{now},default,p1"})
        node.kubelet.do("allocate", resource=GPU, containers=[[f"{first}-0"]])
        answer = node.kubelet.wait("allocate")
        equal(answer["status"], "OK", f"status of {answer}")
        container = answer["containers"][0]
        equal({key: container["envs"].get(key) for key in (
            "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_SM_LIMIT")},
              {"NVIDIA_VISIBLE_DEVICES": second, "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
               "CUDA_DEVICE_SM_LIMIT": "30"})
        wait_for("release of the lock", lambda: node.annotation("hami.io/mutex.lock") is None)
        pod = node.server.store.get("pods", "default", "p1")
        equal(pod["metadata"]["annotations"]["hami.io/bind-phase"], "success")


@test
def library():
    """no device is offered before the library is on the node"""
    with Node() as node:
        flags = ["--library-source", node.path("libvgpu.so"), "--installer",
                 os.path.join(ROOT, "deploy/vgpu-install")]
        plugin = Plugin(node, *node.flags(), *flags)
        node.plugins.append(plugin)
        plugin.wait_line("no device is offered without the library")
        equal(node.kubelet.devices(), None)
    with Node() as node:
        flags[1] = os.path.join(BUILD, "libvgpu.so")
        node.start(*flags)
        node.wait_devices(lambda d: len(d) == 6)
        with open(node.path("hook/vgpu/ld.so.preload"), encoding="utf-8") as file:
            equal(file.read(), node.path("hook/vgpu/libvgpu.so") + "\n")
        true(os.path.exists(node.path("hook/vgpu/libvgpu.so")), "the library")


tap.main()
