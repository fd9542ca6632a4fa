# SPDX-License-Identifier: Apache-2.0
"""A slow and obvious evaluator of a schedule case: what a Pod may get, said once more in other words
than src/schedule says it. Everything is worked out anew from the objects for each question."""
import itertools
import json

ALLOCATED = "hami.io/vgpu-devices-allocated"


def annotations_of(pod):
    return pod.get("metadata", {}).get("annotations", {})


def containers_of(pod):
    """[(kind, container)] in the order of device strings."""
    spec = pod["spec"]
    init = [("sidecar" if c.get("restartPolicy") == "Always" else "init", c)
            for c in spec.get("initContainers", [])]
    return init + [("app", c) for c in spec.get("containers", [])]


def moments_of(kinds):
    """Lists of places that run at the same time: each init container with the sidecars before it, and
    in the end all sidecars and containers."""
    moments = []
    for i, kind in enumerate(kinds):
        if kind == "init":
            moments.append([k for k in range(i) if kinds[k] == "sidecar"] + [i])
    return moments + [[i for i, kind in enumerate(kinds) if kind != "init"]]


def places_of(text):
    """The device string as a list, for each place, of (uuid, memory, cores)."""
    places = []
    for place in text.split(";")[:-1]:
        fields = [device.split(",") for device in place.split(":") if "," in device]
        places.append([(f[0], int(f[2]), int(f[3])) for f in fields])
    return places


def init_is_done(pod):
    statuses = {s["name"]: s for s in pod.get("status", {}).get("initContainerStatuses", [])}
    for kind, container in containers_of(pod):
        if kind == "init":
            ended = statuses.get(container["name"], {}).get("state", {}).get("terminated", {})
            if ended.get("exitCode") != 0:
                return False
    return True


def worst_of(pod, places):
    """{uuid: [memory, cores, slots]} and (memory, cores) of all together, each at its worst moment."""
    kinds = [kind for kind, _ in containers_of(pod)]
    moments = moments_of(kinds)
    if init_is_done(pod):
        moments = moments[-1:]
    devices, total = {}, [0, 0]
    for moment in moments:
        now, sums = {}, [0, 0]
        for place in moment:
            for uuid, memory, cores in places[place]:
                held = now.setdefault(uuid, [0, 0, 0])
                held[0] += memory
                held[1] += cores
                held[2] += 1
                sums[0] += memory
                sums[1] += cores
        for uuid, held in now.items():
            known = devices.setdefault(uuid, [0, 0, 0])
            devices[uuid] = [max(a, b) for a, b in zip(known, held)]
        total = [max(a, b) for a, b in zip(total, sums)]
    return devices, total


def holds(pod):
    return (ALLOCATED in annotations_of(pod) and
            pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"))


def node_of(pod):
    return pod["spec"].get("nodeName") or annotations_of(pod).get("hami.io/vgpu-node", "")


def cards_of(case, node):
    """The node's cards with what is used of each, in the order of index and UUID."""
    cards = []
    for entry in json.loads(node["annotations"].get("hami.io/node-nvidia-register", "[]")):
        card = {"id": entry["id"], "index": entry.get("index", 0), "numa": entry.get("numa", 0),
                "type": entry.get("type", ""), "mode": entry.get("mode", ""),
                "healthy": entry.get("health", False),
                "total": [entry.get("devmem", 0), entry.get("devcore", 0), entry.get("count", 0)],
                "used": [0, 0, 0]}
        card["cordoned"] = card["id"] in node["annotations"].get("hami.io/device-cordon", "").split(",")
        cards.append(card)
    for pod in case["pods"]:
        if holds(pod) and node_of(pod) == node["name"]:
            held, _ = worst_of(pod, places_of(annotations_of(pod)[ALLOCATED]))
            for card in cards:
                card["used"] = [a + b for a, b in zip(card["used"], held.get(card["id"], [0, 0, 0]))]
    return sorted(cards, key=lambda card: (card["index"], card["id"]))


def quota_left(case, namespace):
    """What is left of memory and cores, None without a limit."""
    left = [None, None]
    factor = max(1, case["config"].get("memoryFactor", 1))
    for i, name in enumerate(["nvidia.com/gpumem", "nvidia.com/gpucores"]):
        limits = [int(q["hard"]["limits." + name]) for q in case.get("quotas", [])
                  if q["namespace"] == namespace and "limits." + name in q["hard"]]
        if limits:
            used = sum(worst_of(p, places_of(annotations_of(p)[ALLOCATED]))[1][i]
                       for p in case["pods"] if holds(p) and p["metadata"]["namespace"] == namespace)
            left[i] = min(limits) * (factor if i == 0 else 1) - used
    return left


def request_of(case, container):
    """None, or count, memory, percent, cores."""
    limits = container.get("resources", {}).get("limits", {})
    count = int(limits.get("nvidia.com/gpu", 0))
    if not count:
        return None
    memory = int(limits.get("nvidia.com/gpumem", 0)) * max(1, case["config"].get("memoryFactor", 1))
    percent = int(limits.get("nvidia.com/gpumem-percentage", 0))
    cores = int(limits.get("nvidia.com/gpucores", case["config"].get("defaultCores", 0)))
    if not memory and not percent:
        memory = case["config"].get("defaultMemory", 0)
        percent = 0 if memory else 100
    return count, memory, min(percent, 100), min(cores, 100)


def items_of(text):
    return [item.strip() for item in text.split(",") if item.strip()]


class Wish:
    def __init__(self, case, pod):
        said = annotations_of(pod)
        self.use_types = [t.lower() for t in items_of(said.get("nvidia.com/use-gputype", ""))]
        self.no_types = [t.lower() for t in items_of(said.get("nvidia.com/nouse-gputype", ""))]
        self.use_uuids = items_of(said.get("nvidia.com/use-gpuuuid", ""))
        self.no_uuids = items_of(said.get("nvidia.com/nouse-gpuuuid", ""))
        self.mode = said.get("nvidia.com/vgpu-mode")
        self.numa = said.get("nvidia.com/numa-bind") in ("1", "t", "T", "true", "True", "TRUE")
        self.node_policy = said.get("hami.io/node-scheduler-policy", "").strip()
        if self.node_policy not in ("binpack", "spread"):
            self.node_policy = case["config"]["nodeSchedulerPolicy"]
        known = {"binpack", "spread", "numa", "mutex", "topology-aware"}
        text = said.get("hami.io/gpu-scheduler-policy", "")
        if not known & set(items_of(text)):
            text = case["config"]["gpuSchedulerPolicy"]
        self.words = [w for i, w in enumerate(items_of(text)) if w in known and w not in items_of(text)[:i]]
        self.chain = "," in text or self.words == ["numa"]
        self.weights = [1, 1, 1]
        if "hami.io/device-scoring-weights" in said:
            pairs = dict(item.split("=") for item in said["hami.io/device-scoring-weights"].split(","))
            self.weights = [int(pairs[key]) for key in ("slot", "core", "memory")]

    def key(self, card, used):
        """Sorting by it brings the card that is tried first to the front."""
        memory, cores, slots = card["total"]
        score = 0
        if memory and cores and slots:
            score = 10 * (self.weights[0] * (used[2] / slots) + self.weights[1] * (used[1] / cores) +
                          self.weights[2] * (used[0] / memory))
        parts = {"binpack": -score, "spread": score, "numa": -card["numa"], "mutex": used[2]}
        if self.chain:
            keys = [w for w in self.words if w in ("binpack", "spread", "numa")] or ["spread"]
            if self.numa:
                keys = ["numa"] + keys
            return [parts[k] for k in keys]
        word = self.words[0] if self.words[0] in ("binpack", "mutex") else "spread"
        if not self.numa:
            return [parts[word], parts["numa"]]
        return [card["numa"] if word == "binpack" else -card["numa"], parts[word]]


def refusal(wish, card, used, memory, cores, left, asked):
    """Why a card is not taken; None where it is. numa-bind is not looked at."""
    if wish.use_uuids and card["id"] not in wish.use_uuids or card["id"] in wish.no_uuids:
        return "CardUuidMismatch"
    if used[2] >= card["total"][2]:
        return "CardTimeSlicingExhausted"
    if "mutex" in wish.words and used[2]:
        return "ExclusiveDeviceAllocateConflict"
    for have, before, more in zip(left, asked, (memory, cores)):
        if have is not None and more and before + more > have:
            return "ResourceQuotaNotFit"
    if used[0] + memory > card["total"][0]:
        return "CardInsufficientMemory"
    if used[1] + cores > card["total"][1]:
        return "CardInsufficientCore"
    if card["total"][1] == 100 and cores == 100 and used[2]:
        return "ExclusiveDeviceAllocateConflict"
    if card["total"][1] and used[1] >= card["total"][1] and not cores:
        return "CardComputeUnitsExhausted"
    if card["mode"] == "mig":
        return "CardMigTopologyInfeasible"
    return None


def early_refusal(wish, card):
    kind = card["type"].lower()
    if not card["healthy"]:
        return "CardNotHealth"
    if card["cordoned"]:
        return "CardCordoned"
    if wish.use_types and not any(t in kind for t in wish.use_types) or any(t in kind for t in wish.no_types):
        return "CardTypeMismatch"
    if wish.mode is not None and card["mode"] not in wish.mode:
        return "CardTypeMismatch"
    return None


def memory_of(request, card):
    return request[1] or card["total"][0] * request[2] // 100


def walk(wish, cards, used, request, left, asked, everything):
    """([card], {reason: count})."""
    chosen, reasons, numa = [], {}, None

    def count(reason, by=1):
        reasons[reason] = reasons.get(reason, 0) + by

    for card in sorted(cards, key=lambda c: wish.key(c, used[c["id"]])):
        reason = early_refusal(wish, card)
        if not reason and wish.numa and numa != card["numa"]:
            if len(chosen) >= request[0]:
                break
            count("NumaNotFit", len(chosen))
            chosen, numa = [], card["numa"]
        so_far = list(asked)
        for other in chosen if not everything else []:
            so_far[0] += memory_of(request, other)
            so_far[1] += request[3]
        reason = reason or refusal(wish, card, used[card["id"]], memory_of(request, card), request[3],
                                   left, so_far)
        if reason:
            count(reason)
        else:
            chosen.append(card)
            if len(chosen) == request[0] and not everything:
                break
    if len(chosen) < request[0]:
        count("AllocatedCardsInsufficientRequest", len(chosen))
    return chosen, reasons


def best_connected(scores, cards, count):
    def pair(a, b):
        return scores.get(a["id"], {}).get(b["id"], 0)
    if not scores or len(cards) == count:
        return cards[:count]
    if count == 1:
        return [min(cards, key=lambda c: sum(pair(c, o) for o in cards if o is not c))]
    return list(max(itertools.combinations(cards, count),
                    key=lambda some: sum(pair(a, b) for a, b in itertools.combinations(some, 2))))


def place(case, node, pod):
    """(places, None) or (None, reason)."""
    wish, cards = Wish(case, pod), cards_of(case, node)
    if not cards:
        return None, "node unregistered"
    left = quota_left(case, pod["metadata"]["namespace"])
    raw = json.loads(node["annotations"].get("hami.io/node-nvidia-score", "[]"))
    scores = {entry["uuid"]: entry["score"] for entry in raw}
    running = {card["id"]: list(card["used"]) for card in cards}
    asked, places = [0, 0], []
    for kind, container in containers_of(pod):
        request = request_of(case, container)
        if not request:
            places.append([])
            continue
        nvidia = [card for card in cards if "nvidia" in card["type"].lower()]
        splits = [c for c in nvidia if c["mode"] == "mig" and (wish.mode is None or "mig" in wish.mode)]
        if request[0] > len(nvidia) and not splits:
            return None, "NodeInsufficientDevice"
        chosen = []
        if "topology-aware" in wish.words:
            chosen, _ = walk(wish, nvidia, running, request, left, asked, True)
            if len(chosen) >= request[0]:
                chosen = best_connected(scores, chosen, request[0])
                need = [sum(memory_of(request, c) for c in chosen), request[3] * len(chosen)]
                if any(l is not None and n and a + n > l for l, n, a in zip(left, need, asked)):
                    chosen = []
            else:
                chosen = []
        if not chosen:
            chosen, reasons = walk(wish, nvidia, running, request, left, asked, False)
            if len(chosen) < request[0]:
                return None, ", ".join(sorted(f"{n}/{len(nvidia)} {r}" for r, n in reasons.items() if n))
        places.append([(c["id"], memory_of(request, c), request[3]) for c in chosen])
        if kind != "init":
            for card in chosen:
                held = running[card["id"]]
                running[card["id"]] = [held[0] + memory_of(request, card), held[1] + request[3], held[2] + 1]
                asked = [asked[0] + memory_of(request, card), asked[1] + request[3]]
    return places, None


def node_score(cards):
    used = [sum(card["used"][i] for card in cards) for i in range(3)]
    total = [sum(card["total"][i] for card in cards) for i in range(3)]
    if not all(total):
        return 0
    return 10 * (1 * (used[2] / total[2]) + 1 * (used[1] / total[1]) + 1 * (used[0] / total[0]))


def evaluate(case):
    """As test/schedule/world.h's world_answer has it, without "usage"."""
    pod = case["pod"]
    if not any(request_of(case, container) for _, container in containers_of(pod)):
        return {"passthrough": True}
    nodes = {node["name"]: node for node in case["nodes"]}
    found, failed = [], {}
    for name in case["nodeNames"]:
        if name not in nodes:
            failed[name] = "node unregistered"
            continue
        places, reason = place(case, nodes[name], pod)
        if places is None:
            failed[name] = reason
        else:
            found.append((name, places, node_score(cards_of(case, nodes[name]))))
    if not found:
        return {"node": None, "failed": failed}
    sign = 1 if Wish(case, pod).node_policy == "spread" else -1
    name, places, _ = min(found, key=lambda f: (sign * f[2], f[0]))
    text = "".join("".join(f"{u},NVIDIA,{m},{c}:" for u, m, c in place) + ";" for place in places)
    return {"node": name, "devices": text, "fitting": [f[0] for f in found]}


def over_committed(case, answer):
    """Devices that hold more than they have, once the answer is there, and did not before."""
    pod = dict(case["pod"], metadata=dict(case["pod"]["metadata"], annotations={
        "hami.io/vgpu-node": answer["node"], ALLOCATED: answer["devices"]}))
    before = case["nodes"]
    found = []
    for node in before:
        if node["name"] != answer["node"]:
            continue
        earlier = {c["id"]: c for c in cards_of(case, node)}
        for card in cards_of(dict(case, pods=case["pods"] + [pod]), node):
            grew = [a > b for a, b in zip(card["used"], earlier[card["id"]]["used"])]
            if any(g and u > t for g, u, t in zip(grew, card["used"], card["total"])):
                found.append(card["id"])
    return found
