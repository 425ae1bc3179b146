#include "exec/host_read.h"

#include <thread>

#include "exec/lane.h"
#include "exec/schedule.h"

namespace clikart {

HostRead::HostRead(std::span<Storage* const> storages) {
    watch_process();
    const Ref<Stream> host = host_timeline();
    for (;;) {
        SmallVector<Ticket, 2> open;
        {
            std::lock_guard lock(submission());
            for (Storage* storage : storages) {
                for (const Ticket& write : storage->history().writes) {
                    if (!write.settled()) open.push_back(write);
                }
            }
            Schedule& all = Schedule::instance();
            if (open.empty() && !all.forking) {
                for (Storage* storage : storages) {
                    if (const Ref<Error>& error = storage->history().error) {
                        error->report();
                        throw Failure(error);
                    }
                    storage->history().reserve_read();
                }
                host->running_ = true;
                host->mark_busy();
                ++all.unfinished;
                ++all.executing;
                ticket_ = ++host->last_ticket_;
                for (Storage* storage : storages) storage->history().record_read(host, ticket_);
                stream_ = host;
                return;
            }
        }
        for (const Ticket& write : open) Stream::wait(write);
        if (open.empty()) std::this_thread::yield();  // a fork is under way
    }
}

HostRead::~HostRead() {
    stream_->finish_on_caller(ticket_, nullptr);
}

}  // namespace clikart
