"""The module ``torch.<device name>``: what PyTorch and user code look up by name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from torch_pjrt import _C

_name = "pjrt"  # set once by torch_pjrt._autoload


def is_available() -> bool:
    """True if a plugin is installed. Loads nothing."""
    return _C.is_available()


def is_initialized() -> bool:
    """True once the plugin has been loaded by a first use of the device."""
    return _C.is_initialized()


def init() -> None:
    """Loads the plugin now instead of at the first use.

    Raises:
        RuntimeError: no usable plugin (the text says what is missing), or a forked child.
    """
    _C.init()


_lazy_init = init


def _is_in_bad_fork() -> bool:
    return _C.is_in_bad_fork()


def device_count() -> int:
    """Devices that this process can use; 0 when there is no usable plugin."""
    return _C.device_count()


def _index(device: Any = None) -> int:
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return current_device() if index is None else index


def current_device() -> int:
    """Index of this thread's current device."""
    return torch._C._accelerator_getDeviceIndex()


def set_device(device: Any) -> None:
    """Makes ``device`` (index, name or ``torch.device``) this thread's current device."""
    index = _index(device)
    if index >= 0:
        torch._C._accelerator_setDeviceIndex(index)


class device:
    """Context manager that changes this thread's current device.

    Example:
        >>> with torch.pjrt.device(1):
        ...     torch.empty(1, device="pjrt").device
        device(type='pjrt', index=1)
    """

    def __init__(self, device: Any) -> None:
        self.idx = _index(device) if device is not None else -1
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = torch._C._accelerator_exchangeDevice(self.idx)

    def __exit__(self, *_: object) -> None:
        if self.idx >= 0:
            torch._C._accelerator_maybeExchangeDevice(self.prev_idx)


class device_of(device):
    """Context manager for the device of a tensor; does nothing for a tensor elsewhere."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.get_device() if tensor.device.type == _name else None)


def synchronize(device: Any = None) -> None:
    """Waits for everything enqueued on the device; raises the first failure of work still alive."""
    if _C.is_initialized():
        torch._C._accelerator_synchronizeDevice(_index(device))


def get_device_name(device: Any = None) -> str:
    """The plugin's name for the kind of chip."""
    return _C.describe()["devices"][_index(device)]


# ---- streams and events


class Stream(torch.Stream):
    """A label: all work of a device runs in the order in which it was enqueued."""

    def __new__(cls, device: Any = None, priority: int = 0) -> Stream:
        return super().__new__(cls, device=torch.device(_name, _index(device)), priority=priority)


class Event(torch.Event):
    """The state of a device's queue at the time of ``record()``."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False) -> Event:
        return super().__new__(cls, device=torch.device(_name), enable_timing=enable_timing)


def current_stream(device: Any = None) -> torch.Stream:
    """This thread's current stream on the device."""
    return torch.accelerator.current_stream(torch.device(_name, _index(device)))


def default_stream(device: Any = None) -> torch.Stream:
    """The stream with id 0."""
    now = current_stream(device)
    return torch.Stream(stream_id=0, device_index=now.device_index, device_type=now.device_type)


def set_stream(stream: torch.Stream) -> None:
    """Makes it this thread's current stream on its device."""
    torch.accelerator.set_stream(stream)


@contextlib.contextmanager
def stream(stream: torch.Stream | None) -> Iterator[None]:
    """Context manager that changes the current stream; ``None`` does nothing."""
    if stream is None:
        yield
        return
    with stream:
        yield


# ---- random numbers


def _default(index: int) -> torch.Generator:
    return torch.ops.tpj.default_generator(index)


def __getattr__(name: str) -> Any:
    if name == "default_generators":  # made at first use: counting devices loads the plugin
        return tuple(_default(i) for i in range(device_count()))
    if name == "_initialized":  # torch.utils.checkpoint asks before it saves the state of our generators
        return is_initialized()
    raise AttributeError(f"module 'torch.{_name}' has no attribute '{name}'")


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator."""
    _default(current_device()).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices. Loads nothing: a generator needs no plugin."""
    torch.ops.tpj.manual_seed_all((int(seed) + 2**63) % 2**64 - 2**63)  # 64 bits; an operator takes int64


def seed() -> None:
    """Seeds the current device's generator with a random number."""
    _default(current_device()).seed()


def seed_all() -> None:
    """The same random seed for all devices."""
    manual_seed_all(torch.seed())


def initial_seed() -> int:
    """The current device's seed."""
    return _default(current_device()).initial_seed()


def get_rng_state(device: Any = None) -> torch.Tensor:
    """16 bytes on the CPU: uint64 seed, int64 offset."""
    return _default(_index(device)).get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    """Restores what ``get_rng_state`` returned."""
    _default(_index(device)).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """One state per device."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Restores what ``get_rng_state_all`` returned."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


# ---- memory: the accelerator API under its other name


def memory_allocated(device: Any = None) -> int:
    """Bytes of live storages."""
    return torch.accelerator.memory_allocated(_index(device))


def max_memory_allocated(device: Any = None) -> int:
    """Most bytes of live storages since the last reset."""
    return torch.accelerator.max_memory_allocated(_index(device))


def memory_reserved(device: Any = None) -> int:
    """Bytes that buffers really take."""
    return torch.accelerator.memory_reserved(_index(device))


def max_memory_reserved(device: Any = None) -> int:
    """Most bytes in buffers since the last reset."""
    return torch.accelerator.max_memory_reserved(_index(device))


def memory_stats(device: Any = None) -> dict[str, Any]:
    """See ``torch.accelerator.memory_stats``."""
    return torch.accelerator.memory_stats(_index(device))


def reset_peak_memory_stats(device: Any = None) -> None:
    """Peaks start again from what is allocated now."""
    torch.accelerator.reset_peak_memory_stats(_index(device))


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Totals start again from zero."""
    torch.accelerator.reset_accumulated_memory_stats(_index(device))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes."""
    return torch.accelerator.get_memory_info(_index(device))


def empty_cache() -> None:
    """Nothing is cached: buffers go back to the plugin when their last owner goes."""


# ---- autocast


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Types that ``torch.autocast`` may lower to."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported() -> bool:
    """bfloat16 tensors work on every plugin."""
    return True
