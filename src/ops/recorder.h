// How dispatch hands a call to whoever records graphs, without knowing who that is.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ops/call.h"
#include "ops/settings.h"

namespace clikart {

struct Program;

/// A step of a graph that runs other programs; see graph/control.h.
struct ControlCall {
    OpCode op;
    std::span<Tensor* const> operands;
    const std::vector<std::shared_ptr<const Program>>& regions;
};

/// The calls of one thread go here while it records a graph: instead of to a stream (Mode::Capture), or once they were
/// submitted (ThreadSettings::recording).
class Recorder {
public:
    virtual ~Recorder() = default;
    /// Notes the call and returns the stand-ins for its results; none of a call that writes over a tensor.  Inputs may be stand-ins or
    /// tensors with values.
    virtual Results record(const OpCall& call, const DTypes& dtypes, const OutputSpec& spec) = 0;
    /// The same for a step with regions, where the calls are not run.
    virtual std::vector<Ref<Tensor>> record_control(const ControlCall& call) = 0;
    /// Notes one that was run.
    virtual void note_control(const ControlCall& call, const std::vector<Ref<Tensor>>& results) = 0;
    /// Whether a view whose operand's strides allow none, so that it is a copy, is recorded as the view all the same: at a run it may be one.
    virtual bool keeps_views() const noexcept = 0;
    /// Notes a composite as one call, so that each run makes it of the parts that suit its sizes; false where it is to be noted by its
    /// parts.  `parts` makes them.
    virtual bool keep_composite(const OpCall& call, const std::function<Ref<Tensor>()>& parts, Ref<Tensor>& result) = 0;
    /// Notes a call that was submitted, with its results.
    virtual void note(const OpCall& call, const Results& results) = 0;
    /// A tensor is about to be written over: after this its value is another, for all that share its memory.
    virtual void before_write(Tensor& tensor) = 0;
    /// What happens now cannot be part of a graph: the graph is given up, or ClikaRTError is thrown where the capture is strict.
    virtual void give_up(std::string why) = 0;
    /// A tensor was made of data that the program gave now.
    virtual void born(Tensor& tensor) noexcept = 0;
    /// The value of a tensor is about to be told outside the library.
    virtual void value_read(const Tensor& tensor) = 0;
    /// Something of a tensor was asked for, by somebody whose further calls may depend on it; of `other` where it is about both.
    enum class Fact { Shape, Ones, Strides, Dense, SharesMemory };
    /// Ones: which of the sizes whose bits are set in `dims` are 1.
    virtual void fact_asked(Fact fact, const Tensor& tensor, const Tensor* other, uint32_t dims) noexcept = 0;
    /// A call is refused: who catches that goes another way for other sizes, strides or numbers.  `call.inputs` are as they were given.
    virtual void refused(const OpCall& call) noexcept = 0;
    /// The attributes with numbers in the place of codes of sizes, see is_size_code(); nothing where there are none.
    virtual std::optional<Attributes> decode(const OpInfo& info, const Attributes& given) = 0;
};

/// The calling thread's recorder, or null.
Recorder*& thread_recorder() noexcept;

/// Whether the thread's calls are recorded.
inline bool is_recorded() noexcept {
    return thread_settings.recording || thread_mode() == Mode::Capture;
}

/// While it lives, calls compute and nothing is recorded.
class Unrecorded {
public:
    Unrecorded() noexcept : mode_(thread_settings.mode), recording_(thread_settings.recording) {
        if (mode_ == Mode::Capture) thread_settings.mode = Mode::Eager;
        thread_settings.recording = false;
    }
    ~Unrecorded() {
        thread_settings.mode = mode_;
        thread_settings.recording = recording_;
    }
    Unrecorded(const Unrecorded&) = delete;
    Unrecorded& operator=(const Unrecorded&) = delete;

private:
    const Mode mode_;
    const bool recording_;
};

/// Whether a number stands for one that comes from sizes, as a recorder gave it out (graph/capture.h): far below sizes, and no limit of anything.
inline constexpr int64_t kFirstSizeCode = -0x5349'5A45'0000'0000, kSizeCodes = int64_t{1} << 30;
inline bool is_size_code(int64_t number) noexcept {
    return number >= kFirstSizeCode && number < kFirstSizeCode + kSizeCodes;
}

/// To be called with a tensor of which something is told outside the library.
inline void note_asked(Recorder::Fact fact, const Tensor& tensor, const Tensor* other = nullptr, uint32_t dims = ~uint32_t{0}) noexcept {
    if (is_recorded()) [[unlikely]]
        thread_recorder()->fact_asked(fact, tensor, other, dims);
}
inline void note_size_asked(const Tensor& tensor) noexcept {
    note_asked(Recorder::Fact::Shape, tensor);
}

/// To be called with a tensor that was just made of the program's own data.
inline Ref<Tensor> note_born(Ref<Tensor> tensor) noexcept {
    if (is_recorded()) [[unlikely]]
        thread_recorder()->born(*tensor);
    return tensor;
}

/// To be called where something is done that a replay would not do.
inline void note_unrecorded(const char* what) {
    if (thread_settings.recording || thread_settings.in_region) [[unlikely]]
        thread_recorder()->give_up(what);
}

/// To be called before a value is told outside the library.
inline void note_value_read(const Tensor& tensor) {
    if (is_recorded() && !tensor.number) [[unlikely]]
        thread_recorder()->value_read(tensor);
}

}  // namespace clikart
