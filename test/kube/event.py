# SPDX-License-Identifier: Apache-2.0
"""event BUILD: Events that are posted: what they say, that equal ones are counted, and that they never
are in the way."""
import json
import time

from world import PATIENCE_S, World, tap

equal, test, true = tap.equal, tap.test, tap.true
FAST = ("first_ms=40", "max_ms=320", "repeat_ms=300")


def events(world):
    return world.server.store.items("events")


def wait_for(world, what, condition):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"no {what}: {world.server.log()}")
        time.sleep(0.02)
    tap.checked()


@test
def posted():
    """an event names its object, its reason and who reports"""
    with World(*FAST) as world:
        world.driver.say("event Allocated! p1 no room on é")
        wait_for(world, "event", lambda: events(world))
        event = events(world)[0]
        equal(event["involvedObject"], {"apiVersion": "v1", "kind": "Pod", "namespace": "default",
                                        "name": "p1", "uid": "uid-p1"})
        equal((event["type"], event["reason"], event["message"], event["count"]),
              ("Warning", "Allocated", "no room on é", 1))
        equal(event["source"], {"component": "test", "host": "n1"})
        equal(event["metadata"]["namespace"], "default")
        equal(event["firstTimestamp"], event["lastTimestamp"])
        time.strptime(event["firstTimestamp"], "%Y-%m-%dT%H:%M:%SZ")


@test
def counted():
    """a thousand equal events are one with a count, and few requests"""
    with World(*FAST) as world:
        for _ in range(1000):
            world.driver.say("event Same p1 again")
        world.driver.say("event Other p1 again")
        wait_for(world, "count", lambda: sorted(e["count"] for e in events(world)) == [1, 1000])
        true(len(world.server.log()) <= 6, f"{len(world.server.log())} requests")
        equal({e["method"] for e in world.server.log()}, {"POST", "PATCH"})


@test
def answer_lost():
    """an event whose answer was lost is there once"""
    with World(*FAST) as world:
        world.server.fault(cut="after")
        world.driver.say("event Lost p1 text")
        wait_for(world, "second request", lambda: len(world.server.log()) >= 2)
        world.driver.say("event Lost p1 text")
        wait_for(world, "count", lambda: [e["count"] for e in events(world)] == [2])


@test
def forgotten():
    """an event that the server has removed is posted again when it repeats"""
    with World(*FAST) as world:
        world.driver.say("event Gone p1 text")
        wait_for(world, "event", lambda: events(world))
        world.server.store.delete("events", "default", events(world)[0]["metadata"]["name"], {})
        world.driver.say("event Gone p1 text")
        wait_for(world, "event", lambda: [e["count"] for e in events(world)] == [2])


@test
def full():
    """a burst beyond the queue is dropped and counted, and requests go on meanwhile"""
    with World(*FAST) as world:
        world.node()
        world.server.fault(path="events", status=503, count=2)
        for number in range(392):
            world.driver.say(f"event Burst p{number} text")
        world.annotate(1)
        equal(world.driver.done(1)[0], 200)
        world.driver.say("dropped")
        equal(world.driver.wait_one("DROPPED"), "DROPPED 136")


@test
def ranks():
    """in a full queue warnings take the place of others, and what is dispensable gives way first"""
    with World(*FAST) as world:
        world.node()
        world.server.fault(path="events", status=503, count=4)
        world.driver.say("event First p text")
        for number in range(10):
            world.driver.say(f"event Spare? p{number} text")
        for number in range(250):
            world.driver.say(f"event Normal p{number} text")
        for number in range(10):
            world.driver.say(f"event Warned! p{number} text")
        world.driver.say("dropped")
        equal(world.driver.wait_one("DROPPED"), "DROPPED 15")
        wait_for(world, "events", lambda: len(events(world)) >= 12)
        reasons = [json.loads(e["body"])["reason"] for e in world.server.log("POST") if e["status"] == 201]
        equal(reasons[:12], ["First"] + ["Warned"] * 10 + ["Normal"])


@test
def refused():
    """an event that the server refuses is dropped, and the next one is sent"""
    with World(*FAST) as world:
        world.server.fault(status=403)
        world.driver.say("event Refused p1 text")
        world.driver.say("event Taken p1 " + "x" * 3000)
        wait_for(world, "event", lambda: events(world))
        equal([e["reason"] for e in events(world)], ["Taken"])
        equal(len(events(world)[0]["message"]), 1024)
        world.driver.say("dropped")
        equal(world.driver.wait_one("DROPPED"), "DROPPED 1")
        equal(json.loads(world.server.log("POST")[0]["body"])["reason"], "Refused")


tap.main()
