#include "backends/cpu/fused.h"

#include <memory>
#include <vector>

#include "backends/cpu/elementwise.h"
#include "backends/cpu/row_part.h"
#include "base/small_vector.h"

namespace clikart::cpu {
namespace {

constexpr int64_t kTilesBytes = 24 * 1024;  // what a stretch reads and writes, which is to stay in the first-level cache
constexpr int32_t kMostInputs = 16;
constexpr int64_t kLongest = 2048, kShortest = 128;
constexpr int64_t kRowsBytes = 512 * 1024;  // of whole rows, which are to stay in the second-level cache

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
    bool per_row = false;         // the tile holds one element for each row
    ConvertFn convert = nullptr;  // to the lanes of the part; null where it has them
};

struct Part {
    ElementLoop loop;                    // of an elementwise one, without `run` where it only converts
    std::unique_ptr<const RowPart> row;  // or what it does with rows
    size_t state = 0;                    // which one of the run's is its
    int32_t n = 0;                       // operands that are read as they come
    Source from[kMaxOperands];
    std::unique_ptr<Attributes> attributes;  // of an elementwise one
    bool per_row = false;                    // makes one element for each row
    bool spreads = false;                    // reads such elements, and makes a whole row of each
    int32_t tile = 0;                        // of the result; the last part's is the output, where that can be written as it comes
    ConvertFn convert = nullptr;             // from the part's lanes to the result's dtype; null where they are the same
    int64_t element = 0;                     // bytes of the result
};

/// An input, seen through a shape that it broadcasts to.
class Input {
public:
    Input(const View& view, const View& over) : dtype_(dtype_of(view)), loop_(broadcast(view, over)), move_(find_convert(dtype_, dtype_)) {}

    DType dtype() const noexcept { return dtype_; }
    bool is_one() const noexcept { return loop_.rank() == 1 && loop_.inner_stride(0) == 0; }
    /// Whether neighbours may be one element, which then stands for many.
    bool repeats() const noexcept { return loop_.inner_stride(0) == 0; }
    /// Whether elements are read where they are.
    bool is_direct() const noexcept { return loop_.rank() == 1 && (loop_.inner_stride(0) == 0 || loop_.inner_stride(0) == 1); }

    struct Place {
        const char* data;
        int64_t step;  // elements: 0 or 1
    };
    /// Elements [begin, begin + n): where they are if they lie there in a run, or are one, else brought to `room`.
    Place read(void* data, int64_t begin, int64_t n, char* room) const {
        const int64_t stride = loop_.inner_stride(0);
        Place place{room, 1};
        char* const at[1] = {static_cast<char*>(data)};
        loop_.runs(at, begin, begin + n, [&](char* const* p, int64_t length) {
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

/// An input as parts read it: through the whole shape, and through that of the rows.
struct Reading {
    int32_t input;
    bool per_row;
    Input view;
    int32_t tile = 0;  // where what cannot be read in place is brought to
};

struct Fused {
    std::vector<Part> parts;
    std::vector<Reading> readings;
    struct Weights {
        std::vector<int32_t> inputs;
        std::vector<View> views;
    };
    std::vector<Weights> weights;  // of each part that has a state
    int64_t count = 0;             // of the whole shape
    int64_t row = 1;               // elements
    int32_t tiles = 0;             // of results and readings
    int32_t lanes = 0;             // the first of those that hold operands as lanes, and a result that is to be converted
    int64_t length = 0;            // elements of a stretch: whole rows
    int64_t tile_bytes = 0;
    bool streamed = false;  // the output goes past the caches
};

using States = std::vector<std::shared_ptr<const void>>;

/// The shape whose last dimensions, `row` elements together, are ones.
Dims rows_of(const View& over, int64_t row) {
    Dims shape = shape_of(over);
    for (int d = shape.rank(); row > 1; --d) row /= std::exchange(shape[d - 1], 1);
    return shape;
}

/// Puts parts together, one after another.
class Preparation {
public:
    Preparation(const FusedPart* given, int32_t n_parts, const View* inputs, int32_t n_inputs, const View& over, int64_t row)
        : given_(given, static_cast<size_t>(n_parts)), inputs_(inputs, static_cast<size_t>(n_inputs)), over_(over), rows_shape_(rows_of(over, row)) {
        fused_->count = numel(shape_of(over));
        fused_->row = row;
        rows_ = {nullptr, rows_shape_.data(), rows_shape_.data(), over.rank, over.dtype};
        last_.assign(given_.size(), -1);
        tile_of_.assign(given_.size(), -1);
        for (size_t i = 0; i < given_.size(); ++i) {
            for (int32_t k = 0; k < given[i].n_operands; ++k) {
                if (given[i].operands[k] < 0) last_[static_cast<size_t>(~given[i].operands[k])] = static_cast<int32_t>(i);
            }
        }
    }

    std::unique_ptr<Fused> run() {
        if (inputs_.size() > kMostInputs) return nullptr;
        for (size_t i = 0; i < given_.size(); ++i) {
            if (!add(i)) return nullptr;
        }
        int64_t streams = 1;  // the output, and inputs of more than one element
        for (const Reading& reading : fused_->readings) {
            if (reading.per_row || reading.view.is_one()) continue;
            widest_ = std::max(widest_, size_of(reading.view.dtype()));
            ++streams;
        }
        int64_t& length = fused_->length;
        const int32_t results = fused_->tiles;
        for (Reading& reading : fused_->readings) reading.tile = reading.view.is_direct() ? 0 : fused_->tiles++;
        fused_->lanes = fused_->tiles;
        const auto converts = [](const Part& part) {
            return part.convert || std::any_of(part.from, part.from + part.n, [](const Source& s) { return s.convert; });
        };
        if (std::any_of(fused_->parts.begin(), fused_->parts.end(), converts)) fused_->tiles += kMaxOperands + 1;
        length = std::clamp(kTilesBytes / ((results + streams) * widest_) / kShortest * kShortest, kShortest, kLongest);
        length = std::max<int64_t>(1, length / fused_->row) * fused_->row;
        fused_->tile_bytes =
            ceil_div(std::min(length, fused_->count) * widest_, static_cast<int64_t>(kMemoryAlignment)) * static_cast<int64_t>(kMemoryAlignment);
        if (fused_->row > 1 && fused_->tile_bytes * (results + streams) > kRowsBytes) return nullptr;
        fused_->streamed = !given_.back().per_row && fused_->count * size_of(static_cast<DType>(given_.back().dtype)) >= kStreamedBytes;
        return std::move(fused_);
    }

private:
    DType dtype_of_operand(int32_t operand) const {
        return static_cast<DType>(operand >= 0 ? inputs_[static_cast<size_t>(operand)].dtype : given_[static_cast<size_t>(~operand)].dtype);
    }

    /// Which one of the readings this is.
    int32_t reading_of(int32_t input, bool per_row) {
        auto& readings = fused_->readings;
        const auto known = std::find_if(readings.begin(), readings.end(), [&](const Reading& r) { return r.input == input && r.per_row == per_row; });
        if (known != readings.end()) return static_cast<int32_t>(known - readings.begin());
        readings.push_back({input, per_row, Input(inputs_[static_cast<size_t>(input)], per_row ? rows_ : over_)});
        return static_cast<int32_t>(readings.size() - 1);
    }

    /// False where it cannot be a part.
    bool add(size_t i) {
        const FusedPart& from = given_[i];
        const auto op = static_cast<OpCode>(from.op);
        const auto compute = static_cast<DType>(from.compute), dtype = static_cast<DType>(from.dtype);
        Part part;
        part.per_row = from.per_row != 0;
        part.element = size_of(dtype);
        widest_ = std::max(widest_, part.element);
        if (is_packed(dtype) || is_complex(dtype)) return false;
        const bool converts = op == OpCode::Cast || op == OpCode::Copy;
        DType made = dtype;
        if (!converts) {
            if (from.n_operands <= kMaxOperands && !is_special(op, compute, from.n_operands)) part.loop = find_loop(op, compute);
            made = part.loop.out;
            if (!part.loop.run) {
                if (!add_row(from, part)) return false;
                made = part.row->out;
            }
            if (made != dtype) part.convert = find_convert(made, dtype);
            widest_ = std::max(widest_, size_of(made));
        }
        part.n = part.row ? 1 : from.n_operands;
        for (int32_t k = 0; k < part.n; ++k) {
            const int32_t operand = from.operands[k];
            const DType own = dtype_of_operand(operand), lane = converts ? dtype : part.row ? part.row->in : part.loop.in[k];
            if (is_packed(own) || is_complex(own)) return false;
            Source& source = part.from[k];
            bool one = false;
            if (operand >= 0) {
                source.input = reading_of(operand, part.per_row && !part.row);
                const Input& input = fused_->readings[static_cast<size_t>(source.input)].view;
                one = input.is_one();
                if (part.row && input.repeats()) return false;  // rows are read as they lie
                // Of several NaN the kernel finds the one that comes first in memory.
                if ((op == OpCode::Amax || op == OpCode::Amin) && !input.is_direct()) return false;
            } else {
                source.tile = tile_of_[static_cast<size_t>(~operand)];
                source.per_row = given_[static_cast<size_t>(~operand)].per_row != 0;
                part.spreads |= source.per_row && !part.per_row;
                if (source.per_row && part.row) return false;
                if (!source.per_row && part.per_row && !part.row) return false;
            }
            if (own != lane || converts) source.convert = find_convert(own, lane);
            if (!one || source.convert) widest_ = std::max(widest_, size_of(lane));
        }
        if (part.spreads && converts) return false;
        part.tile = find_tile(i, part);
        tile_of_[i] = part.tile;
        if (!part.row) part.attributes = std::make_unique<Attributes>(*from.attributes);
        fused_->parts.push_back(std::move(part));
        return true;
    }

    bool add_row(const FusedPart& from, Part& part) {
        View x = over_;  // of which only the shape counts: its first operand comes contiguous
        x.dtype = static_cast<int32_t>(dtype_of_operand(from.operands[0]));
        part.row = find_row_part(from, x, fused_->row);
        if (!part.row) return false;
        Fused::Weights weights;
        for (int32_t k = 1; k < from.n_operands; ++k) {
            if (from.operands[k] < 0) return false;
            weights.inputs.push_back(from.operands[k]);
            weights.views.push_back(inputs_[static_cast<size_t>(from.operands[k])]);
        }
        part.state = fused_->weights.size();
        fused_->weights.push_back(std::move(weights));
        return true;
    }

    /// Tiles that are read for the last time by a part can take its result: loops may write where they read.  But not where elements
    /// change their size in between, or their number.
    int32_t find_tile(size_t i, const Part& part) {
        const FusedPart& from = given_[i];
        for (int32_t k = 0; k < from.n_operands; ++k) {
            if (from.operands[k] >= 0 || last_[static_cast<size_t>(~from.operands[k])] != static_cast<int32_t>(i)) continue;
            const int32_t tile = tile_of_[static_cast<size_t>(~from.operands[k])];
            if (std::find(free_.begin(), free_.end(), tile) == free_.end()) free_.push_back(tile);
        }
        const auto fits = [&](int32_t tile) {
            for (int32_t k = 0; k < part.n; ++k) {
                const Source& source = part.from[k];
                if (source.tile != tile) continue;
                if (source.convert || part.convert || source.per_row != part.per_row || size_of(dtype_of_operand(from.operands[k])) != part.element)
                    return false;
            }
            return true;
        };
        const auto free = std::find_if(free_.begin(), free_.end(), fits);
        if (free == free_.end()) return fused_->tiles++;
        const int32_t tile = *free;
        free_.erase(free);
        return tile;
    }

    const std::span<const FusedPart> given_;
    const std::span<const View> inputs_;
    const View over_;
    const Dims rows_shape_;
    View rows_;
    std::unique_ptr<Fused> fused_ = std::make_unique<Fused>();
    std::vector<int32_t> last_;     // the part that reads each part's result last
    std::vector<int32_t> tile_of_;  // of each part's result
    std::vector<int32_t> free_;
    int64_t widest_ = 1;
};

/// What computes one stretch after another, in memory of its own.
class Tiles {
public:
    Tiles(const Fused& fused, const States* states, void* const* inputs, char* output)
        : fused_(fused), states_(states), inputs_(inputs), output_(output), room_(static_cast<size_t>(fused.tiles * fused.tile_bytes)) {}

    /// `ahead` elements behind these are the next to be computed here.
    void run(int64_t begin, int64_t n, int64_t ahead) {
        begin_ = begin, n_ = n, rows_ = n / fused_.row;
        for (size_t i = 0; i < fused_.readings.size(); ++i) {
            const Reading& reading = fused_.readings[i];
            places_[i] =
                reading.view.read(inputs_[reading.input], reading.per_row ? begin / fused_.row : begin, reading.per_row ? rows_ : n, tile(reading.tile));
        }
        for (size_t i = 0; i < fused_.parts.size(); ++i) {
            if (ahead > 0) ask(i, ahead);
            run(fused_.parts[i], i + 1 == fused_.parts.size());
        }
    }

private:
    char* tile(int64_t i) const noexcept { return room_.as<char>() + i * fused_.tile_bytes; }

    /// While one stretch is computed the next is on its way from memory: each part asks for a share of it.
    void ask(size_t part, int64_t ahead) const {
        for (size_t i = 0; i < fused_.readings.size(); ++i) {
            if (places_[i].step == 0) continue;
            const Reading& reading = fused_.readings[i];
            const int64_t element = size_of(reading.view.dtype());
            const auto bytes = static_cast<size_t>((reading.per_row ? ahead / fused_.row : ahead) * element), share = bytes / fused_.parts.size() + 1;
            const char* const next = places_[i].data + (reading.per_row ? rows_ : n_) * element;
            for (size_t at = part * share; at < std::min(bytes, (part + 1) * share); at += kMemoryAlignment) __builtin_prefetch(next + at);
        }
    }

    void run(const Part& part, bool last) {
        char* const result = last ? output_ + (part.per_row ? begin_ / fused_.row : begin_) * part.element : tile(part.tile);
        const int64_t n = part.per_row ? rows_ : n_;
        const char* data[kMaxOperands];
        int64_t step[kMaxOperands];
        for (int32_t k = 0; k < part.n; ++k) {
            const Source& source = part.from[k];
            const Input::Place from = source.input >= 0 ? places_[source.input] : Input::Place{tile(source.tile), 1};
            data[k] = from.data, step[k] = from.step;
            const int64_t elements = source.per_row || (part.per_row && !part.row) ? rows_ : n_;
            if (!part.loop.run && !part.row) {
                source.convert(from.data, from.step, result, 1, n);
            } else if (source.convert) {
                char* const room = tile(fused_.lanes + k);
                source.convert(from.data, 1, room, 1, from.step ? elements : 1);
                data[k] = room;
            }
        }
        if (!part.loop.run && !part.row) return;
        char* const lanes = part.convert ? tile(fused_.lanes + kMaxOperands) : result;
        if (part.row) {
            part.row->run(states_ ? (*states_)[part.state].get() : nullptr, data[0], begin_, n_, lanes);
        } else if (part.spreads) {
            spread(part, data, step, lanes);
        } else {
            Operands operands{{}, {}, part.attributes.get(), false};
            for (int32_t k = 0; k < part.n; ++k) operands.data[k] = data[k], operands.step[k] = step[k];
            operands.streamed = last && fused_.streamed && !part.convert && reinterpret_cast<uintptr_t>(result) % kMemoryAlignment == 0;
            part.loop.run(operands, lanes, n);
        }
        if (part.convert) part.convert(lanes, 1, result, 1, n);
    }

    /// Row by row, with what there is one of for each row standing still.
    void spread(const Part& part, const char* const* data, const int64_t* step, char* lanes) const {
        Operands operands{{}, {}, part.attributes.get(), false};
        const int64_t row = fused_.row;
        for (int64_t r = 0; r < rows_; ++r) {
            for (int32_t k = 0; k < part.n; ++k) {
                const int64_t element = size_of(part.loop.in[k]);
                operands.step[k] = part.from[k].per_row ? 0 : step[k];
                operands.data[k] = data[k] + (part.from[k].per_row ? r : step[k] * r * row) * element;
            }
            part.loop.run(operands, lanes + r * row * size_of(part.loop.out), row);
        }
    }

    const Fused& fused_;
    const States* const states_;
    void* const* const inputs_;
    char* const output_;
    const Scratch room_;
    int64_t begin_ = 0, n_ = 0, rows_ = 0;
    Input::Place places_[2 * kMostInputs];  // of the readings
};

}  // namespace

void* prepare_fused(const FusedPart* parts, int32_t n_parts, const View* inputs, int32_t n_inputs, const View* over, int64_t row, int64_t* piece) {
    std::unique_ptr<Fused> fused = Preparation(parts, n_parts, inputs, n_inputs, *over, row).run();
    if (!fused) return nullptr;
    *piece = std::max<int64_t>(1, kPiece / fused->row) * fused->row;
    return fused.release();
}

int32_t start_fused(const void* prepared, void* const* inputs, void** state, char* message, size_t size) {
    *state = nullptr;
    const auto& fused = *static_cast<const Fused*>(prepared);
    if (fused.weights.empty()) return 0;
    return caught(
        [&] {
            auto states = std::make_unique<States>();
            for (const Part& part : fused.parts) {  // in the order of their states
                if (!part.row) continue;
                const Fused::Weights& weights = fused.weights[part.state];
                SmallVector<View, 4> views;
                for (size_t k = 0; k < weights.views.size(); ++k) {
                    View view = weights.views[k];
                    view.data = inputs[weights.inputs[k]];
                    views.push_back(view);
                }
                states->push_back(part.row->start({views.data(), views.size()}));
            }
            *state = states.release();
        },
        message, size);
}

int32_t run_fused(const void* prepared, const void* state, void* const* inputs, void* output, int64_t begin, int64_t end, char* message, size_t size) {
    return caught(
        [&] {
            const auto& fused = *static_cast<const Fused*>(prepared);
            Tiles tiles(fused, static_cast<const States*>(state), inputs, static_cast<char*>(output));
            for (int64_t i = begin; i < end; i += fused.length) {
                const int64_t next = std::min(end, i + fused.length);
                tiles.run(i, next - i, std::min(fused.length, end - next));
            }
        },
        message, size);
}

void finish_fused(void* state) {
    delete static_cast<States*>(state);
}

void release_fused(void* prepared) {
    delete static_cast<Fused*>(prepared);
}

}  // namespace clikart::cpu
