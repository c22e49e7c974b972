#include "common/engine/engine_scores.h"

#include "common/base/log.h"
#include "common/engine/model/logprobs.h"

bool engine_scores_wanted(const struct engine_sequence *sequences, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (sequences[i].score_count)
            return true;
    return false;
}

/* Logits of rows [row, row + count) of the step, on the host. */
static enum status logits_of(struct engine *engine, uint32_t row, uint32_t count,
                             const float **logits)
{
    struct llama_samples samples = {.rows = engine->score_rows.device, .count = count};
    for (uint32_t i = 0; i < count; i++)
        engine->score_rows.host[i] = row + i;
    TRY(kernels_upload(engine->kernels, &engine->score_rows.device, 0, engine->score_rows.host,
                       count * sizeof *engine->score_rows.host));
    TRY(llama_head(&engine->llama, &samples));
    return engine_read_logits(engine, count, logits);
}

/* `row`: its first one in the step. */
static enum status score(struct engine *engine, struct engine_sequence *s, uint32_t row)
{
    const uint32_t vocab = engine->model.shape.vocab, at_once = engine->config.max_sequences;
    s->status = STATUS_OK;
    for (uint32_t done = 0; done < s->score_count;) {
        uint32_t left = s->score_count - done, count = left < at_once ? left : at_once;
        const float *logits;
        TRY(logits_of(engine, row + s->score_first + done, count, &logits));
        for (uint32_t i = 0; i < count && s->status == STATUS_OK; i++, done++)
            s->status = logprobs_of(logits + (size_t)i * vocab, vocab, s->score_tokens[done],
                                    s->score_top, &s->scores[done]);
        if (s->status != STATUS_OK) {
            log_error("engine", "msg=\"a prompt's token can't be scored\" position=%u",
                      s->position + s->score_first + done);
            return STATUS_OK;
        }
    }
    return STATUS_OK;
}

enum status engine_score_rows(struct engine *engine, struct engine_sequence *sequences,
                              uint32_t count)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (sequences[i].score_count)
            TRY(score(engine, &sequences[i], row));
        row += sequences[i].token_count;
    }
    return STATUS_OK;
}
