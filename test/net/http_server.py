# SPDX-License-Identifier: Apache-2.0
"""http_server BUILD: the HTTP server under clients that are well, slow, late and hostile."""
import http.client
import os
import select
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[1:1] = [os.path.join(ROOT, "test", name) for name in ("process", "kube")]
import api_server  # noqa: E402
import tap  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
equal, test, true = tap.equal, tap.test, tap.true
PATIENCE_S = 60
STALL_MS = 600000  # no connection is cut while the test runs


def drive(*arguments):
    return subprocess.Popen([os.path.join(BUILD, "test/net/http-driver"), *arguments], text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class Server:
    """With-statement: http-driver, which must end well."""

    def __init__(self, *options, address="127.0.0.1:0"):
        self.process = drive(address, *options)
        line = self.process.stdout.readline()
        if not line.startswith("PORT "):
            raise AssertionError(line)
        self.port = int(line.split()[1])

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        try:
            rest, _ = self.process.communicate(timeout=PATIENCE_S)
            if not failure[0]:
                equal((self.process.returncode, rest.splitlines()[-1:]), (0, ["END"]), "end of the server")
        finally:
            self.process.kill()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def ask(self, method="GET", path="/hello", body=None, headers=None):
        """(status, body)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        result = answer.status, answer.read()
        connection.close()
        return result


def rest_of(connection):
    """What comes until the server closes the connection."""
    data = b""
    try:
        while True:
            part = connection.recv(65536)
            if not part:
                return data
            data += part
    except ConnectionResetError:
        return data


@test
def routes():
    """paths and methods find their handler, others get 404 and 405"""
    with Server() as server:
        equal(server.ask(), (200, b"hello\n"))
        equal(server.ask(path="/hello?x=1"), (200, b"hello\n"))
        equal(server.ask("HEAD"), (200, b""))
        equal(server.ask("POST", "/echo", b"text"), (201, b"text"))
        equal(server.ask("POST", "/echo", b""), (201, b""))
        equal(server.ask("POST", "/hello", b"x")[0], 405)
        equal(server.ask("DELETE")[0], 405)
        equal(server.ask(path="/hello/")[0], 404)
        equal(server.ask(path="/")[0], 404)


@test
def every_address():
    """an address without a host is every address"""
    with Server(address=":0") as server:
        equal(server.ask(), (200, b"hello\n"))


@test
def kept():
    """a connection serves many requests"""
    with Server() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        for number in range(50):
            connection.request("POST", "/echo", b"%d" % number)
            equal(connection.getresponse().read(), b"%d" % number)
        connection.close()


@test
def bounded():
    """a body up to the bound is taken, a longer one refused, told or chunked"""
    with Server("bytes=100000") as server:
        body = os.urandom(100000)
        equal(server.ask("POST", "/echo", body), (201, body))
        with server.connect() as connection:
            connection.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100001\r\n\r\n")
            true(rest_of(connection).startswith(b"HTTP/1.1 413 "), "413 without waiting for the body")
        with server.connect() as connection:
            connection.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            try:
                for _ in range(20):
                    connection.sendall(b"2710\r\n" + b"x" * 10000 + b"\r\n")
            except (BrokenPipeError, ConnectionResetError):
                pass
            true(b" 201 " not in rest_of(connection), "a chunked body beyond the bound has no answer")
        equal(server.ask(), (200, b"hello\n"))


@test
def bodies_together():
    """all bodies have a budget: those that take longest are cut for one that comes at once"""
    with Server("bytes=100000", "bodies=300000", "receive_ms=60000") as server:
        held = [server.connect() for _ in range(8)]
        for connection in held:
            connection.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + b"x" * 90000)
            equal(server.ask(), (200, b"hello\n"))
        body = os.urandom(100000)
        for _ in range(5):
            equal(server.ask("POST", "/echo", body), (201, body))
        answers = []
        for connection in held[:-2]:
            answers.append(rest_of(connection))
        equal(answers, [b""] * 6, "those that were cut")
        held[-1].sendall(b"x" * 10000)
        true(held[-1].recv(100).startswith(b"HTTP/1.1 201 "), "the last one is not cut")
        for connection in held:
            connection.close()


@test
def later():
    """a handler may answer later, and others are served meanwhile"""
    with Server() as server:
        late, start = [], time.monotonic()
        threads = [threading.Thread(target=lambda: late.append(server.ask(path="/later"))) for _ in range(20)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            equal(server.ask(), (200, b"hello\n"))
        for thread in threads:
            thread.join()
        equal(late, [(200, b"late\n")] * 20)
        true(time.monotonic() - start >= 0.3, "they were late")


@test
def slow():
    """clients that send a byte now and then hold nobody, and are cut"""
    with Server("connections=8", "receive_ms=600") as server:
        slow_ones = [server.connect() for _ in range(7)]
        for connection in slow_ones[:4]:
            connection.sendall(b"GET /hel")
        for connection in slow_ones[4:]:
            connection.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        for _ in range(20):
            equal(server.ask(), (200, b"hello\n"))
        start, ended = time.monotonic(), 0
        for connection in slow_ones:
            try:
                while time.monotonic() - start < PATIENCE_S:
                    connection.sendall(b"l")
                    time.sleep(0.05)
            except (BrokenPipeError, ConnectionResetError):
                ended += 1
            connection.close()
        equal(ended, 7, "connections that were cut")


@test
def all_slow():
    """when slow clients have all connections, the next one is served as they are cut"""
    with Server("connections=4", "receive_ms=500") as server:
        slow_ones = [server.connect() for _ in range(4)]
        for connection in slow_ones:
            connection.sendall(b"GET ")
        equal(server.ask(), (200, b"hello\n"))
        for connection in slow_ones:
            equal(rest_of(connection), b"")
            connection.close()


@test
def slow_reader():
    """a client that does not take its answer is cut"""
    with Server("receive_ms=500") as server:
        with server.connect() as connection:
            connection.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(1.5)
            true(len(rest_of(connection)) < 32 << 20, "the answer did not come whole")
        equal(len(server.ask(path="/big")[1]), 32 << 20)


@test
def idle():
    """a connection without a request is closed"""
    with Server("idle_ms=300", "receive_ms=300") as server:
        with server.connect() as connection:
            equal(rest_of(connection), b"")
        with server.connect() as connection:
            connection.sendall(b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
            true(rest_of(connection).endswith(b"hello\n"), "one answer, then the end")


@test
def garbage():
    """what is not HTTP harms nobody"""
    with Server("receive_ms=500") as server:
        for text in (b"\0" * 100, os.urandom(1000), b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                     b"GET /hello HTTP/1.1\r\n" + b"X: " + b"y" * 100000 + b"\r\n\r\n",
                     b"GET /hello HTTP/1.1\r\n" + b"".join(b"H%d: x\r\n" % n for n in range(5000)) + b"\r\n",
                     b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                     b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
                     b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
            with server.connect() as connection:
                try:
                    connection.sendall(text)
                    connection.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
                true(b" 200 " not in rest_of(connection)[:20], f"no good answer to {text[:60]!r}")
        equal(server.ask(), (200, b"hello\n"))


@test
def ends_over_exchanges():
    """a server ends while requests have no answer yet"""
    with Server() as server:
        connections = [server.connect() for _ in range(3)]
        for connection in connections:
            connection.sendall(b"GET /never HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in connections:
            equal(server.process.stdout.readline(), "NEVER\n")
    for connection in connections:
        equal(rest_of(connection), b"")
        connection.close()


@test
def refused():
    """an address that is not understood or not free, and files that are no pair, get one line"""
    with Server() as server:
        for arguments in (["9394"], ["x:1"], ["127.0.0.1:65536"], ["[::1"], ["127.0.0.1:"], [":+1"],
                          [f"127.0.0.1:{server.port}"], [":0", "/nowhere", "/nowhere"], [":0", "/etc/passwd"],
                          [":0", "/etc/passwd", "/etc/passwd"]):
            process = drive(*arguments)
            line, _ = process.communicate(timeout=PATIENCE_S)
            equal(process.returncode, 1)
            true(line.startswith("ERROR ") and line.count("\n") == 1 and len(line) > 20, line)


def ask_tls(port, authority):
    context = ssl.create_default_context(cafile=authority)
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=PATIENCE_S)
    connection.request("GET", "/hello")
    body = connection.getresponse().read()
    connection.close()
    return body


@test
def renewed():
    """a certificate that was renewed is used from the next connection on, when its key is there too"""
    if not shutil.which("openssl"):
        raise tap.Skip("openssl is not installed")
    with tempfile.TemporaryDirectory() as place:
        makers = [os.path.join(place, name) for name in ("a", "b")]
        for maker in makers:
            os.mkdir(maker)
            api_server.Authority(maker).make()
        used = [os.path.join(place, name) for name in ("tls.crt", "tls.key")]
        first, second = [[os.path.join(maker, name) for name in ("tls.crt", "tls.key")] for maker in makers]
        authorities = [os.path.join(maker, "ca.crt") for maker in makers]
        for source, target in zip(first, used):
            shutil.copy(source, target)
        with Server("receive_ms=700", *used) as server:
            equal(ask_tls(server.port, authorities[0]), b"hello\n")
            mute = server.connect()
            shutil.copy(second[0], used[0] + ".new")
            os.replace(used[0] + ".new", used[0])
            equal(ask_tls(server.port, authorities[0]), b"hello\n")
            shutil.copy(second[1], used[1] + ".new")
            os.replace(used[1] + ".new", used[1])
            equal(ask_tls(server.port, authorities[1]), b"hello\n")
            os.remove(used[0])
            equal(ask_tls(server.port, authorities[1]), b"hello\n")
            equal(rest_of(mute), b"", "what comes to a client that never shakes hands")
            mute.close()
            with server.connect() as plain:
                plain.sendall(b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
                true(b"hello" not in rest_of(plain), "plain HTTP is not served")


def hello_bytes():
    """What a client of TLS sends first."""
    sent = ssl.MemoryBIO()
    session = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return sent.read()


@test
def stalled_handshakes():
    """clients that stop within the handshake hold up nobody's request"""
    if not shutil.which("openssl"):
        raise tap.Skip("openssl is not installed")
    with tempfile.TemporaryDirectory() as place:
        api_server.Authority(place).make()
        used = [os.path.join(place, name) for name in ("tls.crt", "tls.key")]
        hello = hello_bytes()
        with Server("connections=128", f"receive_ms={STALL_MS}", *used) as server:
            stalled = [server.connect() for _ in range(50)]
            for i, connection in enumerate(stalled):
                connection.sendall(hello[:(0, 1, 5, len(hello) // 2, len(hello))[i % 5]])
            for _ in range(10):
                equal(ask_tls(server.port, os.path.join(place, "ca.crt")), b"hello\n")
            poll = select.poll()
            for i, connection in enumerate(stalled):
                if i % 5 < 4:
                    poll.register(connection, select.POLLIN)
            equal(poll.poll(0), [], "stalled clients that were answered or cut")
            for connection in stalled:
                connection.close()


tap.main()
