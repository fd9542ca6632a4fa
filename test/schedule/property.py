# SPDX-License-Identifier: Apache-2.0
"""property.py ANSWER [CASES [SEED]]: random clusters and Pods, given to the program ANSWER
(answer.c) and to evaluator.py; the answers must be equal, and no device may be over-committed. The
first case that differs is printed as one line of JSON that ANSWER takes."""
import json
import random
import subprocess
import sys

import evaluator

MODELS = ["NVIDIA A10", "NVIDIA H100 80GB HBM3", "NVIDIA-Tesla T4", "Other Card"]
POLICIES = ["binpack", "spread", "topology-aware", "mutex", "numa", "numa,binpack", "binpack,numa",
            "mutex,binpack", "spread,numa", "topology-aware,binpack", "nonsense", "mutex,topology-aware"]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def some(self, chance):
        return self.random.random() < chance

    def card(self, node, index):
        pick = self.random.choice
        card = {"id": f"GPU-{node}-{index}", "index": index, "count": pick([1, 2, 4, 10]),
                "devmem": pick([0, 100, 1000, 1000, 2000]), "devcore": pick([0, 100, 100, 100, 200]),
                "type": pick(MODELS[:2] if self.some(0.8) else MODELS), "numa": pick([0, 0, 1, 2]),
                "mode": pick(["hami-core"] * 8 + ["mps", "", "mig"]), "health": not self.some(0.07)}
        return {key: value for key, value in card.items() if value}

    def node(self, number):
        cards = [self.card(number, i) for i in range(self.random.randint(0 if self.some(0.1) else 1, 6))]
        said = {"hami.io/node-nvidia-register": json.dumps(self.random.sample(cards, len(cards)))}
        if self.some(0.15) and cards:
            said["hami.io/device-cordon"] = ",".join(c["id"] for c in cards if self.some(0.4))
        if self.some(0.4):
            scores = {a["id"]: {} for a in cards}
            for i, a in enumerate(cards):
                for b in cards[i + 1:]:
                    scores[a["id"]][b["id"]] = scores[b["id"]][a["id"]] = self.random.choice([10, 20, 50, 100, 300])
            said["hami.io/node-nvidia-score"] = json.dumps(
                [{"uuid": uuid, "score": score} for uuid, score in scores.items()])
        return {"name": f"n{number}", "annotations": said, "allocatable": {}}, cards

    def resources(self, chance):
        pick = self.random.choice
        if not self.some(chance):
            return {}
        limits = {"nvidia.com/gpu": str(pick([1, 1, 1, 2, 3, 7]))}
        if self.some(0.6):
            limits["nvidia.com/gpumem"] = str(pick([1, 50, 100, 300, 500, 1000]))
        if self.some(0.3):
            limits["nvidia.com/gpumem-percentage"] = str(pick([1, 10, 33, 50, 100, 150]))
        if self.some(0.5):
            limits["nvidia.com/gpucores"] = str(pick([0, 1, 25, 50, 100, 130]))
        return {"limits": limits}

    def spec(self, chance):
        spec = {"containers": [{"name": f"c{i}", "resources": self.resources(chance)}
                               for i in range(self.random.choice([1, 1, 1, 2, 3]))]}
        if self.some(0.35):
            spec["initContainers"] = []
            for i in range(self.random.choice([1, 1, 2, 3])):
                container = {"name": f"i{i}", "resources": self.resources(chance)}
                if self.some(0.4):
                    container["restartPolicy"] = "Always"
                spec["initContainers"].append(container)
        return spec

    def wishes(self, uuids):
        said, pick = {}, self.random.choice
        choices = {
            "nvidia.com/use-gputype": lambda: pick(["a10", "H100, t4", "", " , ", "nothing"]),
            "nvidia.com/nouse-gputype": lambda: pick(["a10", "H100", ""]),
            "nvidia.com/use-gpuuuid": lambda: " , ".join(self.random.sample(uuids, min(len(uuids), 4))),
            "nvidia.com/nouse-gpuuuid": lambda: ",".join(self.random.sample(uuids, min(len(uuids), 3))),
            "nvidia.com/numa-bind": lambda: pick(["true", "T", "0", "yes"]),
            "nvidia.com/vgpu-mode": lambda: pick(["hami-core", "mps", "hami-core,mps", "mig"]),
            "hami.io/node-scheduler-policy": lambda: pick(["spread", " binpack ", "other"]),
            "hami.io/gpu-scheduler-policy": lambda: pick(POLICIES),
            "hami.io/device-scoring-weights": lambda: pick(
                ["slot=1,core=1,memory=3", "slot=0,core=0,memory=1", "slot=5,core=0,memory=0"]),
        }
        for key, make in choices.items():
            if self.some(0.35 if "gpu-scheduler" in key else 0.1):
                said[key] = make()
        return said

    def existing(self, number, node, cards):
        spec = self.spec(0.6)
        text = ""
        for _ in evaluator.containers_of({"spec": spec}):
            for card in self.random.sample(cards, min(len(cards), self.random.choice([0, 1, 1, 2]))):
                cores = self.random.choice([0, 0, 10, 25, 100])
                text += f"{card['id']},NVIDIA,{self.random.choice([0, 10, 100, 250, 500])},{cores}:"
            text += ";"
        pod = {"metadata": {"name": f"x{number}", "namespace": self.random.choice(["default", "team"]),
                            "uid": f"x{number}",
                            "annotations": {"hami.io/vgpu-node": node["name"], evaluator.ALLOCATED: text}},
               "spec": spec, "status": {"phase": self.random.choice(["Running"] * 4 + ["Pending", "Failed"])}}
        if self.some(0.3):
            pod["status"]["initContainerStatuses"] = [
                {"name": c["name"], "state": {"terminated": {"exitCode": 0 if self.some(0.9) else 1}}}
                for c in spec.get("initContainers", [])]
        return pod

    def case(self):
        pairs = [self.node(i) for i in range(self.random.choice([1, 1, 2, 3, 5]))]
        uuids = [card["id"] for _, cards in pairs for card in cards] or ["GPU-none"]
        case = {"config": {"nodeSchedulerPolicy": self.random.choice(["binpack", "spread"]),
                           "gpuSchedulerPolicy": self.random.choice(POLICIES[:7])},
                "nodes": [node for node, _ in pairs], "pods": [], "quotas": []}
        if self.some(0.1):
            case["config"]["memoryFactor"] = 10
        if self.some(0.1):
            case["config"].update(defaultMemory=70, defaultCores=5)
        for number in range(self.random.choice([0, 1, 3, 8])):
            node, cards = self.random.choice(pairs)
            if cards:
                case["pods"].append(self.existing(number, node, cards))
        for number in range(self.random.choice([0, 0, 0, 1, 2])):
            hard = {}
            if self.some(0.8):
                hard["limits.nvidia.com/gpumem"] = str(self.random.choice([0, 200, 500, 1000, 5000]))
            if self.some(0.5):
                hard["limits.nvidia.com/gpucores"] = str(self.random.choice([0, 50, 100, 300]))
            case["quotas"].append({"namespace": self.random.choice(["default", "team"]),
                                   "name": f"q{number}", "hard": hard})
        case["pod"] = {"metadata": {"name": "p", "namespace": "default", "uid": "p",
                                    "annotations": self.wishes(uuids)}, "spec": self.spec(0.8)}
        case["nodeNames"] = [n["name"] for n in case["nodes"]] + (["unknown"] if self.some(0.1) else [])
        self.random.shuffle(case["nodeNames"])
        return case


def compare(case, answer):
    """What is wrong with an answer; None where nothing is."""
    if answer is None or "fault" in answer:
        return "a fault"
    answer.pop("usage")
    wanted = evaluator.evaluate(case)
    if answer != wanted:
        return f"not {json.dumps(wanted)}"
    over = evaluator.over_committed(case, answer) if answer.get("node") else []
    return f"over-committed: {over}" if over else None


def main():
    program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    maker, kinds, fault = Maker(seed), {}, None
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for _ in range(count):
        case = maker.case()
        process.stdin.write(json.dumps(case) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline() or "null")
        kind = next((k for k in ("passthrough", "error", "failed", "devices") if answer and k in answer), "none")
        kinds[kind] = kinds.get(kind, 0) + 1
        fault = compare(case, answer)
        if fault:
            print(f"# {fault}\n# the answer: {json.dumps(answer)}\n# {json.dumps(case)}")
            break
    process.stdin.close()
    ended = process.wait()
    print(f"# {count} cases from seed {seed}: {kinds}")
    enough = fault or min(kinds.get("failed", 0), kinds.get("devices", 0)) > count // 10
    print("1..3")
    print(f"{'not ' if fault else ''}ok 1 - the answers are those of a slow evaluator, and over-commit nothing")
    print(f"{'' if enough else 'not '}ok 2 - Pods that fit and Pods that do not are among them")
    print(f"{'not ' if ended else ''}ok 3 - the program ends well")
    return bool(fault or not enough or ended)


sys.exit(main())
