"""docs/numerics.md promises how far functions are off; this holds it to that."""

import re

import numpy as np
import pytest

import clika_runtime as crt
from accuracy import DTYPES, NAMES, worst_ulp
from conftest import ROOT

PROMISED = {
    match[1]: dict(zip(DTYPES, map(float, match[2].split("|")[:4]), strict=True))
    for match in re.finditer(r"^\| (\w+) \|((?: [\d.]+ \|){4})$", (ROOT / "docs/numerics.md").read_text(), re.M)
}


def test_every_function_has_a_promise():
    assert sorted(PROMISED) == sorted(NAMES)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_promises_are_kept(name, dtype):
    assert worst_ulp(name, dtype, share=0.1) <= PROMISED[name][dtype]


@pytest.mark.parametrize("name", NAMES)
def test_neighbours_do_not_matter(name):
    """The same element has the same bits at every place of a run, alone, and in every layout."""
    x = np.array([0.3, 1e-40, -0.0, 700.0, 1e30, -3.5, np.inf, np.nan, 0.7], np.float32)
    alone = [getattr(crt, name)(crt.tensor(x[i : i + 1])).bytes() for i in range(len(x))]
    for offset in range(17):
        padded = np.concatenate([np.linspace(-2, 2, offset, dtype=np.float32), x, np.full(3, 80, np.float32)])
        got = getattr(crt, name)(crt.tensor(padded)).numpy()[offset : offset + len(x)]
        assert [got[i : i + 1].tobytes() for i in range(len(x))] == alone, offset
