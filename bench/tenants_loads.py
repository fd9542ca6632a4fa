# SPDX-License-Identifier: Apache-2.0
"""What bench/tenants.py measures: containers beside each other on one GPU, and which first where time is short."""
import compute_loads
from compute_loads import BY_NAME, LONGEST_COUNTED_US

TABLES = ("windows", "shares", "events", "latency")
SLACK_S = 1.2            # a measurement's time beside its loads': their ends, and their regions
EVENT_S = 8.0            # of an event that comes back each second
DEATH_S = 2.0            # seconds from the last begin to a tenant's death
GATE_LIMIT = 50
GATE_LOADS = ("full-1ms", "graph-20x100us", "hostbound", "torch-mlp")
END_WINDOW_MS = 10       # where kernels are counted from end to end
WINDOW_RANKS = {20: 0, 50: 0, 80: 0, 10: 1, 95: 1}


class Tenant:
    """A container with one load. limit: percent, 0 none; priority: None as it is without one."""

    def __init__(self, load, limit=0, soft=0, priority=None):
        self.load, self.limit, self.soft, self.priority = BY_NAME[load], limit, soft, priority

    def settings(self):
        """Options of vgpu run beside the limit."""
        soft = ["--soft-cores", str(self.soft)] if self.soft else []
        return soft + (["--priority", str(self.priority)] if self.priority is not None else [])

    def described(self):
        return {"load": self.load.name, "limit": self.limit, "soft": self.soft, "priority": self.priority}


class Scenario:
    """whos: how it is measured: native (the driver's own slicing), board, no-board; each with its rank.
    window_ms: of the loads' counts. event: dies (the second tenant), comes-back, priority."""

    def __init__(self, table, name, whos, tenants, event=None, windows=1, window_ms=50):
        self.table, self.name, self.whos, self.tenants = table, name, whos, tenants
        self.event, self.windows, self.window_ms = event, windows, window_ms

    def has_torch(self):
        return any(tenant.load.script for tenant in self.tenants)

    def seconds(self, seconds):
        if self.event == "dies":
            return DEATH_S + 2
        return max(EVENT_S, seconds) if self.event else seconds * self.windows

    def cost_s(self, seconds, warmup):
        return self.seconds(seconds) + warmup + SLACK_S + max(tenant.load.start_s for tenant in self.tenants)


def alone_of(load):
    """What a load does by itself and natively."""
    more = {"windows": 2, "window_ms": END_WINDOW_MS} if load.kernel_us >= LONGEST_COUNTED_US else {}
    return Scenario("alone", load.name, {"native": 9}, [Tenant(load.name)], **more)


def shares(mix, loads, limits, rank, **more):
    """Tenants of these loads at these limits, each way of measuring at a rank beside the given one."""
    whos = {"board": rank, "native": rank, "no-board": rank + 2}
    whos.update(more)
    tenants = [Tenant(load, limit) for load, limit in zip(loads, limits)]
    return Scenario("shares", f"{mix}, {'/'.join(map(str, limits))}", whos, tenants)


def share_scenarios():
    pairs = ((30, 60), (50, 50), (20, 70))
    mixes = {"full-1ms": (["full-1ms"] * 4, 0, pairs),
             "persistent beside full-1ms": (["persistent"] + ["full-1ms"] * 3, 0, pairs),
             "torch-conv beside full-1ms": (["torch-conv"] + ["full-1ms"] * 3, 1, pairs),
             "full-100us": (["full-100us"] * 2, 1, pairs), "persistent": (["persistent"] * 2, 1, pairs[:2])}
    found = []
    for mix, (loads, rank, limits_of_mix) in mixes.items():
        for place, limits in enumerate(limits_of_mix):
            # The driver's own slicing knows no limits: once for each mix.
            found.append(shares(mix, loads, limits, rank + place // 2, native=rank if place == 0 else 9))
    for mix in ("full-1ms", "persistent beside full-1ms"):
        loads, rank, _ = mixes[mix]
        for place, limits in enumerate(((20, 20, 20, 20), (10, 20, 30, 30))):
            found.append(shares(mix, loads, limits, 1 + (loads[0] != "full-1ms" and place),
                                native=1 if place == 0 and not rank else 9))
    # Kernels that others' turns always cut: counted over several windows.
    for load, limits, windows in (("full-5ms", (30, 60), 1), ("full-5ms", (5, 85), 1), ("full-20ms", (30, 60), 2),
                                  ("full-50ms", (30, 60), 3), ("full-150ms", (30, 60), 5)):
        found.append(shares(load, [load] * 2, limits, 2, native=9, **{"no-board": 9}))
        found[-1].windows = windows
    found[-1].window_ms = END_WINDOW_MS
    return found


def event(name, rank, kind, first, second):
    return Scenario("events", name, {"board": rank}, [first, second], event=kind, window_ms=5)


def event_scenarios():
    found = []
    for place, load in enumerate(("full-1ms", "persistent")):
        soft = Tenant(load, 30, soft=100)
        found += [
            event(f"a neighbour of {load} dies", 2 * place, "dies", soft, Tenant("full-1ms", 60)),
            event(f"a neighbour of {load} comes and goes", place, "comes-back", soft, Tenant("half-busy", 60)),
            event(f"somebody of higher priority beside {load}", 0, "priority", Tenant(load, 90, priority=1),
                  Tenant("half-busy", priority=0))]
    return found


def latency_scenarios():
    """The small one first. Twice the table's seconds, so that there are a thousand requests in 10 s. Alone and beside
    full-1ms of the same priority: tenants.latency of `vgpu bench`."""
    def beside(name, rank, who, small, *greedy):
        return Scenario("latency", name, {who: rank}, [small, *greedy], windows=2)
    small, high = Tenant("requests", 20), Tenant("requests", 20, priority=0)
    return [beside("beside full-1ms, higher priority", 0, "board", high, Tenant("full-1ms", 70, priority=1)),
            beside("beside persistent", 2, "native", small, Tenant("persistent", 70)),
            beside("beside persistent", 1, "board", small, Tenant("persistent", 70)),
            beside("beside persistent, higher priority", 1, "board", high, Tenant("persistent", 70, priority=1))]


SCENARIOS = share_scenarios() + event_scenarios() + latency_scenarios()


class Item:
    """One measurement. key: what its row is found by; needs: the keys of those that it is compared with."""

    def __init__(self, key, rank, cost_s, needs=()):
        self.key, self.rank, self.cost_s, self.needs = key, rank, cost_s, list(needs)


def window_items(seconds, warmup):
    """Loads that a launch gate cannot hold, at each limit; and the gates beside each other."""
    found = []

    def add(load, limit, who, rank):
        cost = compute_loads.cost_s(load, seconds, warmup)
        native = ("windows", load.name, 0, "native")
        found.append(Item(native, 9, cost))
        found.append(Item(("windows", load.name, limit, who), rank, cost, [native]))
    for load in compute_loads.LONG + [BY_NAME["full-50ms"]]:
        for limit, rank in WINDOW_RANKS.items():
            add(load, limit, "vgpu", load.rank + rank + (limit == 50 and load.rank > 0 or load.kind != "long"))
    for name in GATE_LOADS:
        for who in ("vgpu-channel", "vgpu-launch"):
            add(BY_NAME[name], GATE_LIMIT, who, 1 + (name != "full-1ms" and name != "hostbound"))
    return list({item.key: item for item in found}.values())


def scenario_items(seconds, warmup):
    found = []
    alone = {}
    for scenario in SCENARIOS:
        for tenant in scenario.tenants if scenario.table == "shares" else []:
            cost = alone_of(tenant.load).cost_s(seconds, warmup)
            alone[tenant.load.name] = Item(("alone", tenant.load.name, "native"), 9, cost)
        needs = [alone[tenant.load.name].key for tenant in scenario.tenants] if scenario.table == "shares" else []
        found += [Item((scenario.table, scenario.name, who), rank, scenario.cost_s(seconds, warmup), needs)
                  for who, rank in scenario.whos.items() if rank < 9]
    return list(alone.values()) + found


def scenario_of(table, name, who):
    if table == "alone":
        return alone_of(BY_NAME[name])
    return next(each for each in SCENARIOS if (each.table, each.name) == (table, name) and who in each.whos)


def loads_of(key):
    """Of an item's key."""
    return [BY_NAME[key[1]]] if key[0] == "windows" else [tenant.load for tenant in scenario_of(*key).tenants]


def plan(items, there, budget_s):
    """([item to measure, in the order of measuring], [left out], seconds). `there`: keys that are measured already.
    Rank by rank, each with what it is compared with; those of no rank of their own (9) only so."""
    by_key = {item.key: item for item in items}
    chosen, left_out, used = {}, [], 0.0
    order = {item.key: place for place, item in enumerate(items)}
    for item in sorted(items, key=lambda item: (item.rank, order[item.key])):
        if item.rank >= 9 or item.key in there:
            continue
        wanted = [key for key in dict.fromkeys([*item.needs, item.key]) if key not in there and key not in chosen]
        cost = sum(by_key[key].cost_s for key in wanted)
        if budget_s is not None and used + cost > budget_s:
            left_out.append(item)
            continue
        used += cost
        chosen.update((key, by_key[key]) for key in wanted)
    return list(chosen.values()), left_out, used
