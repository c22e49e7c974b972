#include "common/engine/sched/sequence.h"

uint32_t priority_class(enum priority priority)
{
    static const unsigned char classes[PRIORITIES] = {
        [PRIORITY_HIGH] = 0, [PRIORITY_NORMAL] = 1, [PRIORITY_OFFLINE] = 2};
    return classes[priority];
}

uint32_t sequence_answer_count(const struct sequence *sequence)
{
    return sequence->emitted_count + (sequence->token_count - sequence->prompt_count);
}

uint32_t sequence_asked_count(const struct sequence *sequence)
{
    return sequence->prompt_count - sequence->emitted_count;
}

bool sequence_scores(const struct sequence *sequence)
{
    return sequence->score_next < sequence_asked_count(sequence);
}

uint32_t sequence_rows_to_score(const struct sequence *sequence, uint32_t row_count,
                                uint32_t *first)
{
    /* Row r gives the logprobs of token r + 1. */
    uint32_t from = sequence->score_next - 1, end = sequence_asked_count(sequence) - 1;
    if (!sequence_scores(sequence) || from >= sequence->computed + row_count)
        return 0;
    if (end > sequence->computed + row_count)
        end = sequence->computed + row_count;
    *first = from - sequence->computed;
    return end - from;
}

uint32_t sequence_lookup(const struct sequence *sequence, uint32_t skip, uint32_t most,
                         uint32_t *drafts)
{
    const uint32_t *tokens = sequence->tokens, count = sequence->token_count;
    uint32_t least = count > SEQUENCE_LOOKBACK ? count - SEQUENCE_LOOKBACK : 0, found = 0, used = 0;
    for (uint32_t end = count - 1; end >= least + 2; end--) { /* a place behind such tokens */
        if (tokens[end - 1] != tokens[count - 1] || tokens[end - 2] != tokens[count - 2])
            continue;
        found = found ? found : end;
        if (end >= least + 3 && tokens[end - 3] == tokens[count - 3]) {
            found = end;
            break;
        }
    }
    for (; found && used < most; used++)
        drafts[used] = tokens[found + (skip + used) % (count - found)];
    return used;
}

static bool contains(const uint32_t *ids, uint32_t count, uint32_t id)
{
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

enum finish_reason sequence_finish(const struct sequence *sequence, const uint32_t *end_ids,
                                   uint32_t end_id_count, uint32_t context)
{
    const struct sampling *sampling = &sequence->sampling;
    uint32_t last = sequence->tokens[sequence->token_count - 1];
    if (!sampling->ignore_eos && contains(end_ids, end_id_count, last))
        return FINISH_EOS;
    if (contains(sampling->stop_ids, sampling->stop_id_count, last))
        return FINISH_STOP_TOKEN;
    if (sequence->complete)
        return FINISH_COMPLETE;
    if (sequence_answer_count(sequence) >= sampling->max_tokens)
        return FINISH_MAX_TOKENS;
    if (sequence->token_count >= context)
        return FINISH_CONTEXT;
    return FINISH_NONE;
}
