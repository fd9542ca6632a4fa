# SPDX-License-Identifier: Apache-2.0
"""Training of a small multilayer perceptron: many short kernels, which the host can hardly feed."""
import torch
from measure import measure

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(784, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024),
                            torch.nn.ReLU(), torch.nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())
images = torch.randn(512, 784, device="cuda")
labels = torch.randint(0, 10, (512,), device="cuda")


def step():
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    measure(step)
