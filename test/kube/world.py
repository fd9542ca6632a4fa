# SPDX-License-Identifier: Apache-2.0
"""A fake API server and a kube-driver (driver.c) that talks to it. world.BUILD is the build directory."""
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "test", "process"))
import api_server  # noqa: E402
import tap  # noqa: E402

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build")
PATIENCE_S = 60  # for what must happen; a slow machine takes a few
MERGE = "application/merge-patch+json"


def write(path, text):
    """As a volume of Kubernetes does it: another file takes the place."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


class Driver:
    """kube-driver; what it says is kept in `lines`."""

    def __init__(self, environment, *options):
        self.lines, self.news, self.ended = [], threading.Condition(), False
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "test/kube/kube-driver"), *options], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env={**os.environ, **environment}, text=True)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            with self.news:
                self.lines.append(line.rstrip("\n"))
                self.news.notify_all()
        with self.news:
            self.ended = True
            self.news.notify_all()

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self, start, count=1, since=0):
        """The first `count` lines that begin so."""
        until = time.monotonic() + PATIENCE_S
        with self.news:
            while True:
                found = [line for line in self.lines[since:] if line.startswith(start)]
                if len(found) >= count:
                    return found[:count]
                if self.ended or time.monotonic() > until:
                    raise AssertionError(f"no {count} lines {start!r} but {self.lines[-20:]}")
                self.news.wait(until - time.monotonic())

    def wait_one(self, start, since=0):
        return self.wait(start, 1, since)[0]

    def done(self, number):
        """(status, attempts, text)"""
        words = self.wait_one(f"DONE {number} ").split(" ", 4)
        return int(words[2]), int(words[3]), words[4]

    def all(self, *starts):
        return [line for line in self.lines if line.startswith(starts)]

    def end(self):
        """Its exit status, when it was told to end: by the end of its input."""
        self.process.stdin.close()
        status = self.process.wait(PATIENCE_S)
        self.thread.join(PATIENCE_S)
        return status


class World:
    """With-statement: a server, a kubeconfig for it with the token in a file, and a driver."""

    def __init__(self, *options, tls=False, tokens=("first",), bookmark_s=60.0):
        self.options, self.tls, self.tokens, self.bookmark_s = options, tls, tokens, bookmark_s

    def __enter__(self):
        self.directory = tempfile.mkdtemp()
        self.server = api_server.Server(tls=self.path("tls") if self.tls and self.make("tls") else None,
                                        tokens=self.tokens, bookmark_s=self.bookmark_s).start()
        self.write_token(self.tokens[0] if self.tokens else "unused")
        cluster = {"server": self.server.url}
        if self.tls:
            cluster["certificate-authority"] = "tls/ca.crt"
        write(self.path("config"), json.dumps({
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "fake", "user": "driver"}}],
            "clusters": [{"name": "fake", "cluster": cluster}],
            "users": [{"name": "driver", "user": {"tokenFile": "token"}}]}))
        self.driver = Driver({"KUBECONFIG": self.path("config")}, *self.options)
        self.driver.wait("READY")
        return self

    def __exit__(self, *failure):
        try:
            status = self.driver.end()
            if not failure[0] and (status or not self.driver.all("END")):
                raise AssertionError(f"the driver ended with status {status}: {self.driver.lines[-5:]}")
        finally:
            self.driver.process.kill()
            self.server.stop()
            subprocess.run(["rm", "-rf", self.directory], check=False)

    def make(self, name):
        os.mkdir(self.path(name))
        return True

    def path(self, name):
        return os.path.join(self.directory, name)

    def write_token(self, token):
        write(self.path("token"), token + "\n")

    def node(self, name="n1"):
        self.server.put("nodes", {"metadata": {"name": name}})

    def pod(self, name, node="n1", note=None, **labels):
        metadata = {"name": name, "namespace": "default", "labels": labels}
        if note:
            metadata["annotations"] = {"note": note}
        return self.server.put("pods", {"metadata": metadata, "spec": {"nodeName": node}})

    def remove(self, name):
        self.server.store.delete("pods", "default", name, {"gracePeriodSeconds": 0})

    def annotate(self, number, deadline_ms=0, node="n1", value="yes"):
        """A PATCH of the node by the driver."""
        body = json.dumps({"metadata": {"annotations": {"by": value}}})
        self.driver.say(f"request {number} {deadline_ms} PATCH /api/v1/nodes/{node} {MERGE} {body}")

    def annotation(self, node="n1"):
        return (self.server.store.get("nodes", None, node)["metadata"].get("annotations") or {}).get("by")

    def statuses(self, method, path=""):
        return [entry["status"] for entry in self.server.log(method, path)]
