#include "common/base/assert.h"
#include "common/engine/sched/admission.h"
#include "common/engine/sched/preemption.h"
#include "common/engine/sched/reuse.h"

#include <stdlib.h>
#include <string.h>

static struct sequence_spec spec_of(const struct sequence *parent, struct sequence_key key,
                                    const struct sampling *sampling, uint64_t now_us)
{
    return (struct sequence_spec){.key = key,
                                  .plan = PLAN_LOCAL,
                                  .arrived_us = now_us,
                                  .token_count = parent->prompt_count - parent->emitted_count,
                                  .sampling = *sampling,
                                  .root = parent->root};
}

/* Whole blocks of all prompt rows but the last are shared, the rest are its own. */
static void take_blocks(struct scheduler *s, const struct sequence *parent, struct sequence *child,
                        uint32_t need)
{
    uint32_t rows = child->prompt_count - 1, per = s->config.block_tokens, shared = rows / per;
    kv_blocks_share(s->blocks, parent->blocks, shared, KV_HOLD_USED);
    memcpy(child->blocks, parent->blocks, shared * sizeof *child->blocks);
    child->block_count = shared;
    preemption_take(s, child, need - shared);
    if (rows % per == 0)
        return;
    kv_blocks_share(s->blocks, &parent->blocks[shared], 1, KV_HOLD_USED); /* until it is copied */
    s->copies.list[s->copies.count++] =
        (struct block_move){parent->blocks[shared], child->blocks[shared], child};
}

static enum status copy_owned(const struct sequence *parent, struct sequence_spec *spec,
                              struct error *err)
{
    const struct logit_bias *from = spec->sampling.biases;
    size_t bias_bytes = spec->sampling.bias_count * sizeof *from;
    struct logit_bias *biases = bias_bytes ? malloc(bias_bytes) : NULL;
    spec->sampling.biases = biases;
    spec->tokens = malloc(spec->token_count * sizeof *spec->tokens);
    if (!spec->tokens || (bias_bytes && !biases))
        return error_set(err, STATUS_LIMIT, "out of memory for %u tokens", spec->token_count);
    memcpy(spec->tokens, parent->tokens, spec->token_count * sizeof *spec->tokens);
    if (bias_bytes)
        memcpy(biases, from, bias_bytes);
    return STATUS_OK;
}

enum status scheduler_fork(struct scheduler *s, const struct sequence *parent,
                           struct sequence_key key, const struct sampling *sampling,
                           struct sequence **out, struct error *err)
{
    struct sequence_spec spec = spec_of(parent, key, sampling, s->now_us);
    ASSERT(parent->plan != PLAN_HAND_OFF && spec.token_count > 0);
    TRY(admission_check(s, &spec, err));
    bool is_here = parent->block_count > 0 && parent->hold == KV_HOLD_USED && !parent->arriving;
    if (!is_here || parent->computed < spec.token_count)
        return error_set(err, STATUS_LIMIT,
                         "the sequence to fork has %u of %u prompt rows here now",
                         is_here ? parent->computed : 0, spec.token_count);
    struct sequence *child;
    enum status status = copy_owned(parent, &spec, err);
    if (status == STATUS_OK)
        status = scheduler_slot_take(s, &spec, &child, err);
    if (status != STATUS_OK) {
        sequence_spec_free(&spec);
        return status;
    }
    child->class_index = parent->class_index;
    child->score_next = UINT32_MAX; /* the parent told */
    uint32_t need = admission_need(s, child);
    uint32_t own = need - (child->prompt_count - 1) / s->config.block_tokens;
    s->growers = admission_count_growers(s);
    if (!admission_make_room(s, own)) {
        scheduler_remove(s, child);
        return error_set(err, STATUS_LIMIT, "%u KV blocks for one more answer are not free now",
                         own);
    }
    child->hold = KV_HOLD_USED;
    take_blocks(s, parent, child, need);
    child->computed = child->prompt_count - 1;
    child->chain = prefix_chain_start(child->root);
    child->remembers = s->cache && parent->remembers;
    reuse_remember(s, child);
    child->state = SEQUENCE_PREFILL;
    *out = child;
    return STATUS_OK;
}
