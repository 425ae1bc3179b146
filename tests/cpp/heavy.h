// Work that takes a while, for tests of asynchrony through the C++ API.
#pragma once

#include <ClikaRT/clika_rt.h>

/// Enough that a stream is still at it when the call returns; every element is 1/1024.
inline ClikaRT::Tensor heavy() {
    namespace ops = ClikaRT::ops;
    const ClikaRT::Tensor a = ops::full({1024, 1024}, 1.0 / 1024);
    ClikaRT::Tensor x = a;
    for (int i = 0; i < 8; ++i) x = ops::matmul(x, a);
    return x;
}
