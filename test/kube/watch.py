# SPDX-License-Identifier: Apache-2.0
"""watch BUILD: the watch against a server with faults. What it reports is kept as a cache would keep it,
and must be what the server has; requests are counted, or their distances are bounded from below."""
import json
import shutil
import time

from world import PATIENCE_S, World, api_server, tap

equal, test, true = tap.equal, tap.test, tap.true
FIRST_MS = 40
FAST = (f"first_ms={FIRST_MS}", "max_ms=320", "attempt_ms=20000")


def follow(world, page=100, idle_ms=20000, field="-", label="-", path="/api/v1/pods"):
    world.driver.say(f"watch {path} {page} {idle_ms} {field} {label}")
    world.driver.wait("SYNCED")


def lists(world):
    return len([e for e in world.server.log(watch=False) if "continue" not in e["query"]])


def watches(world):
    return len(world.server.log(watch=True))


def cache(world):
    """name: (UID, note), as the reports add up. What contradicts the reports before fails the test."""
    pods = {}
    for line in world.driver.all("ADDED ", "MODIFIED ", "DELETED "):
        change, name, uid, note = line.split(" ", 3)
        if change == "ADDED":
            true(name not in pods, f"{name} is added while it is there")
            pods[name] = (uid, note)
        elif change == "MODIFIED":
            true(pods[name][0] == uid, f"{name} has another UID")
            pods[name] = (uid, note)
        else:
            true(pods.pop(name)[0] == uid, f"{name} was deleted with another UID")
    return pods


def truth(world, wanted=lambda pod: True):
    return {f"{p['metadata']['namespace']}/{p['metadata']['name']}":
            (p["metadata"]["uid"], (p["metadata"].get("annotations") or {}).get("note", "-"))
            for p in world.server.store.items("pods", wanted)}


def agree(world, wanted=lambda pod: True):
    """Waits until the cache is what the server has."""
    until = time.monotonic() + PATIENCE_S
    while cache(world) != truth(world, wanted):
        if time.monotonic() > until:
            equal(cache(world), truth(world, wanted), "the cache")
        time.sleep(0.02)
    tap.checked()


def check_distances(world, entries, first=FIRST_MS, most=320):
    """Requests that fail in a row are as far from each other as the backoff says: at least half of it."""
    times = [entry["time"] for entry in entries]
    for at, (before, after) in enumerate(zip(times, times[1:])):
        least = min(first * 2 ** at, most) / 2000
        true(after - before >= least, f"request {at + 1} comes {after - before:.3f} s after the one before, "
             f"not {least} s")


@test
def listed():
    """a collection is listed in pages, then followed: additions, changes, deletions"""
    with World(*FAST) as world:
        for number in range(7):
            world.pod(f"p{number}")
        follow(world, page=3)
        equal(len(cache(world)), 7)
        equal([e["query"].get("limit") for e in world.server.log(watch=False)], ["3"] * 3)
        world.pod("p7")
        world.pod("p0", note="changed")
        world.remove("p1")
        world.driver.wait("DELETED default/p1")
        agree(world)
        equal((lists(world), watches(world)), (1, 1))


@test
def selected():
    """selectors are sent, and what is not selected any more is reported as deleted"""
    with World(*FAST) as world:
        world.pod("mine", app="a")
        world.pod("other", node="n2", app="a")
        world.pod("unlabelled")
        follow(world, field="spec.nodeName=n1", label="app=a")
        equal(list(cache(world)), ["default/mine"])
        world.pod("mine", app="b")
        world.driver.wait("DELETED default/mine")
        world.pod("unlabelled", app="a")
        world.driver.wait("ADDED default/unlabelled")
        equal(list(cache(world)), ["default/unlabelled"])
        entries = world.server.log()
        equal({e["query"].get("fieldSelector") for e in entries}, {"spec.nodeName=n1"})
        equal({e["query"].get("labelSelector") for e in entries}, {"app=a"})


@test
def cut():
    """a watch that is cut goes on from where it was: nothing is listed again"""
    with World(*FAST) as world:
        follow(world)
        for number in range(4):
            world.server.cut_watches()
            world.pod(f"p{number}")
            world.driver.wait(f"ADDED default/p{number} ")
        agree(world)
        equal(lists(world), 1, "lists")
        true(watches(world) <= 5 + 1, f"{watches(world)} watches after 4 cuts")


@test
def ended():
    """a server that ends each watch at once is asked again with waits that grow"""
    with World(*FAST) as world:
        world.pod("p")
        world.server.fault(path="watch=1", status=200, body="", count=8)
        follow(world)
        world.pod("q")
        world.driver.wait("ADDED default/q")
        equal((lists(world), watches(world)), (1, 9))
        check_distances(world, world.server.log(watch=True))


@test
def gone():
    """410 of a watch lists anew, and what was deleted or replaced in the gap is reported"""
    with World(*FAST) as world:
        for name in ("stays", "goes", "comes-again", "changes"):
            world.pod(name)
        follow(world)
        said = len(world.driver.lines)
        world.server.fault(path="watch=1", status=503, count=1)
        world.server.cut_watches()
        world.remove("goes")
        world.remove("comes-again")
        world.pod("comes-again")
        world.pod("changes", note="new")
        world.server.store.compact()
        world.driver.wait("SYNCED", since=said)
        agree(world)
        equal([line.split()[:2] for line in world.driver.lines[said:] if "default/stays" in line], [])
        again = [line.split()[0] for line in world.driver.lines[said:] if "default/comes-again" in line]
        equal(again, ["DELETED", "ADDED"])
        equal(lists(world), 2, "lists")


@test
def gone_by_status():
    """410 as the answer's status does the same, and again and again lists with waits that grow"""
    with World(*FAST) as world:
        world.pod("p")
        world.server.fault(path="watch=1", status=410, count=6)
        follow(world)
        world.driver.wait("SYNCED", 7)
        world.pod("q")
        world.driver.wait("ADDED default/q")
        equal((lists(world), watches(world)), (7, 7))
        check_distances(world, world.server.log(watch=True))
        agree(world)


@test
def error_event():
    """an ERROR event that is not 410 ends the watch, and it goes on from the same version"""
    with World(*FAST) as world:
        error = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd is away"}}
        world.server.fault(path="watch=1", raw=json.dumps(error) + "\n", count=3)
        follow(world)
        world.pod("p")
        world.driver.wait("ADDED default/p")
        equal((lists(world), watches(world)), (1, 4))
        true("etcd is away" in world.driver.wait_one("TROUBLE"), "the line says why")
        check_distances(world, world.server.log(watch=True))


@test
def page_gone():
    """410 in the middle of a list begins it anew"""
    with World(*FAST) as world:
        for number in range(6):
            world.pod(f"p{number}")
        world.server.fault(path="continue=", status=410, count=1)
        follow(world, page=2)
        agree(world)
        equal(lists(world), 2, "lists")


@test
def bookmarks():
    """a watch goes on from the last bookmark, also where older versions are forgotten"""
    with World(*FAST, bookmark_s=0.1) as world:
        follow(world, field="spec.nodeName=n1")
        world.server.store.compact()
        time.sleep(0.05)
        world.server.cut_watches()  # the version of the list is forgotten: a new list
        world.driver.wait("SYNCED", 2)
        for number in range(5):
            world.pod(f"other{number}", node="n2")
        last = world.server.store.version
        until = time.monotonic() + PATIENCE_S
        world.server.clear_log()
        while time.monotonic() < until:
            world.server.cut_watches()
            time.sleep(0.4)
            if any(int(e["query"]["resourceVersion"]) >= last for e in world.server.log(watch=True)):
                break
        equal(lists(world), 0, "lists")
        true(int(world.server.log(watch=True)[-1]["query"]["resourceVersion"]) >= last,
             "the watch goes on from a version that only a bookmark told")
        world.pod("p")
        world.driver.wait("ADDED default/p")


@test
def silent():
    """a watch that dies silently is noticed, and what happened meanwhile is reported"""
    with World(*FAST, bookmark_s=0.1) as world:
        world.pod("p")
        follow(world, idle_ms=1500)
        time.sleep(0.3)
        world.server.silence_watches()
        world.pod("q")
        world.remove("p")
        world.driver.wait("DELETED default/p")
        agree(world)
        equal((lists(world), watches(world)), (1, 2))
        true("nothing came" in world.driver.wait_one("TROUBLE"), "the line says why")
        world.driver.wait("BACK")


@test
def silent_from_the_start():
    """watches that begin and say nothing cost one request in each idle time-out"""
    with World(*FAST) as world:
        world.server.fault(path="watch=1", silent=True, count=4)
        follow(world, idle_ms=300)
        world.pod("p")
        world.driver.wait("ADDED default/p")
        true(5 <= watches(world) <= 6, f"{watches(world)} watches")
        times = [entry["time"] for entry in world.server.log(watch=True)]
        true(all(b - a >= 0.3 for a, b in zip(times, times[1:5])), "none comes before the time-out")


@test
def garbage():
    """lines that are no events end the watch; after three in a row it lists anew, and goes on"""
    lines = ("garbage\n", "{}\n", '{"type":"ADDED"}\n', '{"type":1,"object":{}}\n', "[]\n",
             '{"type":"ADDED","object":[]}\n')
    with World(*FAST) as world:
        for line in lines:
            world.server.fault(path="watch=1", raw=line)
        follow(world)
        world.driver.wait("SYNCED", 3)
        world.pod("p")
        world.driver.wait("ADDED default/p")
        equal((lists(world), watches(world)), (3, 7))
        check_distances(world, world.server.log(watch=True))
        agree(world)


@test
def overloaded():
    """429 with Retry-After is honoured by the list and by the watch"""
    with World(*FAST) as world:
        for path in ("limit=", "watch=1"):
            world.server.fault(path=path, status=429, headers={"Retry-After": "1"})
        follow(world)
        world.pod("p")
        world.driver.wait("ADDED default/p")
        entries = world.server.log()
        equal([e["status"] for e in entries], [429, 200, 429, 200])
        true(entries[1]["time"] - entries[0]["time"] >= 1, "the list waits 1 s")
        true(entries[3]["time"] - entries[2]["time"] >= 1, "the watch waits 1 s")


@test
def expired_token():
    """an expired token ends nothing: the watch follows again with the new one"""
    with World(*FAST) as world:
        follow(world)
        world.server.tokens = ["second"]
        world.server.cut_watches()
        until = time.monotonic() + PATIENCE_S
        while len(world.server.log(watch=True)) < 4 and time.monotonic() < until:
            time.sleep(0.02)
        check_distances(world, world.server.log(watch=True)[1:])
        world.pod("p")
        world.write_token("second")
        world.driver.wait("ADDED default/p")
        equal(lists(world), 1, "lists")


@test
def forbidden():
    """a list that is refused (403) is tried again with waits that grow, and told once"""
    with World(*FAST) as world:
        world.server.fault(status=403, count=7)
        follow(world)
        equal(lists(world), 8, "lists")
        check_distances(world, world.server.log(watch=False))
        equal(len(world.driver.all("TROUBLE")), 1, "lines")
        equal(len(world.driver.all("BACK")), 1, "lines")


@test
def restarted():
    """a server that comes back with other objects is listed anew where it says 410"""
    with World(*FAST) as world:
        world.pod("before")
        follow(world)
        port = world.server.port
        world.server.stop()
        world.driver.wait("TROUBLE")
        world.server = api_server.Server(port, tokens=["first"])
        world.pod("after")
        world.server.store.version += 1000
        world.server.store.compact()
        world.server.start()
        world.driver.wait("DELETED default/before")
        agree(world)


@test
def too_large():
    """pages that are too large are asked for in smaller ones"""
    with World(*FAST, "reply=6000") as world:
        for number in range(12):
            world.pod(f"p{number:02}", note="x" * 1000)
        follow(world, page=12)
        agree(world)
        equal([e["query"]["limit"] for e in world.server.log(watch=False)], ["12", "6", "3", "3", "3", "3"])


@test
def large_event():
    """an event of 2 MB comes through"""
    with World(*FAST) as world:
        follow(world)
        world.server.put("pods", {"metadata": {"name": "p"}, "spec": {"text": "x" * 2000000}})
        world.driver.wait("ADDED default/p")
        agree(world)


@test
def stopped():
    """a watch that was destroyed sends nothing more and says nothing more"""
    with World(*FAST) as world:
        follow(world)
        end = time.monotonic() + 60
        while not watches(world) and time.monotonic() < end:  # it may not have come there yet
            time.sleep(0.01)
        world.driver.say("unwatch")
        world.driver.wait("UNWATCHED")
        world.pod("p")
        world.driver.say("request 1 0 GET /api/v1/namespaces/default/pods/p")
        equal(world.driver.done(1)[0], 200)
        equal((lists(world) - 1, watches(world)), (1, 1))
        equal(cache(world), {})


@test
def rotated_ca():
    """a rotated CA ends nothing: the watch follows again as soon as the file has the new one"""
    if not shutil.which("openssl"):
        raise tap.Skip("openssl is not installed")
    with World(*FAST, tls=True) as world:
        follow(world)
        world.server.rotate_ca(publish=False)
        world.driver.wait("TROUBLE")
        world.pod("p")
        world.server.authority.publish()
        world.driver.wait("ADDED default/p")
        agree(world)
        equal(lists(world), 1, "lists")


@test
def storm():
    """under all faults at once the cache is in the end what the server has"""
    with World(*FAST, bookmark_s=0.1) as world:
        for number in range(40):
            world.pod(f"p{number}")
        follow(world, page=7, idle_ms=1000)
        orders = (world.server.cut_watches, world.server.silence_watches, world.server.store.compact,
                  world.server.cut_connections,
                  lambda: world.server.fault(path="pods", status=503, count=2),
                  lambda: world.server.fault(path="pods", status=410, count=1),
                  lambda: world.server.fault(path="pods", cut="middle", count=1),
                  lambda: world.server.fault(path="watch=1", raw="garbage\n", count=1))
        for turn in range(32):
            orders[turn % len(orders)]()
            world.remove(f"p{turn}")
            if turn % 3 == 0:
                world.pod(f"p{turn}", note=f"again-{turn}")
            world.pod(f"p{turn + 1}", note=f"turn-{turn}")
            time.sleep(0.02)
            if turn % 8 == 7:
                world.server.cut_watches()
        agree(world)
        true(len(world.server.log()) <= 300, f"{len(world.server.log())} requests")


tap.main()
