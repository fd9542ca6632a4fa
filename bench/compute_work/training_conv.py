# SPDX-License-Identifier: Apache-2.0
"""Training of a small convolutional network that keeps the device busy."""
import torch
from measure import measure

torch.manual_seed(0)


def block(inner, outer):
    return [torch.nn.Conv2d(inner, outer, 3, padding=1), torch.nn.BatchNorm2d(outer), torch.nn.ReLU()]


model = torch.nn.Sequential(*block(3, 64), *block(64, 128), torch.nn.MaxPool2d(2), *block(128, 256),
                            torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
                            torch.nn.Linear(256, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
images = torch.randn(256, 3, 32, 32, device="cuda")
labels = torch.randint(0, 10, (256,), device="cuda")


def step():
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


measure(step)
