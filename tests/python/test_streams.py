"""Streams, events and synchronisation keep PyTorch's contract."""

from __future__ import annotations

import threading
from types import ModuleType

import pytest
import torch

pytestmark = pytest.mark.usefixtures("pjrt")


def test_a_stream_can_be_made_queried_and_waited_for(device: torch.device) -> None:
    stream = torch.Stream(device)
    assert stream.device.type == device.type
    stream.synchronize()
    assert stream.query()


def test_the_current_stream_can_be_changed_and_is_restored(device: torch.device) -> None:
    default = torch.accelerator.current_stream()
    stream = torch.Stream(device)
    with stream:
        assert torch.accelerator.current_stream() == stream
        x = torch.ones(4, device=device) * 2
    assert torch.accelerator.current_stream() == default
    torch.accelerator.current_stream().wait_stream(stream)
    assert x.sum().item() == 8
    torch.accelerator.set_stream(stream)
    assert torch.accelerator.current_stream() == stream
    torch.accelerator.set_stream(default)


def test_work_on_one_stream_is_seen_on_another_after_an_event(device: torch.device) -> None:
    producer, consumer = torch.Stream(device), torch.Stream(device)
    with producer:
        x = torch.full((1000,), 3.0, device=device)
        event = producer.record_event()
    with consumer:
        consumer.wait_event(event)
        y = x * 2
    consumer.synchronize()
    assert y[0].item() == 6
    x.record_stream(consumer)


def test_an_event_is_recorded_and_waited_for(device: torch.device) -> None:
    event = torch.Event(device)
    assert event.query()
    torch.ones(1000, device=device).sum()
    event.record()
    event.synchronize()
    assert event.query()
    event.wait()


def test_events_measure_time(device: torch.device) -> None:
    start, end = (torch.Event(device, enable_timing=True) for _ in range(2))
    start.record()
    x = torch.ones(300, 300, device=device)
    for _ in range(3):
        x = x @ x / 300
    end.record()
    end.synchronize()
    assert 0 < start.elapsed_time(end) < 60_000


def test_events_without_timing_refuse_to_measure(device: torch.device) -> None:
    start, end = torch.Event(device), torch.Event(device)
    start.record()
    end.record()
    with pytest.raises((RuntimeError, ValueError), match="enable_timing"):
        start.elapsed_time(end)


def test_the_module_has_streams_and_events(module: ModuleType, device: torch.device) -> None:
    stream = module.Stream()
    event = module.Event(enable_timing=True)
    with module.stream(stream):
        assert module.current_stream() == stream
        event.record()
    assert module.current_stream() == module.default_stream()
    stream.wait_event(event)
    stream.wait_stream(module.current_stream())
    event.synchronize()
    module.set_stream(stream)
    module.set_stream(module.default_stream())
    module.synchronize()
    module.synchronize(0)


def test_synchronize_waits_for_everything(device: torch.device) -> None:
    x = torch.ones(200, 200, device=device)
    for _ in range(50):
        x = (x @ x) / 200
    torch.accelerator.synchronize()
    assert torch.accelerator.current_stream().query()


def test_several_threads_may_use_the_device(device: torch.device) -> None:
    failures: list[object] = []

    def work(number: int) -> None:
        try:
            x = torch.full((8, 8), float(number), device=device)
            for _ in range(200):
                y = (x @ x).sum() / 512
                assert y.item() == number * number
                x.add_(0)
                x[1:3, ::2] = number
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_threads_that_share_a_tensor_lose_no_write(device: torch.device) -> None:
    x = torch.zeros(4, 8, device=device)

    def work(row: int) -> None:
        for _ in range(100):
            x[row].add_(1)

    threads = [threading.Thread(target=work, args=(row,)) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.cpu().equal(torch.full((4, 8), 100.0))
