"""The fully connected layer."""

from __future__ import annotations

from .. import ops
from .._enums import ClikaRTValueError
from .._refused import int_argument
from ..tensor import Tensor, tensor
from .module import Module, Parameter


def _features(name: str, value: int) -> int:
    number = int_argument("Linear", name, value)
    if number < 0:
        raise ClikaRTValueError(f"Linear: {name} is negative: {number}")
    return number


class Linear(Module):
    """x W^T + b.

    Args:
        in_features: the size of x's last dimension.
        out_features: the size of the result's last dimension.
        bias: whether there is a b.

    ``weight`` is [out_features, in_features], ``bias`` [out_features]; both start uniform in +-1/sqrt(in_features).
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        import numpy as np

        super().__init__()
        in_features = _features("in_features", in_features)
        out_features = _features("out_features", out_features)
        bound = 1 / np.sqrt(max(1, in_features))
        rng = np.random.default_rng()

        def uniform(*shape: int) -> Parameter:
            return Parameter(tensor(rng.uniform(-bound, bound, shape).astype(np.float32)))

        self.weight = uniform(out_features, in_features)
        self.register_parameter("bias", uniform(out_features) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        y = ops.matmul(x, ops.permute(self.weight, (1, 0)))
        return y if self.bias is None else ops.add(y, self.bias)

    def extra_repr(self) -> str:
        out_features, in_features = self.weight.shape
        return f"in_features={in_features}, out_features={out_features}, bias={self.bias is not None}"
