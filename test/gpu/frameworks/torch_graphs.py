# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs in PyTorch: torch.cuda.graph, make_graphed_callables, memory of a graph's own, and
(`torch_graphs.py capture`) an allocation that is refused while a stream captures."""
import gc
import sys
import time

import torch
import torch_parts
from outcome import BLOCK_MIB, MIB, Outcome, limit_mib


def capture(function):
    """The function as a graph, after a warm-up on a stream of its own; (graph, its output)."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = function()
    return graph, output


def replays_right(outcome, when, network, graph, static_in, static_out):
    worst = 0.0
    for seed in range(5):
        static_in.copy_(torch.randn(64, 256, device="cuda", generator=torch.Generator(device="cuda").manual_seed(seed)))
        graph.replay()
        with torch.no_grad():
            worst = max(worst, (static_out - network(static_in)).abs().max().item())
    outcome.check(f"replays give what the model gives {when}", worst < 1e-4, worst)


def graphs(outcome):
    network = torch_parts.model()
    static_in = torch.randn(64, 256, device="cuda")

    @torch.no_grad()
    def infer():
        return network(static_in)
    began = time.monotonic()
    graph, static_out = capture(infer)
    replays_right(outcome, "", network, graph, static_in, static_out)
    callable_network = torch.cuda.make_graphed_callables(torch_parts.model(), (torch.randn(128, 256, device="cuda"),))
    checksum = torch_parts.train(callable_network)
    torch.cuda.synchronize()
    outcome.computed(checksum, time.monotonic() - began)

    torch.cuda.empty_cache()
    before = torch_parts.memory()[0]

    def large():
        return torch.ones(256 * MIB, dtype=torch.uint8, device="cuda").sum(dtype=torch.int64)
    own_graph, own_out = capture(large)
    own_graph.replay()
    outcome.check("a graph with memory of its own computes", own_out.item() == 256 * MIB)
    torch.cuda.empty_cache()
    during = torch_parts.memory()[0]
    del own_graph, own_out
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    after = torch_parts.memory()[0]
    outcome.check("a graph's own memory counts, and goes with it",
                  not limit_mib or (before - during >= 256 * MIB and before - after <= 64 * MIB),
                  f"{(before - during) / MIB:.0f} MiB, then {(before - after) / MIB:.0f}")
    outcome.fill(torch_parts.take, torch_parts.is_refusal, torch_parts.memory)
    replays_right(outcome, "in a full slice", network, graph, static_in, static_out)
    outcome.release(torch.cuda.empty_cache, torch_parts.memory)
    replays_right(outcome, "after the refusal", network, graph, static_in, static_out)


def refused_in_capture(outcome):
    """Natively the card is the limit: what happens then is what should happen in a slice."""
    too_much = (limit_mib or 1 << 20) * MIB
    said = []
    outcome.fill(torch_parts.take, torch_parts.is_refusal, torch_parts.memory)
    outcome.release(torch.cuda.empty_cache)
    began = time.monotonic()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            torch.empty(too_much, dtype=torch.uint8, device="cuda")
        said.append("captured")
    except Exception as error:  # the end of the capture may raise one of its own behind it
        while error is not None:
            said.append(type(error).__name__)
            error = error.__context__
    try:
        said.append(f"then {torch.ones(BLOCK_MIB, device='cuda').sum().item():.0f}")
    except Exception as error:
        said.append(f"then {type(error).__name__}")
    outcome.note("same", " ".join(said))
    outcome.computed(0.0, time.monotonic() - began)
    outcome.check("refused as out of memory", "OutOfMemoryError" in said, " ".join(said))


def main():
    outcome = Outcome()
    torch_parts.settle()
    outcome.sees(torch_parts.memory())
    if sys.argv[1:] == ["capture"]:
        refused_in_capture(outcome)
    else:
        graphs(outcome)
    outcome.say()


main()
