# SPDX-License-Identifier: Apache-2.0
"""Inference of a small perceptron by a CUDA graph."""
import torch
from measure import measure

torch.manual_seed(0)
model = torch.nn.Sequential(*[m for _ in range(8) for m in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())])
model = model.cuda().eval()
static = torch.randn(256, 1024, device="cuda")
with torch.no_grad():
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(static)

if __name__ == "__main__":
    measure(graph.replay)
