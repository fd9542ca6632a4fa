# SPDX-License-Identifier: Apache-2.0
"""client BUILD: requests of the API client against a server with faults. Nothing is lost, and nothing
spins: requests are counted, and the waits that the client chose."""
import json
import re
import shutil
import signal
import socket
import time
from email.utils import formatdate

from world import MERGE, World, api_server, tap

equal, test, true = tap.equal, tap.test, tap.true

FIRST_MS = 40
FAST = (f"first_ms={FIRST_MS}", "max_ms=320", "attempt_ms=20000")


def waits(world, number):
    return [int(line.split(" ", 3)[2]) for line in world.driver.all(f"RETRY {number} ")]


def check_waits(world, number, first=FIRST_MS, most=320):
    """Each wait lies between a half and all of what the exponential backoff allows."""
    for at, wait in enumerate(waits(world, number)):
        full = min(first * 2 ** at, most)
        true(full // 2 <= wait <= full, f"wait {at} is {wait} ms of {full} ms")


@test
def answered():
    """a request carries token, agent and content type, and its answer comes back"""
    with World() as world:
        world.node()
        world.annotate(1)
        equal(world.driver.done(1), (200, 1, "n1"))
        equal(world.annotation(), "yes")
        entry = world.server.log("PATCH")[0]
        equal((entry["authorization"], entry["agent"], entry["content_type"]),
              ("Bearer first", "kube-driver", MERGE))
        world.driver.say('request 2 0 POST /api/v1/namespaces/default/pods - {"metadata":{"name":"p"}}')
        equal(world.driver.done(2)[0], 201)
        world.driver.say("request 3 0 GET /api/v1/namespaces/default/pods/p")
        equal(world.driver.done(3), (200, 1, "p"))


@test
def final():
    """what the caller must decide comes back at once: 400, 403, 404, 409, 422"""
    with World(*FAST) as world:
        world.node()
        version = json.dumps({"metadata": {"resourceVersion": "1"}})
        world.driver.say(f"request 1 0 PATCH /api/v1/nodes/n1 {MERGE} {version}")
        status, attempts, text = world.driver.done(1)
        equal((status, attempts), (409, 1))
        true(re.fullmatch(r"PATCH /api/v1/nodes/n1: 409: Operation cannot be .*", text), text)
        for number, status in enumerate((400, 403, 404, 409, 422), 2):
            world.server.fault(path=f"/x{status}", status=status)
            world.driver.say(f"request {number} 0 GET /api/v1/x{status}")
            equal(world.driver.done(number)[:2], (status, 1))
        equal(len(world.server.log()), 6, "requests")


@test
def retry_after():
    """429 and 503 are tried again after Retry-After, in seconds or as a date"""
    with World(*FAST) as world:
        world.node()
        world.server.fault(status=429, headers={"Retry-After": "1"})
        world.server.fault(status=503, headers={"Retry-After": formatdate(time.time() + 5, usegmt=True)})
        world.annotate(1)
        equal(world.driver.done(1)[:2], (200, 3))
        equal(world.statuses("PATCH"), [429, 503, 200])
        first, second = waits(world, 1)
        equal(first, 1000, "first wait in ms")
        true(1000 <= second <= 5000, f"second wait is {second} ms")


@test
def retry_after_late():
    """a Retry-After beyond the deadline ends the request: it is not tried before"""
    with World(*FAST) as world:
        world.server.fault(status=429, headers={"Retry-After": "300"}, count=100)
        world.annotate(1, deadline_ms=2000)
        equal(world.driver.done(1)[:2], (429, 1))
        equal(len(world.server.log()), 1, "requests")


@test
def server_errors():
    """500, 502, 503, 504 and 429 without Retry-After are tried again, with waits that grow"""
    with World(*FAST) as world:
        world.node()
        codes = [500, 502, 503, 504, 429]
        for code in codes:
            world.server.fault(status=code)
        world.annotate(1)
        equal(world.driver.done(1)[:2], (200, 6))
        equal(world.statuses("PATCH"), codes + [200])
        equal(len(waits(world, 1)), 5, "waits")
        check_waits(world, 1)


@test
def cut():
    """a connection that is cut before, in or after an answer is made anew, and the write is done"""
    with World(*FAST) as world:
        world.node()
        for number, place in enumerate(("before", "middle", "after")):
            world.server.fault(path="nodes", cut=place)
            world.annotate(number, value=place)
            equal(world.driver.done(number)[0], 200)
            equal(world.annotation(), place)
        true(len(world.server.log()) <= 9, "a cut costs at most two more requests")


@test
def outage():
    """a write waits while no server listens, and is done when one does"""
    with World(*FAST) as world:
        port = world.server.port
        world.server.stop()
        world.annotate(1)
        world.driver.wait("RETRY 1 ", 6)
        check_waits(world, 1)
        world.server = api_server.Server(port, tokens=["first"])
        world.node()
        world.server.start()
        equal(world.driver.done(1)[0], 200)
        equal(world.annotation(), "yes")
        equal(len(world.server.log()), 1, "requests")


@test
def slow():
    """an answer that does not come in time is given up, and asked for again"""
    with World("first_ms=40", "max_ms=320", "attempt_ms=400") as world:
        world.node()
        world.server.fault(delay=3, status=200, body="{}")
        world.annotate(1)
        status, attempts, _ = world.driver.done(1)
        equal(status, 200)
        true(attempts >= 2, "it was tried again")
        true("imed out" in world.driver.wait_one("RETRY 1 "), "the line says that it timed out")
        equal(world.annotation(), "yes")


@test
def silent_peer():
    """a peer that takes the connection and says nothing costs one time-out, then a wait"""
    with World("first_ms=40", "max_ms=80", "attempt_ms=300") as world:
        port = world.server.port
        world.server.stop()
        with socket.create_server(("127.0.0.1", port)) as dumb:
            world.annotate(1, deadline_ms=1500)
            status, attempts, _ = world.driver.done(1)
            equal(status, 0)
            true(2 <= attempts <= 6, f"{attempts} attempts in 1500 ms of 300 ms each")
            dumb.close()


@test
def deadline():
    """at its deadline a request ends with the last answer, and few were sent"""
    with World(*FAST) as world:
        world.server.fault(status=503, count=1000)
        world.annotate(1, deadline_ms=1000)
        status, attempts, text = world.driver.done(1)
        equal(status, 503)
        equal(attempts, len(world.server.log()), "attempts")
        true(4 <= attempts <= 20, f"{attempts} attempts")
        true("503" in text, text)


@test
def frozen():
    """a process that stands still beyond a request's deadline does not send it when it goes on"""
    with World(*FAST) as world:
        world.node()
        world.server.fault(path="nodes/n1", status=503, headers={"Retry-After": "1"})
        world.annotate(1, deadline_ms=2000)
        world.driver.wait("RETRY 1 ")
        world.driver.process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        world.driver.process.send_signal(signal.SIGCONT)
        equal(world.driver.done(1)[:2], (503, 1))
        equal(world.statuses("PATCH"), [503])
        equal(world.annotation(), None)


@test
def cancelled():
    """a request that was cancelled is not sent again, and nothing is said of it"""
    with World(*FAST) as world:
        world.node()
        world.server.fault(path="nodes/n1", status=503, count=1000)
        world.annotate(1)
        world.driver.wait("RETRY 1 ", 2)
        world.driver.say("cancel 1")
        world.driver.wait("CANCELLED 1")
        sent, said = len(world.server.log(path="nodes/n1")), len(world.driver.all("RETRY 1 "))
        for _ in range(8):
            world.server.fault(path="/other", status=503)
        world.driver.say("request 2 0 GET /other")
        equal(world.driver.done(2)[1], 9)  # more than the longest wait of the other
        equal(len(world.server.log(path="nodes/n1")), sent, "requests")
        equal(len(world.driver.all("RETRY 1 ")), said, "lines")
        equal(world.driver.all("DONE 1"), [])


@test
def token_renewed():
    """a token that was renewed in its file is used from the next request on"""
    with World(*FAST) as world:
        world.node()
        world.annotate(1)
        equal(world.driver.done(1)[0], 200)
        world.write_token("second")
        world.server.tokens = ["second"]
        world.annotate(2)
        equal(world.driver.done(2)[:2], (200, 1))
        equal(world.statuses("PATCH"), [200, 200])


@test
def token_expired():
    """401 reads the token again at once, then waits as after a server's error; the write is not lost"""
    with World(*FAST) as world:
        world.node()
        world.server.tokens = ["second"]
        world.annotate(1)
        world.driver.wait("RETRY 1 ", 3)
        check_waits(world, 1)
        refused = len(world.server.log("PATCH"))
        true(refused <= len(waits(world, 1)) + 2, f"{refused} requests: one more than waits, at once")
        world.write_token("second")
        equal(world.driver.done(1)[0], 200)
        equal(world.annotation(), "yes")
        equal(set(world.statuses("PATCH")[:-1]), {401})


@test
def not_json():
    """an answer of 200 that is not JSON is asked for again"""
    with World(*FAST) as world:
        world.node()
        for body in ("", "<html>", '{"kind":"No'):
            world.server.fault(status=200, body=body)
        world.driver.say("request 1 0 GET /api/v1/nodes/n1")
        equal(world.driver.done(1), (200, 4, "n1"))


@test
def too_large():
    """an answer above the bound is given up and not asked for again"""
    with World(*FAST, "reply=1000") as world:
        world.server.fault(status=200, body=json.dumps({"a": "x" * 2000}), count=5)
        world.driver.say("request 1 0 GET /api/v1/nodes/n1")
        status, attempts, text = world.driver.done(1)
        equal((status, attempts), (0, 1))
        true("too large" in text, text)


@test
def full():
    """more requests than the client holds are refused, and those that it holds are done in turn"""
    with World(*FAST, "calls=3", "connections=1") as world:
        world.node()
        world.server.fault(delay=0.5, count=1, status=503)
        for number in range(5):
            world.annotate(number)
        equal(world.driver.wait("REFUSED", 2), ["REFUSED 3 full", "REFUSED 4 full"])
        for number in range(3):
            equal(world.driver.done(number)[0], 200)


@test
def turn():
    """a request whose deadline passes before its turn ends without being sent"""
    with World("attempt_ms=2500", "connections=1") as world:
        world.server.fault(delay=1.5, status=200, body="{}")
        world.driver.say("request 1 0 GET /api/v1/nodes/n1")
        world.driver.say("request 2 300 GET /api/v1/nodes/n2")
        status, attempts, text = world.driver.done(2)
        equal((status, attempts), (0, 0))
        true("deadline" in text, text)
        equal(world.driver.done(1)[0], 200)
        equal(world.server.log(path="n2"), [])


@test
def storm():
    """of 300 writes under all faults at once none is lost, and each costs few requests"""
    with World(*FAST, "connections=8") as world:
        for number in range(300):
            world.node(f"node-{number}")
        for count, fault in ((40, {"status": 503}), (40, {"status": 429, "headers": {"Retry-After": "0"}}),
                             (40, {"cut": "before"}), (40, {"cut": "after"}), (40, {"status": 500}),
                             (20, {"cut": "middle"})):
            world.server.fault(count=count, **fault)
        for number in range(300):
            world.annotate(number, node=f"node-{number}", value=str(number))
        for number in range(300):
            equal(world.driver.done(number)[0], 200)
            equal(world.annotation(f"node-{number}"), str(number))
        sent = len(world.server.log())
        true(300 <= sent <= 300 + 220 * 2, f"{sent} requests")


@test
def rotated_ca():
    """a new CA is trusted as soon as its file says so; until then nothing is sent"""
    if not shutil.which("openssl"):
        raise tap.Skip("openssl is not installed")
    with World(*FAST, tls=True) as world:
        world.node()
        world.annotate(1)
        equal(world.driver.done(1)[0], 200)
        world.server.rotate_ca(publish=False)
        world.annotate(2, value="again")
        lines = world.driver.wait("RETRY 2 ", 4)
        true(any("certificate" in line or "SSL" in line for line in lines), str(lines))
        check_waits(world, 2)
        equal(len(world.server.log()), 1, "requests that came through")
        world.server.authority.publish()
        equal(world.driver.done(2)[0], 200)
        equal(world.annotation(), "again")


tap.main()
