"""The workloads by name."""

from __future__ import annotations

from functools import partial

import torch

from models import data, networks
from models.workload import Workload

CONTEXT = 64

MLP = Workload(
    "mlp",
    networks.perceptron,
    partial(torch.optim.AdamW, lr=1e-3),
    partial(data.digit_vectors, size=64),
)
CNN = Workload(
    "cnn",
    networks.small_cnn,
    partial(torch.optim.Adam, lr=1e-3),
    partial(data.digit_images, size=64),
)
RESNET18 = Workload(
    "resnet18",
    networks.ResNet18,
    partial(torch.optim.SGD, lr=1e-3, momentum=0.9, weight_decay=5e-4),
    partial(data.large_digit_images, size=8),
)
GPT = Workload(
    "gpt",
    lambda: networks.TinyGPT(data.vocabulary(), CONTEXT),
    partial(torch.optim.AdamW, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1),
    partial(data.text_windows, size=8, length=CONTEXT),
    clip_norm=1.0,
)
ALL = {workload.name: workload for workload in (MLP, CNN, RESNET18, GPT)}
