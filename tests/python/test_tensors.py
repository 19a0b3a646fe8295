"""A device tensor prints, converts, copies itself and is pickled like any tensor."""

from __future__ import annotations

import copy
import pickle

import numpy
import pytest
import torch
from torch import nn

PRINTED = {
    "floats": torch.tensor([[1.5, -2.25], [1e-3, 4.0]]),
    "large and small": torch.tensor([1e8, 1e-8, 0.0]),
    "special": torch.tensor([float("nan"), float("inf"), -1.0]),
    "integers": torch.arange(6).reshape(2, 3),
    "booleans": torch.tensor([True, False]),
    "complex": torch.tensor([1 + 2j, -0.5j]),
    "bfloat16": torch.tensor([1.0, 2.5], dtype=torch.bfloat16),
    "double": torch.tensor([1.0, 2.5], dtype=torch.float64),
    "scalar": torch.tensor(3.5),
    "empty": torch.empty(0, 3),
    "long": torch.arange(3000.0),
    "uint8": torch.tensor([1, 255], dtype=torch.uint8),
    "requires grad": torch.ones(2, requires_grad=True),
}


@pytest.mark.parametrize("tensor", PRINTED.values(), ids=PRINTED.keys())
def test_a_tensor_prints_as_on_the_cpu_plus_its_device(tensor: torch.Tensor, device: torch.device) -> None:
    there = tensor.detach().to(device).requires_grad_(tensor.requires_grad)
    printed = " ".join(repr(there).replace(f"device='{there.device}'", "").split())
    expected = " ".join(repr(tensor).split())

    def plain(text: str) -> str:
        return text.replace(" ", "").replace(",,", ",").replace(",)", ")")

    assert plain(printed) == plain(expected)
    if device.type != "cpu":
        assert f"device='{device.type}:0'" in repr(there)


def test_printing_a_view_shows_the_view(device: torch.device) -> None:
    base = torch.arange(12.0, device=device).reshape(3, 4)
    assert "1., 5., 9." in repr(base[:, 1])


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64, torch.bfloat16, torch.float32, torch.float64])
def test_an_item_is_a_python_number(dtype: torch.dtype, device: torch.device) -> None:
    expected = torch.tensor(1).to(dtype).item()
    actual = torch.tensor([0, 1]).to(dtype).to(device)[1].item()
    assert actual == expected
    assert type(actual) is type(expected)


def test_numbers_are_read_in_every_usual_way(device: torch.device) -> None:
    x = torch.tensor([2.5, -1.0], device=device)
    assert float(x[0]) == 2.5
    assert int(x[0]) == 2
    assert bool(x[1] < 0)
    assert x.tolist() == [2.5, -1.0]
    assert [float(value) for value in x] == [2.5, -1.0]
    assert 2.5 in x
    assert list(range(5))[torch.tensor(3, device=device)] == 3
    assert f"{x[0]:.2f}" == "2.50"
    assert torch.tensor(1 + 2j, device=device).item() == 1 + 2j
    assert torch.tensor((1 << 62) + 1, device=device).item() == (1 << 62) + 1
    with pytest.raises(RuntimeError, match="a Tensor with 2 elements cannot be converted to Scalar"):
        x.item()
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with more than one value is ambiguous"):
        bool(x)


def test_a_python_number_does_not_change_the_dtype(device: torch.device) -> None:
    assert (torch.ones(2, device=device) * 2.5).dtype == torch.float32
    assert (torch.ones(2, dtype=torch.int32, device=device) + 1).dtype == torch.int32
    assert (torch.ones(2, dtype=torch.int32, device=device) + 1.5).dtype == torch.float32
    assert (torch.ones(2, dtype=torch.bfloat16, device=device) * 2.0).dtype == torch.bfloat16


def test_a_scalar_tensor_on_the_cpu_joins_in(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    assert (x * torch.tensor(3.0)).tolist() == [3.0, 3.0]
    assert (torch.tensor(3.0) - x).tolist() == [2.0, 2.0]
    assert x.add_(torch.tensor(2)).tolist() == [3.0, 3.0]
    assert (x * numpy.float64(2.0)).tolist() == [6.0, 6.0]


FACTORIES = {
    "zeros": lambda d: torch.zeros(2, 3, device=d),
    "ones": lambda d: torch.ones(2, 3, dtype=torch.int64, device=d),
    "full": lambda d: torch.full((2,), 7, device=d),
    "arange": lambda d: torch.arange(1, 10, 3, device=d),
    "arange of floats": lambda d: torch.arange(0.0, 1.0, 0.25, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 5, device=d),
    "eye": lambda d: torch.eye(3, 4, device=d),
    "tensor": lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
    "zeros_like": lambda d: torch.zeros_like(torch.ones(3, device=d)),
    "new_full": lambda d: torch.ones(3, device=d).new_full((2, 2), 3.0),
    "tril": lambda d: torch.ones(3, 3, device=d).tril(),
    "scalar_tensor": lambda d: torch.scalar_tensor(4.0, device=d),
    "empty of nothing": lambda d: torch.empty(0, 2, device=d),
}


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES.keys())
def test_a_factory_makes_what_it_makes_on_the_cpu(make, device: torch.device, no_fallbacks: None) -> None:
    there, here = make(device), make("cpu")
    assert there.device.type == device.type
    assert (there.dtype, there.shape, there.stride()) == (here.dtype, here.shape, here.stride())
    assert there.cpu().equal(here)


def test_uninitialised_memory_has_the_asked_geometry_and_can_be_written(device: torch.device) -> None:
    x = torch.empty_strided((2, 3), (1, 2), device=device)
    assert x.stride() == (1, 2)
    x[0] = 1.0
    x[1] = 2.0
    assert x.cpu().tolist() == [[1.0] * 3, [2.0] * 3]
    assert torch.empty(4, 5, device=device).sum().isnan().item() in (True, False)


def test_a_deep_copy_shares_nothing(device: torch.device) -> None:
    x = torch.arange(4.0, device=device)
    y = copy.deepcopy(x)
    assert y.device == x.device
    assert y.data_ptr() != x.data_ptr()
    y.add_(1)
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert y.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_deep_copy_keeps_what_is_shared_inside(device: torch.device) -> None:
    base = torch.zeros(4, device=device)
    pair = copy.deepcopy([base, base[1:3]])
    pair[0].fill_(5)
    assert pair[1].tolist() == [5.0, 5.0]
    assert base.sum().item() == 0
    assert pair[1].storage_offset() == 1


def test_a_module_is_deep_copied_with_its_optimizer_untouched(device: torch.device) -> None:
    layer = nn.Linear(3, 2).to(device)
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        twin.weight.zero_()
    assert layer.weight.abs().sum().item() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_pickling_keeps_values_and_device(dtype: torch.dtype, device: torch.device) -> None:
    x = torch.tensor([[1, 0], [1, 1]]).to(dtype).to(device)
    y = pickle.loads(pickle.dumps(x))
    assert (y.device, y.dtype) == (x.device, dtype)
    assert y.cpu().equal(x.cpu())


def test_a_pickled_view_keeps_its_geometry(device: torch.device) -> None:
    view = torch.arange(12.0, device=device).reshape(3, 4).t()[1:]
    again = pickle.loads(pickle.dumps(view))
    assert (again.shape, again.stride()) == (view.shape, view.stride())
    assert again.cpu().equal(view.cpu())


def test_a_pickled_parameter_requires_grad(device: torch.device) -> None:
    parameter = pickle.loads(pickle.dumps(nn.Parameter(torch.ones(2, device=device))))
    assert isinstance(parameter, nn.Parameter)
    assert parameter.requires_grad
    assert parameter.device.type == device.type


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight


def test_tied_weights_stay_tied_when_a_module_moves(device: torch.device) -> None:
    module = Tied()
    weight = module.first.weight
    module.to(device)
    assert module.first.weight is module.second.weight
    assert module.first.weight is weight
    assert weight.device.type == device.type
    module.to("cpu")
    assert module.first.weight is module.second.weight


def test_an_optimizer_made_before_the_move_still_updates(device: torch.device) -> None:
    layer = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    layer.to(device)
    before = layer.weight.detach().cpu().clone()
    layer(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()
    assert torch.allclose(layer.weight.detach().cpu(), before - 1)


def test_a_module_changes_its_dtype_on_the_device(device: torch.device) -> None:
    layer = nn.Linear(2, 2).to(device).to(torch.bfloat16)
    assert layer.weight.dtype == torch.bfloat16
    assert layer(torch.ones(1, 2, device=device, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert layer.float().weight.dtype == torch.float32


def test_gradients_move_with_a_module(device: torch.device) -> None:
    layer = nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    layer.to(device)
    assert layer.weight.grad is not None
    assert layer.weight.grad.device.type == device.type
    assert layer.weight.grad.tolist() == [[1.0, 1.0]]


def test_a_sequence_fills_an_output_of_any_shape(device: torch.device) -> None:
    """It keeps its sizes if it has as many elements."""
    for fill in (
        lambda out: torch.arange(4, out=out),
        lambda out: torch.linspace(0, 3, 4, out=out),
        lambda out: torch.logspace(0, 3, 4, 2, out=out),
    ):
        x, expected = torch.zeros(2, 3, device=device), torch.zeros(2, 3)
        fill(x.narrow(1, 1, 2))
        fill(expected.narrow(1, 1, 2))
        assert x.cpu().equal(expected)
        resized = torch.empty(0, device=device)
        fill(resized)
        assert resized.shape == (4,)
    for dtype in (torch.int32, torch.int64, torch.float64):
        steps = torch.linspace(0, 999_999, 1_000_000, dtype=dtype, device=device).cpu()
        assert steps.equal(torch.arange(1_000_000, dtype=dtype))


def test_the_greatest_unsigned_numbers(device: torch.device) -> None:
    most = 2**64 - 1
    assert torch.full((2,), most, dtype=torch.uint64, device=device).tolist() == [most, most]
    assert torch.zeros(2, dtype=torch.uint64, device=device).fill_(most - 1).tolist() == [most - 1, most - 1]
