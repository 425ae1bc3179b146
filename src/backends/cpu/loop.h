// Walking strided, broadcast operands in step, in runs along the innermost dimension.
#pragma once

#include "backends/cpu/kernel.h"

namespace clikart::cpu {

/// Elements per parallel piece: large enough that taking a piece costs nothing, small enough to balance two cores.
inline constexpr int64_t kPiece = 32 * 1024;

/// From this size on an output goes to memory past the caches: it would not stay in them anyway, and a line need not be
/// read before it is overwritten.
inline constexpr int64_t kStreamedBytes = int64_t{8} << 20;

/// N operands over one shape, dimensions merged where every operand allows it.  Operand 0 is the output.
template <int N>
class StridedLoop {
public:
    StridedLoop(const View& output, std::span<const View> inputs) {
        const int rank = output.rank;
        Dims strides[N];
        data_[0] = static_cast<char*>(output.data);
        size_[0] = size_of(dtype_of(output));
        strides[0] = strides_of(output);
        for (int k = 1; k < N; ++k) {
            const View& in = inputs[static_cast<size_t>(k - 1)];
            data_[k] = static_cast<char*>(in.data);
            size_[k] = size_of(dtype_of(in));
            strides[k].resize(rank);
            for (int d = 0; d < rank; ++d) {  // missing and size-1 dimensions stand still
                const int own = d - (rank - in.rank);
                strides[k][d] = own < 0 || in.shape[own] == 1 ? 0 : in.strides[own];
            }
        }
        const Dims shape = shape_of(output);
        shape_.push_back(1);
        for (auto& s : strides_) s.push_back(0);
        for (int d = 0; d < rank; ++d) {
            if (shape[d] == 1) continue;
            const int last = shape_.rank() - 1;
            bool merges = true;
            for (int k = 0; k < N; ++k) merges &= strides_[k][last] == strides[k][d] * shape[d];
            if (merges || shape_[last] == 1) {
                shape_[last] *= shape[d];
                for (int k = 0; k < N; ++k) strides_[k][last] = strides[k][d];
            } else {
                shape_.push_back(shape[d]);
                for (int k = 0; k < N; ++k) strides_[k].push_back(strides[k][d]);
            }
        }
        count_ = numel(shape);
    }

    int64_t count() const noexcept { return count_; }
    int64_t inner_stride(int k) const noexcept { return strides_[k][strides_[k].rank() - 1]; }
    // The merged dimensions, of which there is at least one.
    int rank() const noexcept { return shape_.rank(); }
    int64_t size(int d) const noexcept { return shape_[d]; }
    int64_t stride(int k, int d) const noexcept { return strides_[k][d]; }
    char* data(int k) const noexcept { return data_[k]; }
    int64_t element(int k) const noexcept { return size_[k]; }

    /// Calls f(pointers, n) for the runs that make up elements [begin, end) in row-major order.
    template <class F>
    void runs(int64_t begin, int64_t end, F&& f) const {
        runs(data_, begin, end, f);
    }
    /// The same with the operands at other places.
    template <class F>
    void runs(char* const (&data)[N], int64_t begin, int64_t end, F&& f) const {
        if (begin >= end) return;
        const int inner = shape_.rank() - 1;
        const int64_t length = shape_[inner];
        int64_t row = begin / length, at = begin % length;
        while (begin < end) {
            char* pointers[N];
            std::copy(data, data + N, pointers);
            int64_t rest = row;
            for (int d = inner - 1; d >= 0; --d) {
                const int64_t i = rest % shape_[d];
                rest /= shape_[d];
                for (int k = 0; k < N; ++k) pointers[k] += i * strides_[k][d] * size_[k];
            }
            for (int k = 0; k < N; ++k) pointers[k] += at * strides_[k][inner] * size_[k];
            const int64_t n = std::min(length - at, end - begin);
            f(pointers, n);
            begin += n;
            ++row;
            at = 0;
        }
    }

    /// The same over all elements, in pieces on the pool.
    template <class F>
    void parallel_runs(const KernelCall& call, F&& f) const {
        const int64_t pieces = (count_ + kPiece - 1) / kPiece;
        if (pieces <= 1) return runs(0, count_, f);
        parallel_for(call, pieces, [&](int64_t piece) { runs(piece * kPiece, std::min(count_, (piece + 1) * kPiece), f); });
    }

private:
    Dims shape_;
    Dims strides_[N];
    char* data_[N];
    int64_t size_[N];
    int64_t count_;
};

}  // namespace clikart::cpu
