"""Recurrent networks agree with the CPU, whatever they are given: packed batches, projections, no biases."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

NETWORKS: dict[str, nn.Module] = {
    "RNN": nn.RNN(4, 5, 2, bidirectional=True),
    "GRU": nn.GRU(4, 5, 2, bidirectional=True),
    "GRU without biases": nn.GRU(4, 5, bias=False),
    "LSTM": nn.LSTM(4, 5, 2, bidirectional=True),
    "LSTM without biases": nn.LSTM(4, 5, bias=False),
    "LSTM with a projection": nn.LSTM(4, 5, proj_size=3),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_packed_batch(name: str, device: torch.device, no_fallbacks: None) -> None:
    network = NETWORKS[name]
    ours = copy.deepcopy(network).to(device)
    packed = nn.utils.rnn.pack_sequence([torch.randn(length, 4) for length in (5, 3, 2)])
    expected, _ = network(packed)
    got, _ = ours(packed.to(device))
    torch.testing.assert_close(got.data.cpu(), expected.data)
    wanted = torch.autograd.grad(expected.data.square().sum(), list(network.parameters()))
    grads = torch.autograd.grad(got.data.square().sum(), list(ours.parameters()))
    for g, e in zip(grads, wanted, strict=True):
        torch.testing.assert_close(g.cpu(), e)


@pytest.mark.parametrize("cell", [nn.LSTMCell(3, 4), nn.GRUCell(3, 4), nn.GRUCell(3, 4, bias=False)])
def test_the_gradients_of_a_cell(cell: nn.Module, device: torch.device) -> None:
    ours = copy.deepcopy(cell).to(device, torch.float64)
    x = torch.randn(2, 3, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(ours, (x,))


def test_the_gradient_of_a_cells_gradient(device: torch.device) -> None:
    cell = nn.LSTMCell(3, 4).to(device, torch.float64)
    x = torch.randn(2, 3, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: cell(x)[0], (x,))


def test_an_unused_state_gives_no_gradient(device: torch.device) -> None:
    cell = nn.LSTMCell(3, 4)
    ours = copy.deepcopy(cell).to(device)
    x = torch.randn(2, 3)
    for used in (0, 1):
        expected = torch.autograd.grad(cell(x)[used].sum(), list(cell.parameters()))
        got = torch.autograd.grad(ours(x.to(device))[used].sum(), list(ours.parameters()))
        for g, e in zip(got, expected, strict=True):
            torch.testing.assert_close(g.cpu(), e)


def test_gates_of_a_wrong_width_are_refused(pjrt: object, device: torch.device) -> None:
    def ones(*shape: int) -> Tensor:
        return torch.ones(shape, device=device)

    with pytest.raises(RuntimeError, match="3 times the width of the state"):
        torch.ops.aten._thnn_fused_gru_cell(ones(2, 9), ones(2, 9), ones(2, 4))
