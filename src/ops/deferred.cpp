#include "ops/deferred.h"

#include <algorithm>

namespace clikart {
namespace {

/// Guarded by the submission lock, once it is linked.
class Deferred final : public Chained {
public:
    Deferred(std::unique_ptr<Work> work, const Ref<Stream>& stream, std::span<const Ref<Tensor>> outputs, int self)
        : Chained(ObjectKind::Deferred), work(std::move(work)), stream(stream), self(self), n_written(outputs.size()), written(new Written[outputs.size()]) {
        for (size_t i = 0; i < n_written; ++i) {
            const Tensor& output = *outputs[i];
            written[i] = {{&output.storage()}, output.dtype(), output.shape(), output.strides(), output.offset()};
        }
    }

    /// One tensor that is written.
    struct Written : DeferredWrite {
        DType dtype;
        Dims shape, strides;
        int64_t offset;
    };

    bool submitted() const noexcept { return !work; }
    /// The tensors that are written; none when their storages are gone or end at this moment.  Where one of several is gone,
    /// another takes its place.
    std::vector<Ref<Tensor>> outputs() {
        std::vector<Ref<Tensor>> tensors;
        bool any = false;
        for (size_t i = 0; i < n_written; ++i) {
            const Written& w = written[i];
            if (w.storage && w.storage->retain_if_alive()) {
                tensors.push_back(make_ref<Tensor>(w.dtype, w.shape, w.strides, w.offset, Ref<Storage>::adopt(w.storage)));
                any = true;
            } else {
                tensors.push_back(make_tensor(w.dtype, w.shape, stream->device()));
            }
            tensors.back()->stream = stream;
        }
        if (!any) tensors.clear();
        return tensors;
    }

    std::unique_ptr<Work> work;  // null once it was submitted
    const Ref<Stream> stream;
    const int self;
    const size_t n_written;
    const std::unique_ptr<Written[]> written;  // whose storages own this, unless a later call does
    std::vector<Ref<Deferred>> before;
    bool linked = false;
    static constexpr size_t kNowhere = SIZE_MAX;
    std::vector<size_t> positions;  // of each operand on the list of those that read its storage

    /// Takes this off the list of what it writes.
    void unlink_written() noexcept {
        for (size_t i = 0; i < n_written; ++i) {
            if (!written[i].storage) continue;
            auto& writers = written[i].storage->deferred_writers;
            writers.back()->position = written[i].position;
            writers[written[i].position] = writers.back();
            writers.pop_back();
        }
    }
    /// Takes this off the lists of what its work reads.
    void unlink_reads(const Work& its) noexcept {
        for (size_t i = 0; i < its.inputs.size(); ++i) {
            if (static_cast<int>(i) == self) continue;
            --its.inputs[i]->storage().deferred_references;
            auto& reads = its.inputs[i]->storage().history().deferred->reads;
            const auto is_this = [&](size_t k) { return reads[k].call == this && reads[k].operand == i; };
            size_t at = positions[i];
            if (at == kNowhere) continue;
            if (at >= reads.size() || !is_this(at)) {  // the list was joined with another
                for (at = 0; at < reads.size() && !is_this(at);) ++at;
            }
            if (at == reads.size()) continue;
            reads.remove_unordered(at);
            if (at < reads.size()) static_cast<Deferred*>(reads[at].call)->positions[reads[at].operand] = at;
        }
    }

private:
    ~Deferred() override {
        if (submitted() || !linked) return;
        std::lock_guard lock(submission());
        unlink_reads(*work);
        unlink_written();
    }
};

/// Adds what has to be submitted before; a call that ends at this moment needs no order.
void need(std::vector<Ref<Deferred>>& before, Object* object) {
    auto* const deferred = static_cast<Deferred*>(object);
    if (deferred->retain_if_alive()) before.push_back(Ref<Deferred>::adopt(deferred));
}

/// Puts the call on its stream.
void hand_over(Deferred& deferred, const std::vector<Ref<Tensor>>& outputs) {
    Work& work = *deferred.work;  // stays valid until the lock is given up
    const auto set_self = [&](Ref<Tensor> tensor) {
        if (deferred.self >= 0) work.inputs[static_cast<size_t>(deferred.self)] = std::move(tensor);
    };
    set_self(outputs[0]);
    for (const auto& output : outputs) work.outputs.push_back(output);
    try {
        deferred.stream->enqueue_locked(deferred.work);
    } catch (...) {
        work.outputs.clear();
        set_self(nullptr);
        throw;
    }
    deferred.unlink_reads(work);
    deferred.unlink_written();
}

/// Moves a call from a list to where it may end.
void take(SmallVector<Ref<Object>, 1>& list, const Object* deferred, std::vector<Ref<Object>>& garbage) {
    for (size_t i = 0; i < list.size();) {
        if (list[i].get() == deferred) {
            garbage.push_back(list[i]);
            list.remove_unordered(i);
        } else {
            ++i;
        }
    }
}

constexpr size_t kBatch = 128;  // submitted under one hold of the lock

/// Submits `wanted` and all that comes before them.
void submit(std::vector<Ref<Deferred>> wanted) {
    if (wanted.empty()) return;
    Stream::ready_to_enqueue();
    // Depth first with a stack of its own; what another thread submitted meanwhile is passed over.
    std::vector<Ref<Deferred>> stack = std::move(wanted);
    while (!stack.empty()) {
        std::vector<Ref<Object>> garbage;  // released after the lock, as all that follows here
        std::vector<std::unique_ptr<Work>> dropped;
        Ref<Stream> last;
        {
            std::lock_guard lock(submission());
            for (size_t submitted = 0; !stack.empty() && submitted < kBatch;) {
                const Ref<Deferred> next = stack.back();
                garbage.push_back(next);
                if (next->submitted()) {
                    stack.pop_back();
                    continue;
                }
                bool ready = true;
                for (const auto& earlier : next->before) {
                    if (earlier->submitted()) continue;
                    stack.push_back(earlier);
                    ready = false;
                }
                if (!ready) continue;
                const std::vector<Ref<Tensor>> outputs = next->outputs();
                garbage.reserve(garbage.size() + next->before.size() + 2 * outputs.size() + 4);
                dropped.reserve(dropped.size() + 1);
                for (const auto& output : outputs) garbage.push_back(output);
                if (!outputs.empty()) {
                    hand_over(*next, outputs);
                    for (const auto& output : outputs) {
                        if (const auto& use = output->storage().history().deferred) take(use->writes, next.get(), garbage);
                    }
                } else {
                    next->unlink_reads(*next->work);
                    next->unlink_written();
                    dropped.push_back(std::move(next->work));
                }
                for (auto& earlier : next->before) garbage.push_back(std::move(earlier));
                next->before.clear();
                last = next->stream;
                stack.pop_back();
                ++submitted;
            }
        }
        if (last) last->pace();
    }
}

}  // namespace

void defer(std::unique_ptr<Work> work, const Ref<Stream>& stream, std::span<const Ref<Tensor>> outputs, int self) {
    for (auto& input : work->inputs) {
        if (input) input = make_view(*input, input->dtype(), input->shape(), input->strides(), input->offset());  // see Storage
    }
    auto deferred = make_ref<Deferred>(std::move(work), stream, outputs, self);
    const auto& inputs = deferred->work->inputs;
    std::vector<Ref<Object>> garbage;  // released after the lock
    std::lock_guard lock(submission());
    // First all that may throw ...
    size_t before = 0, forgotten = 0;
    for (const auto& output : outputs) {
        DeferredUse& use = output->storage().history().deferred_use();
        before += use.writes.size() + use.reads.size();
        forgotten += use.writes.size();
        auto& writers = output->storage().deferred_writers;
        writers.reserve(2 * (writers.size() + 1));
    }
    for (const auto& input : inputs) {
        if (!input) continue;
        DeferredUse& read = input->storage().history().deferred_use();
        before += read.writes.size();
        read.reads.reserve(read.reads.size() + inputs.size());
    }
    deferred->before.reserve(before);
    deferred->positions.resize(inputs.size());
    garbage.reserve(forgotten);
    // ... then what must not stop half-way.
    for (const auto& input : inputs) {
        if (!input) continue;
        for (const auto& write : input->storage().history().deferred->writes) need(deferred->before, write.get());
    }
    for (const auto& output : outputs) {
        DeferredUse& use = *output->storage().history().deferred;
        for (const auto& write : use.writes) need(deferred->before, write.get());
        for (const auto& read : use.reads) {
            need(deferred->before, read.call);
            static_cast<Deferred*>(read.call)->positions[read.operand] = Deferred::kNowhere;
        }
        use.reads.clear();
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (!inputs[i]) continue;
        Storage& storage = inputs[i]->storage();
        auto& reads = storage.history().deferred->reads;
        deferred->positions[i] = reads.size();
        reads.push_back({deferred.get(), i});
        storage.note_deferred();
        ++storage.deferred_references;
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
        Storage& written = outputs[i]->storage();
        DeferredUse& use = *written.history().deferred;
        for (auto& write : use.writes) garbage.push_back(std::move(write));
        use.writes.clear();
        use.writes.push_back(deferred);  // there is always room for one
        written.note_deferred();
        deferred->written[i].position = written.deferred_writers.size();
        written.deferred_writers.push_back(&deferred->written[i]);
    }
    deferred->linked = true;
}

bool is_deferred(Storage& storage) {
    if (!storage.may_have_deferred()) return false;
    std::lock_guard lock(submission());
    const auto& use = storage.history().deferred;
    return use && !use->writes.empty();
}

void submit_deferred_of(Storage& storage, bool for_writing) {
    std::vector<Ref<Deferred>> wanted;
    {
        std::lock_guard lock(submission());
        const auto& use = storage.history().deferred;
        if (!use) return;
        for (const auto& write : use->writes) need(wanted, write.get());
        if (for_writing) {
            for (const auto& read : use->reads) need(wanted, read.call);
        }
    }
    submit(std::move(wanted));
}

}  // namespace clikart
