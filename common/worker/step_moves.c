#include "common/worker/step_moves.h"

#include "common/base/clock.h"
#include "common/base/failpoint.h"

static enum status run_list(struct engine *engine, enum engine_move kind,
                            const struct block_move *moves, uint32_t count, struct error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        if (FAILPOINT_FAILS("step.move_fails"))
            return error_set(err, STATUS_INTERNAL, "the failpoint step.move_fails");
        TRY(engine_move_block(engine, kind, moves[i].from, moves[i].to, err));
    }
    return STATUS_OK;
}

enum status step_moves_run(struct engine *engine, const struct step_plan *plan, uint64_t *swap_us,
                           struct error *err)
{
    *swap_us = 0;
    if (plan->swap_out_count + plan->swap_in_count == 0)
        return STATUS_OK;
    uint64_t begun_us = clock_now_us();
    TRY(run_list(engine, ENGINE_SWAP_OUT, plan->swap_outs, plan->swap_out_count, err));
    TRY(run_list(engine, ENGINE_SWAP_IN, plan->swap_ins, plan->swap_in_count, err));
    TRY(engine_moves_done(engine, err));
    *swap_us = clock_now_us() - begun_us;
    return STATUS_OK;
}
