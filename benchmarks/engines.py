"""The engines that bench.py compares, each with the same words for what it does.  Images are [N, H, W, C], kernels [O, H, W, I]."""

from __future__ import annotations

import os
from typing import Any

import ml_dtypes
import numpy as np


class Torch:
    def __init__(self) -> None:
        import torch
        from torch.nn import functional

        self.t, self.f = torch, functional
        torch.set_grad_enabled(False)
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self.exp, self.tanh, self.relu, self.gelu, self.sigmoid = torch.exp, torch.tanh, torch.relu, functional.gelu, torch.sigmoid
        self.mean, self.var, self.cat, self.topk, self.sort = torch.mean, torch.var, torch.cat, torch.topk, torch.sort
        self.embedding, self.pad, self.attention, self.normal = functional.embedding, functional.pad, functional.scaled_dot_product_attention, torch.randn

    def array(self, x: np.ndarray) -> Any:
        if x.dtype == ml_dtypes.bfloat16:
            return self.t.from_numpy(x.view(np.int16)).view(self.t.bfloat16)
        return self.t.from_numpy(x)

    def numpy(self, x: Any) -> np.ndarray:
        return x.float().numpy() if x.dtype == self.t.bfloat16 else x.numpy()

    def first(self, x: Any) -> Any:
        return x[0] if isinstance(x, tuple) else x

    def wait(self, x: Any) -> None:
        pass

    def into(self, out, name, x):
        """The function's result in memory that is there already."""
        return (self.t._C._nn.gelu if name == "gelu" else getattr(self.t, name))(x, out=out)

    def replay(self, name, function, inputs, constants=()):
        """The function, compiled where that needs no compiler of its own: here it is called."""
        return function(self, *inputs, *constants)

    def softmax(self, x):
        return self.t.softmax(x, -1)

    def layer_norm(self, x, weight, bias):
        return self.f.layer_norm(x, weight.shape, weight, bias)

    def sum(self, x, axis):
        return self.t.sum(x) if axis is None else self.t.sum(x, axis)

    def argmax(self, x):
        return self.t.argmax(x, 1)

    def cumsum(self, x):
        return self.t.cumsum(x, -1)

    def transposed(self, x):
        return x.t()

    def transpose_copy(self, x):
        return x.t().contiguous()

    def to_bfloat16(self, x):
        return x.to(self.t.bfloat16)

    def conv2d(self, x, w, stride, padding, groups):
        """Channels-last memory, which these permutations are."""
        result = self.f.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), None, stride, padding, 1, groups)
        return result.permute(0, 2, 3, 1)

    def max_pool2d(self, x, size, stride, padding):
        return self.f.max_pool2d(x.permute(0, 3, 1, 2), size, stride, padding).permute(0, 2, 3, 1)


class Clika:
    def __init__(self) -> None:
        import clika_runtime as crt

        self.crt = crt
        for name in ("exp", "tanh", "relu", "gelu", "softmax", "sum", "mean", "var", "topk", "sort", "embedding", "pad", "max_pool2d"):
            setattr(self, name, getattr(crt, name))
        self.cat, self.attention, self.sigmoid = crt.concat, crt.scaled_dot_product_attention, crt.sigmoid
        self.graphs: dict[str, Any] = {}

    def array(self, x: np.ndarray) -> Any:
        return self.crt.tensor(x)

    def numpy(self, x: Any) -> np.ndarray:
        return np.asarray(x.numpy(), np.float32) if x.dtype is self.crt.bfloat16 else x.numpy()

    def first(self, x: Any) -> Any:
        return x[0] if isinstance(x, tuple) else x

    def wait(self, x: Any) -> None:
        x.wait()

    def into(self, out, name, x):
        """Ours takes memory from its pool, and needs none."""
        return getattr(self.crt, name)(x)

    def replay(self, name, function, inputs, constants=()):
        if name not in self.graphs:
            self.graphs[name] = self.crt.trace(lambda given: [function(self, *given, *constants)], list(inputs))
        return self.graphs[name].run(list(inputs))[0]

    def layer_norm(self, x, weight, bias):
        return self.crt.layer_norm(x, weight.shape, weight, bias)

    def argmax(self, x):
        return self.crt.argmax(x, 1)

    def cumsum(self, x):
        return self.crt.cumsum(x, -1)

    def transposed(self, x):
        return self.crt.permute(x, (1, 0))

    def transpose_copy(self, x):
        return self.crt.copy(self.crt.permute(x, (1, 0)))

    def to_bfloat16(self, x):
        return self.crt.cast(x, self.crt.bfloat16)

    def conv2d(self, x, w, stride, padding, groups):
        return self.crt.conv2d(x, w, None, stride, padding, 1, groups)

    def normal(self, count):
        return self.crt.normal([count])


ENGINES = {"torch": Torch, "clika": Clika}
