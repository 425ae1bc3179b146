#include "backends/cpu/row_part.h"

namespace clikart::cpu {

std::unique_ptr<const RowPart> find_row_part(const FusedPart& part, const View& x, int64_t row) {
    for (const auto find : {&find_fold_part, &find_softmax_part, &find_norm_part, &find_channel_part}) {
        if (std::unique_ptr<const RowPart> found = find(part, x, row)) return found;
    }
    return nullptr;
}

}  // namespace clikart::cpu
