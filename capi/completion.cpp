#include "boundary.h"
#include "exec/callbacks.h"

using namespace clikart;

namespace {

class Completion final : public Callback {
public:
    Completion(clikart_callback callback, void* user_data, void (*destroy)(void*)) : callback_(callback), user_data_(user_data), destroy_(destroy) {}
    ~Completion() override {
        const ErrorPutAside aside;
        if (destroy_) destroy_(user_data_);
    }
    void watch(Ref<Tensor> tensor) noexcept { tensor_ = std::move(tensor); }

    void call() noexcept override {
        const ErrorPutAside aside;
        Ref<Error> error;
        try {
            Stream::State state;
            Stream::look_at(tensor_->storage(), state);
            error = std::move(state.error);
        } catch (...) {
            error = current_error();
        }
        callback_(reinterpret_cast<const clikart_tensor*>(tensor_.get()), reinterpret_cast<const clikart_error*>(error.get()), user_data_);
    }

private:
    const clikart_callback callback_;
    void* const user_data_;
    void (*const destroy_)(void*);
    Ref<Tensor> tensor_;
};

}  // namespace

int clikart_tensor_on_complete(const clikart_tensor* tensor, clikart_callback callback, void* user_data, void (*destroy)(void* user_data)) {
    return guarded([&] {
        std::unique_ptr<Callback> completion;
        try {
            completion = std::make_unique<Completion>(callback, user_data, destroy);
        } catch (...) {
            if (destroy) destroy(user_data);
            throw;
        }
        if (!callback) fail(ErrorKind::Type, "on_complete: the callback is NULL");
        Tensor& t = checked_tensor(tensor, "on_complete");
        start(t, "on_complete");
        static_cast<Completion&>(*completion).watch(Ref<Tensor>::share(&t));
        Stream::call_when_settled(t.storage(), completion);
        return 0;
    });
}
