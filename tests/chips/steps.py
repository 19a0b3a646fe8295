"""The training steps of the digits CNN, ResNet-18 and the GPT, each as one program for chips that are not here.

    python tests/chips/steps.py tpu:v5e:1x1 tpu:v6e:1x1 tpu:tpu7x cuda:h100

Exits 1 when a step does not compile, or does not fit the chip.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from torch_pjrt import targets

ROOT = Path(__file__).parents[2]
MODELS = ("cnn", "resnet18", "gpt")


def main() -> int:
    sys.path.insert(0, str(ROOT / "tests"))
    from models import zoo
    from models.workload import Step

    failed = 0
    for name in sys.argv[1:]:
        target = targets.target(name, timeout=600)
        for model in MODELS:
            workload = zoo.ALL[model]
            report = target.compile(Step(workload, torch.device("cpu")), *workload.batches(1)[0])
            if report.fits:
                what = f"{report.needed / 1e6:.1f} MB, at least {report.lower_bound * 1e6:.2g} us a step"
            else:
                what = report.error or f"{report.missing} bytes are missing"
                failed += 1
            print(f"{name}, {model}: {report.seconds:.1f} s of compile, {what}", flush=True)
        target.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
