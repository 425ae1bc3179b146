#include "exec/signals.h"

#include <pthread.h>

#include <initializer_list>

namespace clikart {
namespace {

thread_local bool held_for_good = false;

const sigset_t& held_back() noexcept {
    static const sigset_t set = [] {
        sigset_t all;
        sigfillset(&all);
        for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&all, own);
        return all;
    }();
    return set;
}

}  // namespace

SignalsHeld::SignalsHeld() noexcept {
    if (!held_for_good) restores_ = pthread_sigmask(SIG_BLOCK, &held_back(), &before_) == 0;
}

SignalsHeld::~SignalsHeld() {
    if (restores_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void signals_stay_held() noexcept {
    held_for_good = true;
}

}  // namespace clikart
