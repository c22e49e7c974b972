/* Computes one step of a model, and moves blocks between two steps. */
#include "common/base/log.h"
#include "common/engine/model/logits.h"
#include "common/engine/model_engine.h"

#include <string.h>

/* --- the input --- */

/* Fills the step's tables on the host. */
static void fill_tables(struct model_engine *engine, const struct engine_sequence *sequences,
                        uint32_t count, struct step_batch *batch, struct llama_samples *samples)
{
    *samples = (struct llama_samples){.rows = engine->sample_rows.device};
    *batch = (struct step_batch){.sequences = count,
                                 .tokens = engine->tokens.device,
                                 .positions = engine->positions.device,
                                 .row_sequence = engine->row_sequence.device,
                                 .sequence_rows = engine->sequence_rows.device,
                                 .block_tables = engine->block_tables.device};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t blocks = kv_layout_blocks_for(&engine->base.layout,
                                               sequences[i].position + sequences[i].token_count);
        if (blocks > batch->table_stride)
            batch->table_stride = blocks;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct engine_sequence *s = &sequences[i];
        uint32_t *blocks = engine->block_tables.host + (size_t)i * batch->table_stride;
        uint32_t used = kv_layout_blocks_for(&engine->base.layout, s->position + s->token_count);
        memcpy(blocks, s->blocks, used * sizeof *blocks);
        memset(blocks + used, 0, (batch->table_stride - used) * sizeof *blocks);
        engine->sequence_rows.host[i] = batch->rows;
        for (uint32_t j = 0; j < s->token_count; j++, batch->rows++) {
            engine->tokens.host[batch->rows] = s->tokens[j];
            engine->positions.host[batch->rows] = s->position + j;
            engine->row_sequence.host[batch->rows] = i;
        }
        if (s->sample)
            engine->sample_rows.host[samples->count++] = batch->rows - 1;
    }
    engine->sequence_rows.host[count] = batch->rows;
}

/* --- the forward pass --- */

static enum status upload(struct model_engine *engine, struct table *table, size_t count)
{
    return kernels_upload(engine->kernels, KERNELS_STEPS, &table->device, 0, table->host,
                          count * sizeof *table->host);
}

/* Gives the first `rows` rows of llama.logits on the host, valid until they are computed again.
 * Waits for all that is queued. */
static enum status read_logits(struct model_engine *engine, uint32_t rows, const float **logits)
{
    const void *seen;
    TRY(kernels_view(engine->kernels, &engine->llama.logits, 0,
                     (size_t)rows * engine->base.model.shape.vocab * sizeof **logits,
                     engine->logits, &seen));
    *logits = seen;
    return STATUS_OK;
}

/* Computes logits of rows [row, row + count) of the step. */
static enum status score_logits(struct model_engine *engine, uint32_t row, uint32_t count,
                                const float **logits)
{
    struct llama_samples samples = {.rows = engine->score_rows.device, .count = count};
    for (uint32_t i = 0; i < count; i++)
        engine->score_rows.host[i] = row + i;
    TRY(upload(engine, &engine->score_rows, count));
    TRY(llama_head(&engine->llama, &samples));
    return read_logits(engine, count, logits);
}

/* Gives the logprobs of a prompt's tokens. Runs the head once more, on as many rows at a time as
 * llama.logits has room for: memory doesn't grow with prompts. `row`: its first row in the step.
 * The sequence's status is STATUS_INTERNAL if a logit is not finite. */
static enum status score(struct model_engine *engine, struct engine_sequence *s, uint32_t row)
{
    const uint32_t vocab = engine->base.model.shape.vocab,
                   at_once = engine->base.config.max_sequences;
    s->status = STATUS_OK;
    for (uint32_t done = 0; done < s->score_count;) {
        uint32_t left = s->score_count - done, count = left < at_once ? left : at_once;
        const float *logits;
        TRY(score_logits(engine, row + s->score_first + done, count, &logits));
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

/* Scores all rows that ask for it, after llama_forward with samples.more. Overwrites
 * llama.logits. */
static enum status score_rows(struct model_engine *engine, struct engine_sequence *sequences,
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

/* Uploads and computes. `logits`: a row for each sequence that samples, until the next step. */
static enum status compute(struct model_engine *engine, const struct step_batch *batch,
                           const struct llama_samples *samples, struct engine_sequence *sequences,
                           const float **logits)
{
    TRY(upload(engine, &engine->tokens, batch->rows));
    TRY(upload(engine, &engine->positions, batch->rows));
    TRY(upload(engine, &engine->row_sequence, batch->rows));
    TRY(upload(engine, &engine->sequence_rows, batch->sequences + 1));
    TRY(upload(engine, &engine->block_tables, (size_t)batch->sequences * batch->table_stride));
    if (samples->count)
        TRY(upload(engine, &engine->sample_rows, samples->count));
    struct llama_samples none = {.more = true};
    bool scores = false;
    for (uint32_t i = 0; i < batch->sequences; i++)
        scores |= sequences[i].score_count > 0;
    TRY(llama_forward(&engine->llama, batch, &engine->base.layout, &engine->pool,
                      scores ? &none : samples));
    if (scores) {
        TRY(score_rows(engine, sequences, batch->sequences));
        if (samples->count)
            TRY(llama_head(&engine->llama, samples));
    }
    if (samples->count)
        TRY(read_logits(engine, samples->count, logits));
    return kernels_sync(engine->kernels);
}

/* --- drawing tokens --- */

static void draw(struct model_engine *engine, struct engine_sequence *s, const float *logits)
{
    struct sampler_row row = {.logits = logits,
                              .index = s->index,
                              .allowed = s->allowed,
                              .tokens = s->history,
                              .token_count = s->position + s->token_count};
    if (s->ban_end) {
        row.ban.ids[0] = s->sampling->stop_ids;
        row.ban.counts[0] = s->sampling->stop_id_count;
        row.ban.ids[1] = engine->base.model.end_ids.ids;
        row.ban.counts[1] = s->sampling->ignore_eos ? 0 : engine->base.model.end_ids.count;
    }
    s->logits = logits;
    s->logits_hash =
        s->sampling->logits_hash ? logits_hash(logits, engine->base.model.shape.vocab) : 0;
    if (s->score_count && s->status != STATUS_OK)
        return; /* an earlier row was bad: no token may be drawn from it */
    s->status = sampler_draw(&engine->sampler, &row, s->sampling, &s->token);
    s->logprobs.given = false;
    if (s->status == STATUS_OK && s->sampling->logprobs)
        s->status = logprobs_of(logits, engine->base.model.shape.vocab, s->token,
                                s->sampling->top_logprobs, &s->logprobs);
    if (s->status != STATUS_OK) /* STATUS_INVALID: the request's own bans */
        log_write(s->status == STATUS_INVALID ? LOG_DEBUG : LOG_ERROR, "engine",
                  "msg=\"no token can be drawn\" status=%s position=%u index=%u",
                  status_name(s->status), s->position + s->token_count - 1, s->index);
}

enum status model_engine_step(struct engine *base, struct engine_sequence *sequences,
                              uint32_t count, struct error *err)
{
    struct model_engine *engine = (struct model_engine *)base;
    struct step_batch batch;
    struct llama_samples samples;
    fill_tables(engine, sequences, count, &batch, &samples);
    const float *row = NULL;
    enum status status = compute(engine, &batch, &samples, sequences, &row);
    if (status != STATUS_OK)
        return error_set(err, STATUS_INTERNAL, "the device failed in a step of %u rows (%s)",
                         batch.rows, status_name(status));
    for (uint32_t i = 0; i < count; i++) {
        if (!sequences[i].sample)
            continue;
        draw(engine, &sequences[i], row);
        row += base->model.shape.vocab;
    }
    return STATUS_OK;
}

/* --- moves of blocks --- */

enum status model_engine_move_block(struct engine *base, enum engine_move move, uint32_t from,
                                    uint32_t to)
{
    struct model_engine *engine = (struct model_engine *)base;
    size_t bytes = kv_layout_block_bytes(&base->layout), source = from * bytes, target = to * bytes;
    struct kernels *kernels = engine->kernels;
    struct buffer *pool = &engine->pool;
    switch (move) {
    case ENGINE_COPY:
        return kernels_copy(kernels, KERNELS_STEPS, pool, source, pool, target, bytes);
    case ENGINE_SWAP_OUT:
        return kernels_read_back(kernels, KERNELS_STEPS, pool, source, base->slots + target, bytes);
    case ENGINE_SWAP_IN:
        return kernels_upload(kernels, KERNELS_STEPS, pool, target, base->slots + source, bytes);
    }
    return STATUS_INVALID;
}

enum status model_engine_moves_done(struct engine *base)
{
    return kernels_sync(((struct model_engine *)base)->kernels);
}
