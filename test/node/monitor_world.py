# SPDX-License-Identifier: Apache-2.0
"""vgpu-monitor on a node of the test's own: a fake API server, a directory for HOOK_PATH, and region files as
HAMi-core's library writes them (the offsets are HAMi-core's, none is taken from vgpu)."""
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "test", "process"), os.path.join(ROOT, "test", "kube")]
import api_server  # noqa: E402

PATIENCE_S = 60  # for what must happen; a slow machine takes a few
NODE = "n1"
MAGIC = 19920718


class Layout:
    """Of version 1 (HAMi-core 1.2), or 0."""

    def __init__(self, version):
        old = version == 0
        self.version, self.bytes = version, 1197896 if old else 2008952
        self.count, self.uuids, self.limits, self.cores = (48, 56, 1592, 1720) if old else (56, 64, 1600, 1728)
        self.slots, self.slot_bytes, self.used_bytes = (1848, 1168, 40) if old else (1856, 1960, 64)
        self.sm, self.sm_bytes = (792, 24) if old else (1176, 48)
        self.status, self.tail = (1160, 1197880) if old else (1928, 2008896)


V0, V1 = Layout(0), Layout(1)
MEMORY = ("context", "module", "data", "offset", "total")


class Region:
    """A region file that is mapped by nobody; `of` as the behaviour cases describe it."""

    def __init__(self, path, of, layout=V1, bytes_more=1):
        self.path, self.layout = path, layout
        uuids = of.get("uuids", [])
        data = bytearray(layout.bytes + bytes_more)
        self.data = data
        self.pack("i", 0, MAGIC)
        if layout is V1:
            self.pack("II", 4, 1, 2)
        self.pack("Q", layout.count, of.get("num", len(uuids)))
        for i, uuid in enumerate(uuids):
            text = uuid.encode()
            data[layout.uuids + 96 * i:layout.uuids + 96 * i + len(text)] = text
        for i, limit in enumerate(of.get("limit", [])):
            self.pack("Q", layout.limits + 8 * i, limit)
        for i, limit in enumerate(of.get("sm_limit", [])):
            self.pack("Q", layout.cores + 8 * i, limit)
        for i, proc in enumerate(of.get("procs", [])):
            self.put_process(layout.slots + layout.slot_bytes * i, proc)
        self.pack("iiii", layout.tail, of.get("proc_num", len(of.get("procs", []))),
                  of.get("utilization_switch", 0), of.get("recent_kernel", 0), of.get("priority", 0))
        if layout is V1:
            self.pack("Q", layout.tail + 16, of.get("last_kernel_time", 0))
        with open(path, "wb") as file:
            file.write(data)

    def pack(self, form, offset, *values):
        struct.pack_into("<" + form, self.data, offset, *values)

    def put_process(self, at, proc):
        self.pack("ii", at, proc.get("pid", 0), proc.get("hostpid", 0))
        for d, used in enumerate(proc.get("used", [])):
            self.pack("5Q", at + 8 + self.layout.used_bytes * d, *(used.get(name, 0) for name in MEMORY))
        for d, percent in enumerate(proc.get("sm", [])):
            self.pack("Q", at + self.layout.sm + self.layout.sm_bytes * d, percent)
        self.pack("i", at + self.layout.status, proc.get("status", 1))

    def word(self, form, offset):
        with open(self.path, "rb") as file:
            file.seek(offset)
            return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))

    def words(self):
        """utilization_switch, recent_kernel"""
        return self.word("ii", self.layout.tail + 4)

    def write(self, offset, data):
        with open(self.path, "r+b") as file:
            file.seek(offset)
            file.write(data)


def parse(text):
    """(samples: `name{sorted labels}` to value, families: name to (type, help)). What Prometheus would refuse
    raises: a line that is none, a sample outside of its family, a family or a sample twice."""
    samples, families, current = {}, {}, None
    label = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
    line_of = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(" + label + "(?:," + label + r")*)\})? (-?[0-9.e+]+)")
    if not text.endswith("\n"):
        raise AssertionError("the last line has no end")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current, text_of = line[7:].split(" ", 1)
            if current in families:
                raise AssertionError(f"{current} comes twice")
            families[current] = (None, text_of)
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            if name != current or kind not in ("gauge", "counter"):
                raise AssertionError(line)
            families[name] = (kind, families[name][1])
        else:
            match = line_of.fullmatch(line)
            if not match or match[1] != current:
                raise AssertionError(f"{line!r} in the family {current}")
            labels = sorted(re.findall(label, match[2] or ""))
            key = match[1] + ("{" + ",".join(f'{n}="{v}"' for n, v in labels) + "}" if labels else "")
            if key in samples or len({n for n, _ in labels}) != len(labels):
                raise AssertionError(f"{line!r} comes twice, or has a label twice")
            samples[key] = float(match[match.lastindex])
    return samples, families


class World:
    """With-statement: a server and a node's directories. start() starts the monitor."""

    def __init__(self, build, tokens=()):
        self.build, self.tokens, self.monitor, self.lines = build, tokens, None, []

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="m-")
        os.makedirs(self.path("hook/containers"))
        self.server = api_server.Server(tokens=self.tokens, bookmark_s=1.0).start()
        with open(self.path("config"), "w", encoding="utf-8") as file:
            json.dump({"current-context": "here", "contexts": [
                {"name": "here", "context": {"cluster": "fake", "user": "monitor"}}],
                "clusters": [{"name": "fake", "cluster": {"server": self.server.url}}],
                "users": [{"name": "monitor", "user": {"token": "first"}}]}, file)
        return self

    def __exit__(self, *_):
        try:
            if self.monitor and self.monitor.poll() is None:
                self.monitor.kill()
                self.monitor.wait()
        finally:
            self.server.stop()
            subprocess.run(["umount", "-q", self.path("hook")], check=False, stderr=subprocess.DEVNULL)
            subprocess.run(["rm", "-rf", self.directory], check=False)

    def path(self, name):
        return os.path.join(self.directory, name)

    def start(self, *options, wait=True, **variables):
        environment = {"KUBECONFIG": self.path("config"), "NODE_NAME": NODE, "HOOK_PATH": self.path("hook"),
                       "PATH": os.environ["PATH"], **variables}
        for name in ("LSAN_OPTIONS", "ASAN_OPTIONS", "UBSAN_OPTIONS"):
            if name in os.environ:
                environment[name] = os.environ[name]
        self.monitor = subprocess.Popen(
            [os.path.join(self.build, "src/daemon/vgpu-monitor"), "--metrics-bind-address", "127.0.0.1:0",
             "--driver-root-ctr-path=", *options], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.port = int(self.wait_line(r"port (\d+)")[1])
        if wait:
            self.until(lambda: self.samples()["vgpu_monitor_pods_known"] == 1, "the node's Pods")
        return self

    def read(self):
        for line in self.monitor.stderr:
            self.lines.append(line.rstrip("\n"))

    def wait_line(self, pattern):
        def find():
            for line in list(self.lines):
                if match := re.search(pattern, line):
                    return match
            if self.monitor.poll() is not None:
                raise AssertionError(f"it ended with status {self.monitor.returncode}: {self.lines}")
            return None
        return self.until(find, f"a line {pattern!r}")

    def until(self, condition, what):
        end = time.monotonic() + PATIENCE_S
        while not (value := condition()):
            if time.monotonic() > end:
                raise AssertionError(f"never: {what() if callable(what) else what}; it said {self.lines[-5:]}")
            time.sleep(0.05)
        return value

    def get(self, path="/metrics"):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE_S) as answer:
            return answer.read().decode()

    def scrape(self):
        return parse(self.get())

    def samples(self):
        return self.scrape()[0]

    def ticks(self, count=1):
        """Waits until so many rounds have begun and ended after now."""
        before = self.samples()["vgpu_monitor_ticks_total"]
        self.until(lambda: self.samples()["vgpu_monitor_ticks_total"] >= before + count + 1, "ticks")

    def end(self):
        """Its exit status after SIGTERM."""
        self.monitor.send_signal(signal.SIGTERM)
        status = self.monitor.wait(PATIENCE_S)
        self.reader.join(PATIENCE_S)
        return status

    # -- what is on the node

    def pod(self, name="w", uid=None, containers=("main",), labels=None, init=(), **more):
        """One that HAMi's scheduler has put here."""
        metadata = {"name": name, "namespace": "default", "uid": uid or f"uid-{name}",
                    "labels": {"hami.io/vgpu-node": NODE} if labels is None else labels, **more}
        return self.server.put("pods", {"metadata": metadata, "spec": {
            "nodeName": NODE, "initContainers": [{"name": c} for c in init],
            "containers": [{"name": c} for c in containers]}})

    def remove_pod(self, name="w"):
        self.server.store.delete("pods", "default", name, {"gracePeriodSeconds": 0})

    def container(self, name, old_s=0):
        """Its directory."""
        directory = self.path(f"hook/containers/{name}")
        os.makedirs(directory, exist_ok=True)
        self.age(directory, old_s)
        return directory

    def age(self, directory, old_s):
        if old_s:
            os.utime(directory, (time.time() - old_s,) * 2)

    def region(self, name, of, layout=V1, old_s=0, **more):
        directory = self.container(name)
        region = Region(os.path.join(directory, "0a1b.cache"), of, layout, **more)
        self.age(directory, old_s)
        return region


def labels(container="main", pod="w", uuid="", index=0, **more):
    """The labels of a sample of a container's device, sorted, as text."""
    all_of = {"container": container, "device_uuid": uuid, "namespace": "default", "pod": pod,
              "vdevice_index": str(index), "zone": "vGPU", **more}
    return "{" + ",".join(f'{name}="{all_of[name]}"' for name in sorted(all_of)) + "}"
