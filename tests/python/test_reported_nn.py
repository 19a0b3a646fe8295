"""Layers where other devices were wrong; each test links the report."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from agree import agree, normal
from torch import Tensor, nn
from torch.nn import functional

LOW = [torch.bfloat16, torch.float16]


def last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


# Each from a batch of 8 images with 64 channels, 8 x 8.
IMAGES: dict[str, Callable[[Tensor], object]] = {
    "batch_norm": lambda x: functional.batch_norm(x, *(x.detach()[0, :, 0, i].abs() + 1 for i in (0, 1))),
    "batch_norm, training": lambda x: functional.batch_norm(x, None, None, training=True),
    "group_norm": lambda x: functional.group_norm(x, 4),
    "instance_norm": functional.instance_norm,
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[2:]),
    "avg_pool2d": lambda x: functional.avg_pool2d(x, 2),
    "max_pool2d": lambda x: functional.max_pool2d(x, 3, stride=2, padding=1),
    "adaptive_avg_pool2d": lambda x: functional.adaptive_avg_pool2d(x, (3, 2)),
    "adaptive_max_pool2d": lambda x: functional.adaptive_max_pool2d(x, 2),
    "nearest": lambda x: functional.interpolate(x, scale_factor=2),
    "bilinear": lambda x: functional.interpolate(x, size=(5, 11), mode="bilinear"),
    "pixel_shuffle": lambda x: functional.pixel_shuffle(x, 2),
    "pad": lambda x: functional.pad(x, (1, 2, 0, 1), mode="reflect"),
    "softmax": lambda x: x.softmax(1),
    "conv2d": lambda x: functional.conv2d(x, x[:2, :, :3, :3], padding=1),
    "depthwise": lambda x: functional.conv2d(x, x[:1, :, :3, :3].transpose(0, 1), groups=x.shape[1]),
    "conv_transpose2d": lambda x: functional.conv_transpose2d(x, x[0, :, :3, :3].unsqueeze(1), stride=2),
    "unfold": lambda x: functional.unfold(x, 3),
    "prelu": lambda x: functional.prelu(x, x[0, :, 0, 0]),
}
CHANNELS_LAST: dict[str, Callable[[Tensor], Tensor]] = {
    "a part of the channels": lambda t: last(t.reshape(2, 10, 8, 8))[:, 1:9],
    "one channel": lambda t: last(t.reshape(2, 10, 8, 8))[:, :1].expand(2, 4, 8, 8),
    "behind an offset": lambda t: t.view(20, 64)[4:].view(2, 8, 8, 8).permute(0, 3, 1, 2),
}


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("layout", CHANNELS_LAST)
def test_channels_last_with_an_offset_is_read_as_it_looks(name: str, layout: str, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/180984, https://github.com/pytorch/pytorch/issues/174345
    agree(
        lambda x: IMAGES[name](CHANNELS_LAST[layout](x)), device, normal(20 * 64).requires_grad_(), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_convolution_of_some_channels(rank: int, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/180984
    convolve = (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1]
    sides = (5, 6, 4)[:rank]
    weight = normal(4, 2, *(1 for _ in sides), seed=1).requires_grad_()

    def call(x: Tensor, w: Tensor) -> object:
        x = last(x) if rank > 1 else x.transpose(1, 2).contiguous().transpose(1, 2)
        return [convolve(x[:, 1:3], w), convolve(x[:, :1], w[:, :1]), convolve(x, w, groups=2), convolve(x[1:, 2:], w)]

    agree(call, device, normal(2, 4, *sides).requires_grad_(), weight, rtol=1e-5, atol=1e-5)


def test_channels_last_tensors_are_joined(device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/89353
    for shape in ((2, 3, 4, 5), (2, 3, 2, 2, 2)):
        agree(
            lambda x: (
                [torch.cat([last(x), last(x) + 1], d) for d in range(x.dim())]
                + [torch.cat([last(x), x]), torch.stack([last(x), x]), last(x) + x, last(x) * 2]
            ),
            device,
            normal(*shape),
            strides=True,
        )


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_keeps_running_statistics(rank: int, momentum: float | None, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/84962
    layer = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[rank - 1]
    x = normal(20, 3, *(35, 5, 3)[:rank]) * 2 + 1

    def train(x: Tensor) -> list[object]:
        norm = layer(3, momentum=momentum).to(x.device)
        results = [norm(x), norm(x + 1)]
        return [*results, norm.running_mean, norm.running_var, norm.num_batches_tracked, norm.eval()(x)]

    agree(train, device, x.requires_grad_(), rtol=1e-4, atol=1e-5)
    norm = layer(3).to(device)
    y = norm(x.detach().to(device)).detach().cpu()
    channels = x.detach().transpose(0, 1).reshape(3, -1)
    assert y.transpose(0, 1).reshape(3, -1).mean(1).abs().max() < 1e-5
    torch.testing.assert_close(norm.running_mean.cpu(), 0.1 * channels.mean(1))
    torch.testing.assert_close(norm.running_var.cpu(), 0.9 + 0.1 * channels.var(1))


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_norms_take_low_precision(dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/154887, https://github.com/pytorch/pytorch/issues/96113
    x, scale, shift = normal(6, 4, 5, dtype=dtype).requires_grad_(), normal(4, seed=1), normal(4, seed=2)
    tolerance = {"rtol": 2e-2, "atol": 5e-2}  # of gradients that the CPU adds up in low precision
    for training in (True, False):
        found = agree(
            lambda x, w, b, t=training: functional.batch_norm(
                x, b.detach() + 1, w.detach().abs() + 1, w, b, training=t
            ),
            device,
            *(x, scale.requires_grad_(), shift.requires_grad_()),
            **tolerance,
        )
        assert found[0].dtype == dtype
    low = [t.detach().to(dtype).requires_grad_() for t in (scale, shift)]
    agree(lambda x, w, b: functional.layer_norm(x.transpose(1, 2), (4,), w, b), device, x, *low, **tolerance)
    agree(lambda x, w, b: functional.group_norm(x, 2, w, b), device, x, *low, **tolerance)
    agree(lambda x, w, b: functional.rms_norm(x.transpose(1, 2), (4,), w), device, x, *low, **tolerance)
    agree(lambda x: functional.instance_norm(x), device, x, **tolerance)


UPSAMPLES = {
    "nearest": ({"mode": "nearest"}, 1),
    "nearest-exact": ({"mode": "nearest-exact"}, 1),
    "linear": ({"mode": "linear"}, 1),
    "nearest 2d": ({"mode": "nearest"}, 2),
    "nearest-exact 2d": ({"mode": "nearest-exact"}, 2),
    "bilinear": ({"mode": "bilinear"}, 2),
    "bilinear, aligned": ({"mode": "bilinear", "align_corners": True}, 2),
    "bicubic": ({"mode": "bicubic"}, 2),
    "area": ({"mode": "area"}, 2),
    "nearest 3d": ({"mode": "nearest"}, 3),
    "trilinear": ({"mode": "trilinear"}, 3),
}


@pytest.mark.parametrize("name", UPSAMPLES)
def test_resizing_stays_on_the_device_both_ways(name: str, device: torch.device, no_fallbacks: None) -> None:
    # https://github.com/microsoft/DirectML/issues/718, https://github.com/pytorch/xla/issues/5058
    options, rank = UPSAMPLES[name]
    x = normal(2, 1, *(4, 3, 2)[:rank]).requires_grad_()
    for size in ({"scale_factor": 2}, {"size": (5, 2, 3)[:rank]}):
        agree(lambda x, s=size: functional.interpolate(x, **s, **options), device, x, rtol=1e-4, atol=1e-5)
    if name == "nearest 2d":
        ones = torch.ones(1, 1, 2, 2, device=device, requires_grad=True)
        functional.interpolate(ones, scale_factor=2).sum().backward()
        assert ones.grad is not None
        assert ones.grad.flatten().tolist() == [4.0] * 4


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_an_invalid_output_padding_is_refused(rank: int, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/169236
    layer = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[rank - 1]
    for options in ({"stride": 1, "output_padding": 1}, {"stride": 2, "output_padding": 2}, {"output_padding": -1}):
        texts = []
        for where in ("cpu", device):
            with pytest.raises(RuntimeError) as caught:
                layer(1, 1, 3, **options).to(where)(torch.ones(1, 1, *(4,) * rank, device=where)).cpu()
            texts.append(str(caught.value).partition("\n")[0])
        assert texts[0] == texts[1]


def test_group_norm_has_the_cpus_gradients(device: torch.device, no_fallbacks: None) -> None:
    # https://github.com/microsoft/DirectML/issues/678
    for groups in (1, 2, 4):
        agree(
            lambda x, w, b, g=groups: functional.group_norm(x, g, w, b).square().sum(),
            device,
            *(normal(2, 4, 3).requires_grad_(), normal(4, seed=1).requires_grad_(), normal(4, seed=2).requires_grad_()),
            rtol=1e-4,
            atol=1e-4,
        )


class Block(nn.Module):
    """A residual step with frozen batch norms."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(3), nn.BatchNorm2d(3)])
        self.norms.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](self.first(x)).relu()
        return (self.norms[1](self.second(y)) + x).relu()


@pytest.mark.parametrize("training", [True, False])
def test_frozen_norms_pass_gradients_on(training: bool, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/98602
    def gradients(x: Tensor) -> list[Tensor | None]:
        torch.manual_seed(0)
        net = nn.Sequential(Block(), Block()).train(training)
        net.to(x.device)
        net(x).square().mean().backward()
        assert all(p.grad is None for p in net[0].norms.parameters())
        return [p.grad for p in net.parameters() if p.grad is not None] + list(net.buffers())

    agree(gradients, device, normal(2, 3, 6, 6), rtol=1e-4, atol=1e-5)


RNNS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}


@pytest.mark.parametrize("kind", RNNS)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("of_state", [False, True], ids=["of the outputs", "of the last state"])
def test_recurrent_layers_learn_as_on_the_cpu(
    kind: str, batch_first: bool, of_state: bool, device: torch.device
) -> None:
    # https://github.com/pytorch/pytorch/issues/80306, https://github.com/pytorch/pytorch/issues/87579
    # https://github.com/pytorch/pytorch/issues/96416
    def learn(x: Tensor, *state: Tensor) -> list[object]:
        torch.manual_seed(0)
        layer = RNNS[kind](10, 20, num_layers=2, bidirectional=True, batch_first=batch_first).to(x.device)
        outputs, last_state = layer(x, state if len(state) > 1 else state[0])
        hidden = last_state[0] if isinstance(last_state, tuple) else last_state
        step = outputs[:, -1] if batch_first else outputs[-1]
        torch.testing.assert_close(step[:, :20], hidden[-2])
        loss = hidden.sum() if of_state else outputs.square().sum() + hidden.sum()
        return [loss, outputs.detach(), torch.autograd.grad(loss, [*layer.parameters(), x], retain_graph=True)]

    shape = (5, 3, 10) if batch_first else (3, 5, 10)
    state = [normal(4, 5, 20, seed=seed) for seed in range(2 if kind == "LSTM" else 1)]
    agree(learn, device, normal(*shape).requires_grad_(), *state, rtol=1e-4, atol=1e-4)


def test_packed_sequences_run_through_a_recurrent_layer(device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/80306
    def learn(x: Tensor) -> list[object]:
        torch.manual_seed(0)
        layer = nn.LSTM(4, 6, batch_first=True).to(x.device)
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 1, 2]), batch_first=True, enforce_sorted=False)
        outputs, (hidden, _) = layer(packed)
        return [nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)[0], hidden]

    agree(learn, device, normal(3, 3, 4).requires_grad_(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, *LOW], ids=str)
def test_attention_of_permuted_heads(causal: bool, dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/181133
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    for shape in ((84, 3, 3, 64), (2, 5, 3, 8)):
        q, k, v = (normal(*shape, seed=seed).to(dtype).requires_grad_() for seed in range(3))
        agree(
            lambda q, k, v: functional.scaled_dot_product_attention(
                *(t.permute(0, 2, 1, 3) for t in (q, k, v)), is_causal=causal
            ),
            device,
            *(q, k, v),
            **tolerance,
        )


@pytest.mark.parametrize("dtype", [torch.float32, *LOW], ids=str)
@pytest.mark.usefixtures("strict")
def test_a_causal_mask_hides_the_future(dtype: torch.dtype, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/195910
    q, k, v = (normal(1, 4, 64, 64, seed=seed).to(dtype).to(device) for seed in range(3))
    attention = functional.scaled_dot_product_attention
    plain = attention(q, k, v, is_causal=True)
    position = torch.arange(64, device=device).view(64, 1)
    for t in range(64):
        after = position > t
        changed = attention(q, k.masked_fill(after, 9.0), v.masked_fill(after, -50.0), is_causal=True)
        assert changed[:, :, : t + 1].equal(plain[:, :, : t + 1])


@pytest.mark.parametrize("training", [True, False])
def test_padded_keys_leave_no_nan_in_attention(training: bool, device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/151667
    def attend(x: Tensor, mask: Tensor) -> Tensor:
        torch.manual_seed(0)
        layer = nn.MultiheadAttention(8, 2, dropout=0.3 if training else 0.0, batch_first=True).to(x.device)
        return layer.train(training)(x, x, x, key_padding_mask=mask)[0]

    mask = torch.tensor([[False, True, True], [True, True, False]])
    x = normal(2, 3, 8)
    assert not attend(x.to(device), mask.to(device)).isnan().any()
    dead = torch.tensor([[True, True, True], [True, True, False]])
    for m in (mask, dead):
        if training:
            assert attend(x.to(device), m.to(device)).isnan().cpu().equal(attend(x, m).isnan())
        else:
            agree(attend, device, x, m, rtol=1e-4, atol=1e-5)


def test_nan_in_a_hidden_key_does_what_it_does_on_the_cpu(device: torch.device) -> None:
    # https://github.com/pytorch/pytorch/issues/101967
    q, k, v = (normal(1, 2, 4, 8, seed=seed) for seed in range(3))
    k[:, :, -1] = float("nan")
    mask = torch.tensor([True, True, True, False]).expand(4, 4)
    agree(
        lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, attn_mask=m).isnan(),
        device,
        *(q, k, v, mask),
    )
