#include "backends/cpu/fused.h"

#include <memory>
#include <vector>

#include "backends/cpu/elementwise.h"

namespace clikart::cpu {
namespace {

constexpr int64_t kTilesBytes = 24 * 1024;  // what a stretch reads and writes, which is to stay in the first-level cache
constexpr int32_t kMostInputs = 16;
constexpr int64_t kLongest = 2048, kShortest = 128;

ElementLoop find_loop(OpCode op, DType compute) {
    constexpr ElementLoop (*files[])(OpCode, DType) = {&loop_of_find_activation, &loop_of_find_arithmetic, &loop_of_find_comparison,
                                                       &loop_of_find_ternary,    &loop_of_find_unary_math, &loop_of_find_unary_number};
    for (const auto file : files) {
        if (const ElementLoop loop = file(op, compute); loop.run) return loop;
    }
    return {};
}

/// Operators whose loops are not what the operator is, or may fail in the middle.
bool is_special(OpCode op, DType compute, int32_t n_operands) {
    switch (op) {
        case OpCode::Glu: return true;
        case OpCode::Clamp: return n_operands != 3;
        case OpCode::FloorDivide:
        case OpCode::TruncDivide:
        case OpCode::Remainder:
        case OpCode::Fmod: return category_of(compute) != DTypeCategory::Float;
        default: return false;
    }
}

/// Where a part finds an operand: an input, or a tile.
struct Source {
    int32_t input = -1;
    int32_t tile = -1;
    ConvertFn convert = nullptr;  // to the lanes of the loop; null where it has them
};

struct Part {
    ElementLoop loop;  // without `run` for a part that only converts
    int32_t n = 0;
    Source from[kMaxOperands];
    std::unique_ptr<Attributes> attributes;
    int32_t tile = 0;             // of the result; the last part's is the output, where that can be written as it comes
    ConvertFn convert = nullptr;  // from the loop's lanes to the result's dtype; null where they are the same
    int64_t element = 0;          // bytes of the result
};

/// An input, seen through the shape of the output.
class Input {
public:
    Input(const View& view, const View& over) : dtype_(dtype_of(view)), loop_(broadcast(view, over)), move_(find_convert(dtype_, dtype_)) {}

    DType dtype() const noexcept { return dtype_; }
    bool is_one() const noexcept { return loop_.rank() == 1 && loop_.inner_stride(0) == 0; }
    void set_data(void* data) noexcept { loop_.set_data(0, data); }

    struct Place {
        const char* data;
        int64_t step;  // elements: 0 or 1
    };
    /// Elements [begin, begin + n): where they are if they lie there in a run, or are one, else brought to `room`.
    Place read(int64_t begin, int64_t n, char* room) const {
        const int64_t stride = loop_.inner_stride(0);
        Place place{room, 1};
        loop_.runs(begin, begin + n, [&](char* const* p, int64_t length) {
            if (length == n && (stride == 0 || stride == 1)) {
                place = {p[0], stride};
                return;
            }
            move_(p[0], stride, room, 1, length);
            room += length * size_of(dtype_);
        });
        return place;
    }

private:
    static StridedLoop<1> broadcast(const View& view, const View& over) {
        Dims strides;
        strides.resize(over.rank);
        for (int32_t d = 0; d < view.rank; ++d) strides[over.rank - view.rank + d] = view.shape[d] == 1 ? 0 : view.strides[d];
        return StridedLoop<1>(View{nullptr, over.shape, strides.data(), over.rank, view.dtype}, {});
    }

    const DType dtype_;
    StridedLoop<1> loop_;
    const ConvertFn move_;
};

struct Fused {
    std::vector<Part> parts;
    std::vector<Input> inputs;
    int64_t count = 0;    // of the output
    int64_t element = 0;  // bytes
    int32_t tiles = 0;    // of results
    int64_t length = 0;   // elements of a tile
    int64_t tile_bytes = 0;
};

}  // namespace

void* prepare_fused(const FusedPart* given, int32_t n_parts, const View* inputs, int32_t n_inputs, const View* output) {
    if (n_inputs > kMostInputs) return nullptr;
    auto fused = std::make_unique<Fused>();
    fused->count = numel(shape_of(*output));
    fused->element = size_of(dtype_of(*output));
    for (int32_t i = 0; i < n_inputs; ++i) fused->inputs.emplace_back(inputs[i], *output);
    const auto dtype_of_operand = [&](int32_t operand) { return static_cast<DType>(operand >= 0 ? inputs[operand].dtype : given[~operand].dtype); };
    const auto is_one = [&](int32_t operand) { return operand >= 0 && fused->inputs[static_cast<size_t>(operand)].is_one(); };
    std::vector<int32_t> last(static_cast<size_t>(n_parts), -1);  // the part that reads each part's result last
    for (int32_t i = 0; i < n_parts; ++i) {
        for (int32_t k = 0; k < given[i].n_operands; ++k) {
            if (given[i].operands[k] < 0) last[static_cast<size_t>(~given[i].operands[k])] = i;
        }
    }
    int64_t widest = 1;
    int64_t streams = 1;  // the output, and inputs of more than one element
    for (const Input& input : fused->inputs) {
        if (input.is_one()) continue;
        widest = std::max(widest, size_of(input.dtype()));
        ++streams;
    }
    std::vector<int32_t> free_tiles, tile_of(static_cast<size_t>(n_parts), -1);
    for (int32_t i = 0; i < n_parts; ++i) {
        const FusedPart& from = given[i];
        const auto op = static_cast<OpCode>(from.op);
        const auto compute = static_cast<DType>(from.compute), dtype = static_cast<DType>(from.dtype);
        Part part;
        part.n = from.n_operands;
        part.element = size_of(dtype);
        widest = std::max(widest, part.element);
        if (is_packed(dtype) || is_complex(dtype) || from.n_operands > kMaxOperands) return nullptr;
        const bool converts = op == OpCode::Cast || op == OpCode::Copy;
        if (!converts) {
            if (is_special(op, compute, from.n_operands)) return nullptr;
            part.loop = find_loop(op, compute);
            if (!part.loop.run) return nullptr;
            if (part.loop.out != dtype) part.convert = find_convert(part.loop.out, dtype);
            widest = std::max(widest, size_of(part.loop.out));
        }
        for (int32_t k = 0; k < from.n_operands; ++k) {
            const DType own = dtype_of_operand(from.operands[k]), lane = converts ? dtype : part.loop.in[k];
            if (is_packed(own) || is_complex(own)) return nullptr;
            Source& source = part.from[k];
            (from.operands[k] >= 0 ? source.input : source.tile) = from.operands[k] >= 0 ? from.operands[k] : tile_of[static_cast<size_t>(~from.operands[k])];
            if (!is_one(from.operands[k])) widest = std::max(widest, size_of(lane));
            if (own != lane || converts) source.convert = find_convert(own, lane);
        }
        // Tiles that are read for the last time here can take the result: loops may write where they read.
        const auto ends_here = [&](int32_t operand) { return operand < 0 && last[static_cast<size_t>(~operand)] == i; };
        for (int32_t k = 0; k < from.n_operands; ++k) {
            if (!ends_here(from.operands[k])) continue;
            const int32_t tile = tile_of[static_cast<size_t>(~from.operands[k])];
            if (std::find(free_tiles.begin(), free_tiles.end(), tile) == free_tiles.end()) free_tiles.push_back(tile);
        }
        // But not where elements change their size in between.
        const auto fits = [&](int32_t tile) {
            for (int32_t k = 0; k < from.n_operands; ++k) {
                if (part.from[k].tile == tile && (part.from[k].convert || part.convert || size_of(dtype_of_operand(from.operands[k])) != part.element))
                    return false;
            }
            return true;
        };
        const auto free = std::find_if(free_tiles.begin(), free_tiles.end(), fits);
        part.tile = free == free_tiles.end() ? fused->tiles++ : *free;
        if (free != free_tiles.end()) free_tiles.erase(free);
        tile_of[static_cast<size_t>(i)] = part.tile;
        part.attributes = std::make_unique<Attributes>(*from.attributes);
        fused->parts.push_back(std::move(part));
    }
    fused->length = std::clamp(kTilesBytes / ((fused->tiles + streams) * widest) / kShortest * kShortest, kShortest, kLongest);
    fused->tile_bytes = fused->length * widest;
    return fused.release();
}

namespace {

void run_stretch(const Fused& fused, std::span<const Input> inputs, char* tiles, int64_t begin, int64_t n, char* to, bool streamed) {
    const auto tile = [&](int64_t i) { return tiles + i * fused.tile_bytes; };
    Input::Place places[kMostInputs];
    for (size_t i = 0; i < inputs.size(); ++i) places[i] = inputs[i].read(begin, n, tile(fused.tiles + static_cast<int64_t>(i)));
    // While one stretch is computed the next is on its way from memory: each part asks for a share of it.
    const auto ask = [&](size_t part) {
        for (const Input& input : inputs) {
            const Input::Place place = places[&input - inputs.data()];
            if (place.step == 0) continue;
            const auto bytes = static_cast<size_t>(n * size_of(input.dtype())), share = bytes / fused.parts.size() + 1;
            const char* const next = place.data + bytes;
            for (size_t at = part * share; at < std::min(bytes, (part + 1) * share); at += kMemoryAlignment) __builtin_prefetch(next + at);
        }
    };
    char* const rooms = tile(fused.tiles + static_cast<int64_t>(inputs.size()));
    for (size_t i = 0; i < fused.parts.size(); ++i) {
        const Part& part = fused.parts[i];
        const bool last = i + 1 == fused.parts.size();
        ask(i);
        char* const result = last ? to : tile(part.tile);
        Operands operands{{}, {}, part.attributes.get(), false};
        for (int32_t k = 0; k < part.n; ++k) {
            const Source& source = part.from[k];
            const Input::Place from = source.input >= 0 ? places[source.input] : Input::Place{tile(source.tile), 1};
            operands.data[k] = from.data;
            operands.step[k] = from.step;
            if (!part.loop.run) {
                source.convert(from.data, from.step, result, 1, n);
            } else if (source.convert) {
                char* const room = rooms + k * fused.tile_bytes;
                source.convert(from.data, 1, room, 1, from.step ? n : 1);
                operands.data[k] = room;
            }
        }
        if (!part.loop.run) continue;
        char* const lanes = part.convert ? rooms + kMaxOperands * fused.tile_bytes : result;
        operands.streamed = last && streamed && !part.convert && reinterpret_cast<uintptr_t>(result) % kMemoryAlignment == 0;
        part.loop.run(operands, lanes, n);
        if (part.convert) part.convert(lanes, 1, result, 1, n);
    }
}

void run_all(const Fused& fused, void* const* places, char* output, void (*parallel_for)(int64_t, PieceFn, void*)) {
    std::vector<Input> inputs = fused.inputs;
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i].set_data(places[i]);
    const bool streamed = fused.count * fused.element >= kStreamedBytes;
    const int64_t tiles = fused.tiles + static_cast<int64_t>(inputs.size()) + kMaxOperands + 1;
    auto piece = [&](int64_t at) {
        const Scratch room(static_cast<size_t>(tiles * fused.tile_bytes));
        const int64_t end = std::min(fused.count, (at + 1) * kPiece);
        for (int64_t i = at * kPiece; i < end; i += fused.length) {
            run_stretch(fused, inputs, room.as<char>(), i, std::min(fused.length, end - i), output + i * fused.element, streamed);
        }
    };
    const int64_t pieces = ceil_div(fused.count, kPiece);
    if (pieces <= 1) {
        if (pieces == 1) piece(0);
        return;
    }
    parallel_for(pieces, [](void* context, int64_t at) { (*static_cast<decltype(piece)*>(context))(at); }, &piece);
}

}  // namespace

int32_t run_fused(const void* prepared, void* const* inputs, void* output, void (*parallel_for)(int64_t, PieceFn, void*), char* message, size_t size) {
    return caught([&] { run_all(*static_cast<const Fused*>(prepared), inputs, static_cast<char*>(output), parallel_for); }, message, size);
}

void release_fused(void* prepared) {
    delete static_cast<Fused*>(prepared);
}

}  // namespace clikart::cpu
