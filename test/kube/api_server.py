#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A fake Kubernetes API server: what vgpu's daemons use of the API, and faults on demand.

As a module: server = Server(...); server.start(); ... server.stop(). As a command:

    api_server.py [--port N] [--tls DIRECTORY] [--token TOKEN]... [--bookmarks SECONDS] [--objects FILE]

prints its URL as the first line, and serves until SIGTERM or SIGINT. --tls makes a CA and a certificate
by openssl in the directory (ca.crt is for clients). --objects: JSON, a list of objects to begin with.

Faults and the log, also at /control without a token:
    POST /control {"fault": {...}}        see Fault
                  {"clear": true}         no faults any more
                  {"compact": true}       older versions are forgotten: 410
                  {"tokens": ["t"]}       only these are accepted; []: no token is needed
                  {"cut_watches": true}   connections of watches are cut
                  {"silence_watches": true}  they stay open, and nothing comes any more
                  {"rotate_ca": true}     new CA and certificate; {"publish_ca": false}: ca.crt stays
                  {"clear_log": true}
    GET /control/log                      [{"method", "path", "query", "status", "body", ...}]
"""
import argparse
import http.server
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse

import api_store
from api_patch import Refused, bad_request, clone
from api_store import RESOURCES, Store

LOG_MAX = 100000
BODY_BYTES_MAX = 3 << 20
# Rights to these are given by name.
NAMED = {"leases", "secrets", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"}


class Fault:
    """The next `count` requests whose method is this and whose path with query matches the regular
    expression. status, headers, body: the answer, instead of doing it. delay: seconds before. cut:
    "before" (nothing is done), "after" (it is done, the answer is lost) or "middle" (half of the answer
    comes). silent: a watch that begins well and says nothing. raw: text that a watch begins with."""

    def __init__(self, method=".*", path="", count=1, status=0, headers=None, body=None, delay=0, cut=None,
                 silent=False, raw=None):
        self.method, self.path, self.count = re.compile(method), re.compile(path), count
        self.status, self.headers, self.body, self.delay = status, headers or {}, body, delay
        self.cut, self.silent, self.raw = cut, silent, raw

    def matches(self, method, path):
        return self.count > 0 and self.method.fullmatch(method) and self.path.search(path)


class Watching:
    """One watch that is open."""

    def __init__(self, connection):
        self.connection, self.silent, self.cut = connection, False, False


class Authority:
    """CA and server certificate in a directory, by openssl."""

    def __init__(self, directory):
        self.directory, self.generation = directory, 0

    def path(self, name):
        return os.path.join(self.directory, name)

    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def make(self, publish=True):
        """Returns a context for the server."""
        self.generation += 1
        key, curve = ("-newkey", "ec"), ("-pkeyopt", "ec_paramgen_curve:prime256v1")
        self.openssl("req", "-x509", *key, *curve, "-nodes", "-days", "30", "-keyout", self.path("ca.key"),
                     "-out", self.path("ca.new"), "-subj", f"/CN=test-ca-{self.generation}")
        self.openssl("req", *key, *curve, "-nodes", "-keyout", self.path("tls.key"), "-out",
                     self.path("tls.csr"), "-subj", "/CN=kubernetes")
        with open(self.path("extensions"), "w", encoding="ascii") as file:
            file.write("subjectAltName=DNS:localhost,DNS:kubernetes,IP:127.0.0.1\n")
        self.openssl("x509", "-req", "-in", self.path("tls.csr"), "-CA", self.path("ca.new"), "-CAkey",
                     self.path("ca.key"), "-set_serial", str(self.generation), "-days", "30", "-extfile",
                     self.path("extensions"), "-out", self.path("tls.crt"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("tls.crt"), self.path("tls.key"))
        if publish:
            self.publish()
        return context

    def publish(self):
        os.replace(self.path("ca.new"), self.path("ca.crt"))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self):
        try:
            if isinstance(self.request, ssl.SSLSocket):
                self.request.settimeout(10)
                self.request.do_handshake()
                self.request.settimeout(None)
        finally:
            super().setup()

    def log_message(self, format, *args):  # the name is the base class's
        pass

    def handle(self):
        try:
            super().handle()
        except (OSError, ssl.SSLError):
            self.close_connection = True

    def do_any(self):
        self.api = self.server.api
        parts = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        length = int(self.headers.get("Content-Length") or 0)
        if length > BODY_BYTES_MAX:
            self.close_connection = True
            self.answer(413, status_of(413, "RequestEntityTooLarge", "the request is too large"))
            return
        self.body = self.rfile.read(length)
        if parts.path.startswith("/control"):
            self.answer_json(lambda: self.api.control(self.command, parts.path, self.body))
            return
        self.entry = self.api.log_request(self)
        fault = self.api.take_fault(self.command, self.path)
        self.fault = fault
        if fault and fault.delay:
            time.sleep(fault.delay)
            if self.is_left():  # as an API server cancels what nobody waits for
                self.cut()
                return
        if fault and fault.cut == "before":
            self.cut()
        elif fault and fault.status:
            body = fault.body if fault.body is not None else status_of(fault.status, "Fault", "as ordered")
            self.answer(fault.status, body, fault.headers)
        elif not self.api.is_allowed(self.headers.get("Authorization")):
            self.answer(401, status_of(401, "Unauthorized", "Unauthorized"))
        else:
            self.answer_json(lambda: self.do_api(parts.path))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_any

    def is_left(self):
        """Whether the client has closed its connection."""
        if isinstance(self.connection, ssl.SSLSocket):
            return False
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def cut(self):
        self.close_connection = True
        self.entry["status"] = -1
        cut_socket(self.connection)

    def answer_json(self, make):
        self.entry = getattr(self, "entry", {})
        try:
            answer = make()
        except Refused as refused:
            answer = refused.code, status_of(refused.code, refused.reason, refused.message)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            answer = 400, status_of(400, "BadRequest", f"{type(error).__name__}: {error}")
        if answer is not None:
            self.answer(*answer)

    def answer(self, status, body, headers=None):
        fault = getattr(self, "fault", None)
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        if hasattr(self, "entry"):
            self.entry["status"] = status
        if fault and fault.cut == "after":
            self.cut()
            return
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if fault and fault.cut == "middle":
            self.wfile.write(data[:len(data) // 2])
            self.cut()
            return
        self.wfile.write(data)

    def do_api(self, path):
        store, command = self.api.store, self.command
        if path in ("/healthz", "/readyz", "/livez"):
            return 200, "ok"
        if path == "/version":
            return 200, {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
        resource, namespace, name, sub = self.api.resolve(path)
        if not name:
            if command == "POST":
                return 201, store.create(resource, namespace, self.json())
            if command != "GET":
                raise Refused(405, "MethodNotAllowed", f"{command} is not allowed on a collection")
            if self.query.get("watch") in ("1", "true"):
                return self.watch(resource, namespace)
            return 200, store.list(resource, namespace, self.query)
        if sub == "binding" and resource == "pods" and command == "POST":
            return 201, store.bind(namespace, name, self.json())
        if sub not in (None, "status"):
            raise Refused(404, "NotFound", f"the server could not find {resource}/{sub}")
        if command == "GET":
            return 200, store.get(resource, namespace, name)
        if command == "PUT":
            return 200, store.replace(resource, namespace, name, self.json(), sub)
        if command == "PATCH":
            return 200, store.patch(resource, namespace, name, self.headers.get("Content-Type"),
                                    self.json(), sub)
        if command == "DELETE":
            options = self.json() if self.body else {}
            if "gracePeriodSeconds" in self.query:
                options["gracePeriodSeconds"] = int(self.query["gracePeriodSeconds"])
            return 200, store.delete(resource, namespace, name, options)
        raise Refused(405, "MethodNotAllowed", f"{command} is not allowed")

    def json(self):
        return json.loads(self.body)

    # -- watches

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def watch(self, resource, namespace):
        wanted = self.api.store.select(resource, namespace, self.query.get("fieldSelector"),
                                       self.query.get("labelSelector"))
        watching = self.api.add_watch(self.connection)
        self.close_connection = True
        self.entry["status"] = 200
        try:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            fault = self.fault
            watching.silent = bool(fault and fault.silent)
            if fault and fault.raw is not None:
                self.chunk(fault.raw.encode())
            self.follow(resource, wanted, watching)
            if not watching.cut:
                self.wfile.write(b"0\r\n\r\n")
        finally:
            self.api.remove_watch(watching)

    def follow(self, resource, wanted, watching):
        store, version = self.api.store, self.query.get("resourceVersion") or "0"
        _, api, kind, _ = RESOURCES[resource]
        until = time.monotonic() + float(self.query.get("timeoutSeconds") or 1800)
        at, lines = int(version), []
        with store.changed:
            if at == 0:
                lines = [api_store.line_of("ADDED", item) for item in store.items(resource, wanted)]
                at = store.version
        next_bookmark = time.monotonic() + self.api.bookmark_s
        while True:
            for line in lines if not watching.silent else ():
                self.chunk(line)
            lines = []
            with store.changed:
                changes = store.changes_since(at)
                if changes == []:
                    left = min(next_bookmark, until) - time.monotonic()
                    store.changed.wait(max(0, min(left, 0.5)))
                    changes = store.changes_since(at)
                at = store.version
            if watching.cut or self.api.stopping or time.monotonic() >= until:
                return
            if changes is None:
                gone = status_of(410, "Expired", f"too old resource version: {version} ({at})")
                self.chunk(api_store.line_of("ERROR", gone))
                return
            for change in changes:
                event = change.resource == resource and api_store.event_of(change, wanted)
                if event:
                    lines.append(api_store.line_of(*event))
            if self.query.get("allowWatchBookmarks") == "true" and time.monotonic() >= next_bookmark:
                next_bookmark = time.monotonic() + self.api.bookmark_s
                lines.append(api_store.line_of("BOOKMARK", {
                    "kind": kind, "apiVersion": api, "metadata": {"resourceVersion": str(at)}}))


def status_of(code, reason, message):
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
            "message": message, "code": code}


def cut_socket(connection):
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def get_request(self):
        connection, address = super().get_request()
        if self.api.context:
            connection = self.api.context.wrap_socket(connection, server_side=True,
                                                      do_handshake_on_connect=False)
        self.api.connections.add(connection)
        return connection, address

    def shutdown_request(self, request):
        self.api.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request, client_address):
        pass  # a client that went away


class Server:
    """tls: a directory for certificates. tokens: those that are accepted; none: all requests are.
    The attributes store, faults and bookmark_s may be used by tests at any time."""

    def __init__(self, port=0, tls=None, tokens=(), bookmark_s=60.0):
        self.store, self.faults, self.requests = Store(), [], []
        self.tokens, self.bookmark_s = list(tokens), bookmark_s
        self.lock, self.watches, self.connections = threading.Lock(), set(), set()
        self.stopping, self.thread = False, None
        self.authority = Authority(tls) if tls else None
        self.context = self.authority.make() if tls else None
        self.listener = Listener(("127.0.0.1", port), Handler)
        self.listener.api = self

    @property
    def port(self):
        return self.listener.server_address[1]

    @property
    def url(self):
        return f"{'https' if self.context else 'http'}://127.0.0.1:{self.port}"

    def start(self):
        self.thread = threading.Thread(target=self.listener.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        return self

    def stop(self):
        self.record()
        self.stopping = True
        self.cut_watches()
        self.listener.shutdown()
        self.cut_connections()
        self.listener.server_close()

    def record(self):
        """Appends to the file VGPU_TEST_RECORD what programs have asked for, as RBAC names it, in JSON lines."""
        path = os.environ.get("VGPU_TEST_RECORD")
        if not path:
            return
        found = set()
        for entry in self.log():
            try:
                resource, namespace, name, sub = self.resolve(entry["path"])
            except Refused:
                continue
            verb = {"POST": "create", "PUT": "update"}.get(entry["method"], entry["method"].lower())
            if verb == "get" and not name:
                verb = "watch" if "watch" in entry["query"] else "list"
                field = re.fullmatch(r"metadata\.name=(.*)", entry["query"].get("fieldSelector", ""))
                name = field and field[1]
            group = RESOURCES[resource][1].rpartition("/")[0]
            named = name if verb != "create" and resource in NAMED else ""
            found.add((entry["agent"], group, f"{resource}/{sub}" if sub else resource, verb, named,
                       namespace if named else ""))
        with open(path, "a", encoding="utf-8") as file:
            for one in sorted(found, key=str):
                file.write(json.dumps(one) + "\n")

    # -- what handlers ask

    def resolve(self, path):
        """(resource, namespace or None, name or None, subresource or None)"""
        for prefix in api_store.PREFIXES:
            if not path.startswith(prefix + "/"):
                continue
            parts = [urllib.parse.unquote(part) for part in path[len(prefix) + 1:].split("/")]
            namespace = None
            if parts[0] == "namespaces" and len(parts) > 2:
                namespace, parts = parts[1], parts[2:]
            if parts[0] in RESOURCES and RESOURCES[parts[0]][0] == prefix and len(parts) <= 3:
                return (parts + [None, None])[0], namespace, *(parts + [None, None])[1:3]
        raise Refused(404, "NotFound", "the server could not find the requested resource")

    def log_request(self, handler):
        entry = {"method": handler.command, "path": handler.path.split("?")[0], "query": handler.query,
                 "body": handler.body.decode(errors="replace"), "status": 0, "time": time.monotonic(),
                 "content_type": handler.headers.get("Content-Type"),
                 "authorization": handler.headers.get("Authorization"),
                 "agent": handler.headers.get("User-Agent")}
        with self.lock:
            del self.requests[:-LOG_MAX]
            self.requests.append(entry)
        return entry

    def take_fault(self, method, path):
        with self.lock:
            fault = next((f for f in self.faults if f.matches(method, path)), None)
            if fault:
                fault.count -= 1
            return fault

    def is_allowed(self, authorization):
        return not self.tokens or authorization in ["Bearer " + token for token in self.tokens]

    def add_watch(self, connection):
        watching = Watching(connection)
        with self.lock:
            self.watches.add(watching)
        return watching

    def remove_watch(self, watching):
        with self.lock:
            self.watches.discard(watching)

    # -- what tests do

    def put(self, resource, item):
        """Creates it, or writes over it."""
        metadata = item["metadata"]
        namespace = metadata.get("namespace", "default") if RESOURCES[resource][3] else None
        try:
            return self.store.create(resource, namespace, item)
        except Refused as refused:
            if refused.code != 409:
                raise
            return self.store.change(resource, namespace, metadata["name"], lambda before: clone(item),
                                     raw=True)

    def fault(self, **members):
        with self.lock:
            self.faults.append(Fault(**members))

    def log(self, method=".*", path="", watch=None):
        """Requests whose method and path match; watch: whether they are watches."""
        with self.lock:
            entries = list(self.requests)
        return [e for e in entries if re.fullmatch(method, e["method"]) and re.search(path, e["path"])
                and (watch is None or ("watch" in e["query"]) == watch)]

    def clear_log(self):
        with self.lock:
            self.requests.clear()

    def cut_watches(self):
        with self.lock:
            watches = list(self.watches)
        for watching in watches:
            watching.cut = True
            cut_socket(watching.connection)

    def silence_watches(self):
        with self.lock:
            for watching in self.watches:
                watching.silent = True

    def cut_connections(self):
        for connection in list(self.connections):
            cut_socket(connection)

    def rotate_ca(self, publish=True):
        """New connections get a certificate of a new CA; those that are open are cut. Without
        `publish` ca.crt stays the old one until authority.publish()."""
        self.context = self.authority.make(publish)
        self.cut_connections()

    def control(self, method, path, body):
        if method == "GET" and path == "/control/log":
            with self.lock:
                return 200, list(self.requests)
        order = json.loads(body or b"{}")
        known = {"fault", "clear", "compact", "tokens", "cut_watches", "silence_watches", "rotate_ca",
                 "publish_ca", "clear_log", "bookmark_s"}
        if method != "POST" or path != "/control" or set(order) - known:
            raise bad_request(f"{method} {path}: accepted are {', '.join(sorted(known))}")
        if order.get("clear"):
            with self.lock:
                self.faults.clear()
        if "fault" in order:
            self.fault(**order["fault"])
        if "tokens" in order:
            self.tokens = list(order["tokens"])
        if "bookmark_s" in order:
            self.bookmark_s = float(order["bookmark_s"])
        if order.get("rotate_ca"):
            threading.Timer(0.1, self.rotate_ca, [order.get("publish_ca", True)]).start()
        for name in ("cut_watches", "silence_watches", "clear_log"):
            if order.get(name):
                getattr(self, name)()
        if order.get("compact"):
            self.store.compact()
        return 200, {}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n", 2)[2])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tls")
    parser.add_argument("--token", action="append", default=[])
    parser.add_argument("--bookmarks", type=float, default=60.0)
    parser.add_argument("--objects")
    options = parser.parse_args()
    server = Server(options.port, options.tls, options.token, options.bookmarks)
    if options.objects:
        with open(options.objects, encoding="utf-8") as file:
            for item in json.load(file):
                resource = next(r for r, row in RESOURCES.items() if row[2] == item["kind"])
                server.put(resource, item)
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    server.start()
    print(server.url, flush=True)
    done.wait()
    server.stop()


if __name__ == "__main__":
    sys.exit(main())
