# SPDX-License-Identifier: Apache-2.0
"""A collection of the API, listed once and then watched by a thread of its own."""
import http.client
import json
import threading
import time

from control_plane import Refused

PAUSE_S = 0.2  # before it is listed again


class Follow:
    """`changed(kind, object)` is called in the thread, after `objects` (by UID) has the change: "ADDED",
    "MODIFIED", "DELETED"; and once "LISTED" with None when all was read anew."""

    def __init__(self, api, path, changed):
        self.api, self.path, self.changed = api, path, changed
        self.objects, self.listed, self.ended = {}, threading.Event(), False
        self.thread = threading.Thread(target=self.follow, daemon=True)

    def start(self):
        self.thread.start()
        if not self.listed.wait(60):
            raise AssertionError(f"{self.path} was not listed")
        return self

    def follow(self):
        while not self.ended:
            try:
                self.watch(self.list())
            except (OSError, http.client.HTTPException, json.JSONDecodeError, Refused):
                time.sleep(PAUSE_S)  # the API server is away

    def list(self):
        found = self.api.get(self.path)
        self.objects = {one["metadata"]["uid"]: one for one in found["items"]}
        self.changed("LISTED", None)
        self.listed.set()
        return found["metadata"]["resourceVersion"]

    def watch(self, version):
        connection = self.api.connect()
        try:
            mark = "&" if "?" in self.path else "?"
            connection.request("GET", f"{self.path}{mark}watch=1&resourceVersion={version}", None, self.api.headers())
            answer = connection.getresponse()
            while not self.ended and (line := answer.readline()):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                self.take(event["type"], event["object"])
        finally:
            connection.close()

    def take(self, kind, found):
        if kind == "DELETED":
            self.objects.pop(found["metadata"]["uid"], None)
        else:
            self.objects[found["metadata"]["uid"]] = found
        self.changed(kind, found)
