#include "backends/cpu/elementwise.h"

#include "backends/cpu/move.h"

namespace clikart::cpu {
namespace {

/// How one operand comes to be lanes.
struct Lanes {
    ConvertFn convert;              // null when direct
    int64_t stride, element, lane;  // elements; bytes
    bool direct;                    // the loop reads or writes the memory itself
};

/// One run, whose operands are brought to lanes in short tiles.
template <int N>
void run_tiles(const KernelCall& call, const ElementLoop& loop, const Lanes (&in)[N], const Lanes& to, char* const* p, int64_t n) {
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
}

// Blocks of the innermost dimension and one that crosses it, in which an operand that lies the other way round is transposed
// first: its elements share cache lines across, not along, the runs.
constexpr int64_t kRows = 64, kColumns = 64;

/// The dimension along which an operand that is strided in the innermost one is dense; -1: there is none, or it is too short.
template <int N>
int crossing_of(const StridedLoop<N + 1>& walk) {
    constexpr int64_t worth = 16;
    const int inner = walk.rank() - 1;
    if (walk.size(inner) < worth) return -1;
    for (int k = 1; k <= N; ++k) {
        if (walk.inner_stride(k) == 0 || walk.inner_stride(k) == 1) continue;
        for (int d = inner - 1; d >= 0; --d) {
            if (walk.stride(k, d) == 1 && walk.size(d) >= worth) return d;
        }
    }
    return -1;
}

template <int N>
void run_blocks(const KernelCall& call, const ElementLoop& loop, const StridedLoop<N + 1>& walk, const Lanes (&in)[N], const Lanes& to, int crossing) {
    const int inner = walk.rank() - 1;
    const int64_t rows = walk.size(crossing), columns = walk.size(inner);
    const int64_t down = (rows + kRows - 1) / kRows, across = (columns + kColumns - 1) / kColumns;
    Lanes lanes[N];
    bool transposed[N];
    for (int k = 0; k < N; ++k) {
        lanes[k] = in[k];
        transposed[k] = in[k].stride != 0 && in[k].stride != 1 && walk.stride(k + 1, crossing) == 1;
        if (!transposed[k]) continue;
        lanes[k].stride = 1;
        lanes[k].direct = dtype_of(call.inputs[k]) == loop.in[k];
    }
    // Large results are put together here and then go past the caches.
    const bool streamed = to.stride == 1 && walk.count() * to.element >= kStreamedBytes;
    constexpr int64_t blocks_per_piece = kPiece / (kRows * kColumns);
    const int64_t blocks = walk.count() / (rows * columns) * down * across;
    parallel_for(call, (blocks + blocks_per_piece - 1) / blocks_per_piece, [&](int64_t piece) {
        alignas(64) char tiles[N + 1][kRows * kColumns * kWidest];
        for (int64_t block = piece * blocks_per_piece; block < std::min(blocks, (piece + 1) * blocks_per_piece); ++block) {
            const int64_t row = block % down * kRows, column = block / down % across * kColumns;
            const int64_t n_rows = std::min(kRows, rows - row), n_columns = std::min(kColumns, columns - column);
            int64_t index[kMaxRank], outer = block / down / across;
            for (int d = inner - 1; d >= 0; --d) {
                if (d == crossing) continue;
                index[d] = outer % walk.size(d);
                outer /= walk.size(d);
            }
            index[crossing] = row;
            index[inner] = column;
            char* p[N + 1];
            int64_t step[N + 1];
            for (int k = 0; k <= N; ++k) {
                p[k] = walk.data(k);
                for (int d = 0; d <= inner; ++d) p[k] += index[d] * walk.stride(k, d) * walk.element(k);
                step[k] = walk.stride(k, crossing) * walk.element(k);
                if (k == 0 || !transposed[k - 1]) continue;
                const int64_t element = walk.element(k);
                step[k] = n_columns * element;
                transpose(p[k], walk.inner_stride(k) * element, tiles[k], step[k], n_rows, n_columns, element);
                p[k] = tiles[k];
            }
            char* const place = p[0];
            const int64_t bytes = n_columns * to.element, place_step = step[0];
            if (streamed) p[0] = tiles[0], step[0] = bytes;
            for (int64_t i = 0; i < n_rows; ++i) {
                run_tiles<N>(call, loop, lanes, to, p, n_columns);
                for (int k = 0; k <= N; ++k) p[k] += step[k];
            }
            if (streamed) stream(place, place_step, tiles[0], bytes, n_rows, bytes);
        }
        if (streamed) finish_streams();
    });
}

template <int N>
void run(const KernelCall& call, const ElementLoop& loop) {
    const View& out = call.outputs[0];
    const StridedLoop<N + 1> walk(out, {call.inputs, N});
    Lanes in[N];
    for (int k = 0; k < N; ++k) {
        const DType own = dtype_of(call.inputs[k]);
        const int64_t stride = walk.inner_stride(k + 1);
        const bool plain = own == loop.in[k] && (stride == 0 || stride == 1);
        in[k] = {plain ? nullptr : find_convert(own, loop.in[k]), stride, size_of(own), size_of(loop.in[k]), plain};
    }
    const DType own = dtype_of(out);
    const int64_t stride = walk.inner_stride(0);
    const bool plain = own == loop.out && stride == 1;
    const Lanes to{plain ? nullptr : find_convert(loop.out, own), stride, size_of(own), size_of(loop.out), plain};
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
    if (const int crossing = crossing_of<N>(walk); crossing >= 0) return run_blocks<N>(call, loop, walk, in, to, crossing);
    walk.parallel_runs(call, [&](char* const* p, int64_t n) { run_tiles<N>(call, loop, in, to, p, n); });
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
