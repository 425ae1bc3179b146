"""What the tests of trace and compile share."""

from __future__ import annotations

import numpy as np

import clika_runtime as crt
from clika_runtime import nn

ONE, TEN = crt.tensor([1.0, 2.0]), crt.tensor([10.0, 20.0])


class Scale(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(w)

    def forward(self, x):
        return x * self.w


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def same(a, b):
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
