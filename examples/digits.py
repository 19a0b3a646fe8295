"""Train a small convolutional network on scikit-learn's handwritten digits.

    python examples/digits.py                # on a PJRT plugin, through the device "pjrt"
    python examples/digits.py --device cpu   # the same file; only the string differs

The 1,797 images of 8x8 pixels ship with scikit-learn, so nothing is downloaded. The network
starts from the same weights on every device (they are drawn on the CPU from ``--seed``), and every
batch has the same size, so that each operator meets each shape once and is compiled once.

The last line is for machines:

    RESULT device=pjrt accuracy=0.9861 programs=61 compiles_after_step_2=0 fallbacks=0
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed

import torch
from matplotlib import pyplot
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

CLASSES = 10


@dataclass
class Counters:
    """What the device has compiled, and what it left to the CPU, since the process began."""

    compiles: int = 0
    fallbacks: int = 0


@dataclass
class Digits:
    """Images are float32 in 0..1 with shape (N, 1, 8, 8); labels are int64 with shape (N,)."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def read_digits(seed: int) -> Digits:
    """A fifth of every class is held out for the test."""
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=0.2, stratify=labels, random_state=seed
    )

    def pixels(values: object) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16

    return Digits(pixels(train_x), torch.as_tensor(train_y), pixels(test_x), torch.as_tensor(test_y))


def build_network() -> nn.Sequential:
    """Logits of shape (N, 10) from images of shape (N, 1, 8, 8)."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel_size=3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, CLASSES),
    )


def same_size_batches(images: Tensor, size: int) -> Iterator[tuple[Tensor, int]]:
    """Batches of exactly ``size`` images and how many of them count: the last one is filled up."""
    for part in images.split(size):
        filling = part[:1].expand(size - len(part), *part.shape[1:])
        yield torch.cat([part, filling]), len(part)


@torch.no_grad()
def predict(network: nn.Module, images: Tensor, batch_size: int, device: torch.device) -> Tensor:
    """The most likely class of each image, on the CPU."""
    network.eval()
    parts = [
        network(batch.to(device)).argmax(dim=1).cpu()[:count] for batch, count in same_size_batches(images, batch_size)
    ]
    network.train()
    return torch.cat(parts)


def accuracy_of(predictions: Tensor, labels: Tensor) -> float:
    """The share of right predictions, 0 to 1."""
    return (predictions == labels).double().mean().item()


def read_counters(device: torch.device) -> Counters:
    """The device's counters; the CPU has none, so they stay 0."""
    if device.type == "cpu":
        return Counters()
    import torch_pjrt

    stats = torch_pjrt.stats()
    return Counters(compiles=stats["compiles"], fallbacks=stats["fallbacks"])


def describe(device: torch.device) -> str:
    """Device, plugin and versions, one fact per line."""
    facts: dict[str, object] = {"device": device, "torch": torch.__version__}
    if device.type != "cpu":
        import torch_pjrt

        facts.update(torch_pjrt.versions())
    width = max(len(name) for name in facts)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in facts.items())


def save_picture(path: Path, digits: Digits, predictions: Tensor, losses: list[float]) -> None:
    """Some held-out images with their predictions (wrong ones in red), and the loss curve."""
    wrong = predictions != digits.test_labels
    wrong_ones = wrong.nonzero().flatten()[:6]
    right_ones = (~wrong).nonzero().flatten()[: 12 - len(wrong_ones)]
    order = torch.cat([right_ones, wrong_ones]).tolist()
    figure = pyplot.figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.15, 1])
    for axes, index in zip(left.subplots(3, 4).flat, order, strict=True):
        axes.imshow(digits.test_images[index, 0], cmap="gray_r")
        guess, truth = int(predictions[index]), int(digits.test_labels[index])
        title = f"{guess}" if guess == truth else f"{guess}, is {truth}"
        axes.set_title(title, fontsize=10, color="black" if guess == truth else "crimson")
        axes.axis("off")
    left.suptitle(f"Predictions ({int(wrong.sum())} of {len(wrong)} are wrong)")
    axes = right.subplots()
    axes.plot(range(1, len(losses) + 1), losses, linewidth=1)
    axes.set(xlabel="training step", ylabel="cross-entropy", yscale="log", title="Loss")
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    """Train, evaluate, report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="pjrt", help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=60, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=1e-2, help="highest; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("out/digits.png"), help="the picture; default: %(default)s")
    options = parser.parse_args()

    device = torch.device(options.device)
    torch.manual_seed(options.seed)
    digits = read_digits(options.seed)
    network = build_network().to(device)
    batches = DataLoader(
        TensorDataset(digits.train_images, digits.train_labels),
        batch_size=options.batch_size,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(options.seed),
    )
    steps = options.epochs * len(batches)
    optimizer = torch.optim.Adam(network.parameters(), lr=options.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=steps)

    untrained = predict(network, digits.test_images, options.batch_size, device)
    print(f"accuracy before training: {accuracy_of(untrained, digits.test_labels):.4f}")

    losses: list[float] = []
    warm = read_counters(device)
    with tqdm(total=steps, unit="step") as progress:
        for _ in range(options.epochs):
            for images, labels in batches:
                loss = functional.cross_entropy(network(images.to(device)), labels.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                losses.append(loss.item())
                progress.set_postfix(loss=f"{losses[-1]:.4f}", refresh=False)
                progress.update()
                if len(losses) == 2:
                    warm = read_counters(device)

    predictions = predict(network, digits.test_images, options.batch_size, device)
    accuracy = accuracy_of(predictions, digits.test_labels)
    counters = read_counters(device)
    late = counters.compiles - warm.compiles
    save_picture(options.out, digits, predictions, losses)

    print(f"accuracy on {len(predictions)} held-out digits: {accuracy:.4f}")
    print(describe(device))
    print(f"compiled programs: {counters.compiles} ({late} after the second step)")
    print(f"operators left to the CPU: {counters.fallbacks}")
    print(f"picture: {options.out}")
    print(
        f"RESULT device={device} accuracy={accuracy:.4f} programs={counters.compiles} "
        f"compiles_after_step_2={late} fallbacks={counters.fallbacks}"
    )


if __name__ == "__main__":
    main()
