#include "graph/optimize.h"

#include "graph/passes/common.h"
#include "graph/passes/dead.h"
#include "graph/passes/epilogues.h"
#include "graph/passes/folding.h"
#include "graph/passes/fusion.h"
#include "graph/passes/identities.h"
#include "graph/passes/layout.h"

namespace clikart {

void optimize(Program& program) {
    for (const auto pass : {&passes::fold_constants, &passes::remove_identities, &passes::sink_permutations, &passes::merge_common, &passes::remove_dead,
                            &passes::fold_epilogues, &passes::fuse_operators}) {
        pass(program);
        program.verify();
    }
    program.find_ends();
    for (Step& step : program.steps) {
        for (auto& region : step.regions) {
            auto own = std::make_shared<Program>(*region);
            optimize(*own);
            region = std::move(own);
        }
    }
}

}  // namespace clikart
