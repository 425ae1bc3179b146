#include "backends/cpu/elementwise.h"

namespace clikart::cpu {
namespace {

/// How one operand comes to be lanes.
struct Lanes {
    ConvertFn convert;
    int64_t stride, element, lane;  // elements; bytes
    bool direct;                    // the loop reads or writes the memory itself
};

template <int N>
void run(const KernelCall& call, const ElementLoop& loop) {
    const View& out = call.outputs[0];
    const StridedLoop<N + 1> walk(out, {call.inputs, N});
    Lanes in[N];
    for (int k = 0; k < N; ++k) {
        const DType own = dtype_of(call.inputs[k]);
        const int64_t stride = walk.inner_stride(k + 1);
        in[k] = {find_convert(own, loop.in[k]), stride, size_of(own), size_of(loop.in[k]), own == loop.in[k] && (stride == 0 || stride == 1)};
    }
    const DType own = dtype_of(out);
    const int64_t stride = walk.inner_stride(0);
    const Lanes to{find_convert(loop.out, own), stride, size_of(own), size_of(loop.out), own == loop.out && stride == 1};
    bool direct = to.direct;
    for (const Lanes& lanes : in) direct &= lanes.direct;
    if (direct) {
        const bool streamed = walk.count() * to.element >= kStreamedBytes;
        walk.parallel_runs(call, [&](char* const* p, int64_t n) {
            Operands operands{{}, {}, call.attributes, streamed && reinterpret_cast<uintptr_t>(p[0]) % kMemoryAlignment == 0};
            for (int k = 0; k < N; ++k) operands.data[k] = p[k + 1], operands.step[k] = in[k].stride;
            loop.run(operands, p[0], n);
        });
        return;
    }
    walk.parallel_runs(call, [&](char* const* p, int64_t n) {
        alignas(64) char tiles[N][kTile * kWidest];
        alignas(64) char result[kTile * kWidest];
        Operands operands{{}, {}, call.attributes, false};
        for (int k = 0; k < N; ++k) {  // what does not move is converted once
            operands.step[k] = in[k].stride == 0 ? 0 : 1;
            if (in[k].stride != 0) continue;
            operands.data[k] = in[k].direct ? p[k + 1] : tiles[k];
            if (!in[k].direct) in[k].convert(p[k + 1], 1, tiles[k], 1, 1);
        }
        for (int64_t i = 0; i < n; i += kTile) {
            const int64_t m = std::min(kTile, n - i);
            for (int k = 0; k < N; ++k) {
                if (in[k].stride == 0) continue;
                const char* from = p[k + 1] + i * in[k].stride * in[k].element;
                operands.data[k] = in[k].direct ? from : tiles[k];
                if (!in[k].direct) in[k].convert(from, in[k].stride, tiles[k], 1, m);
            }
            char* place = p[0] + i * to.stride * to.element;
            loop.run(operands, to.direct ? place : result, m);
            if (!to.direct) to.convert(result, 1, place, to.stride, m);
        }
    });
}

}  // namespace

void elementwise(const KernelCall& call, const ElementLoop& loop) {
    switch (call.n_inputs) {
        case 1: return run<1>(call, loop);
        case 2: return run<2>(call, loop);
        default: return run<3>(call, loop);
    }
}

}  // namespace clikart::cpu
