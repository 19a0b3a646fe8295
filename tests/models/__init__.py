"""Small real models on real data: what the tests train and the benchmarks time."""

from models.workload import ReplayedStep, Step, Workload, train
from models.zoo import ALL, CNN, GPT, MLP, RESNET18

__all__ = ["ALL", "CNN", "GPT", "MLP", "RESNET18", "ReplayedStep", "Step", "Workload", "train"]
