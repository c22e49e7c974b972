/* Computes one step, and moves blocks between two steps: the second half of engine.h. */
#include "common/base/log.h"
#include "common/engine/engine_state.h"
#include "common/engine/model/logits.h"

#include <inttypes.h>
#include <string.h>

/* --- the input --- */

static enum status check_scores(const struct engine *engine, const struct engine_sequence *s,
                                uint32_t number, struct error *err)
{
    if (s->score_count > s->token_count || s->score_first > s->token_count - s->score_count ||
        s->score_top > LOGPROBS_MAX_TOP)
        return error_set(err, STATUS_INVALID,
                         "sequence %u: %u rows to score from %u on of %u, the %u likeliest", number,
                         s->score_count, s->score_first, s->token_count, s->score_top);
    for (uint32_t i = 0; i < s->score_count; i++)
        if (s->score_tokens[i] >= engine->model.shape.vocab)
            return error_set(err, STATUS_INVALID,
                             "sequence %u: token id %u to score, the vocabulary has %u", number,
                             s->score_tokens[i], engine->model.shape.vocab);
    return STATUS_OK;
}

static enum status check_sequence(const struct engine *engine, const struct engine_sequence *s,
                                  uint32_t number, struct error *err)
{
    if (s->token_count < 1 || s->token_count > engine->context ||
        s->position > engine->context - s->token_count)
        return error_set(err, STATUS_INVALID,
                         "sequence %u: %u tokens at position %u do not fit a context of %u", number,
                         s->token_count, s->position, engine->context);
    uint32_t blocks = kv_layout_blocks_for(&engine->layout, s->position + s->token_count);
    if (s->block_count < blocks)
        return error_set(err, STATUS_INVALID, "sequence %u: needs %u blocks, got %u", number,
                         blocks, s->block_count);
    for (uint32_t i = 0; i < blocks; i++)
        if (s->blocks[i] >= engine->config.block_count)
            return error_set(err, STATUS_INVALID, "sequence %u: block id %u, the pool has %u",
                             number, s->blocks[i], engine->config.block_count);
    for (uint32_t i = 0; i < s->token_count; i++)
        if (s->tokens[i] >= engine->model.shape.vocab)
            return error_set(err, STATUS_INVALID, "sequence %u: token id %u, the vocabulary has %u",
                             number, s->tokens[i], engine->model.shape.vocab);
    if (s->prompt_rows > s->token_count || (s->sample && !s->sampling))
        return error_set(err, STATUS_INVALID,
                         "sequence %u: %u prompt rows of %u, sampling parameters %s", number,
                         s->prompt_rows, s->token_count, s->sampling ? "given" : "missing");
    if (s->sample && logit_edits_penalizes(s->sampling) &&
        (!s->history || s->index > s->position + s->token_count))
        return error_set(err, STATUS_INVALID, "sequence %u: penalties for %u tokens without them",
                         number, s->index);
    return check_scores(engine, s, number, err);
}

static enum status check_step(const struct engine *engine, const struct engine_sequence *sequences,
                              uint32_t count, struct error *err)
{
    if (!engine->pool.address)
        return error_set(err, STATUS_INVALID, "no KV pool is attached");
    if (count < 1 || count > engine->config.max_sequences)
        return error_set(err, STATUS_INVALID, "%u sequences in a step of 1 to %u", count,
                         engine->config.max_sequences);
    uint64_t rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        TRY(check_sequence(engine, &sequences[i], i, err));
        rows += sequences[i].token_count;
    }
    if (rows > engine->config.max_rows)
        return error_set(err, STATUS_INVALID, "%" PRIu64 " rows in a step of at most %u", rows,
                         engine->config.max_rows);
    return STATUS_OK;
}

/* Fills the step's tables on the host. */
static void fill_tables(struct engine *engine, const struct engine_sequence *sequences,
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
        uint32_t blocks =
            kv_layout_blocks_for(&engine->layout, sequences[i].position + sequences[i].token_count);
        if (blocks > batch->table_stride)
            batch->table_stride = blocks;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct engine_sequence *s = &sequences[i];
        uint32_t *blocks = engine->block_tables.host + (size_t)i * batch->table_stride;
        uint32_t used = kv_layout_blocks_for(&engine->layout, s->position + s->token_count);
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

static enum status upload(struct engine *engine, struct table *table, size_t count)
{
    return kernels_upload(engine->kernels, &table->device, 0, table->host,
                          count * sizeof *table->host);
}

/* Gives the first `rows` rows of llama.logits on the host, valid until they are computed again.
 * Waits for all that is queued. */
static enum status read_logits(struct engine *engine, uint32_t rows, const float **logits)
{
    const void *seen;
    TRY(kernels_view(engine->kernels, &engine->llama.logits, 0,
                     (size_t)rows * engine->model.shape.vocab * sizeof **logits, engine->logits,
                     &seen));
    *logits = seen;
    return STATUS_OK;
}

/* Computes logits of rows [row, row + count) of the step. */
static enum status score_logits(struct engine *engine, uint32_t row, uint32_t count,
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
static enum status score(struct engine *engine, struct engine_sequence *s, uint32_t row)
{
    const uint32_t vocab = engine->model.shape.vocab, at_once = engine->config.max_sequences;
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
static enum status score_rows(struct engine *engine, struct engine_sequence *sequences,
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
static enum status compute(struct engine *engine, const struct step_batch *batch,
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
    TRY(llama_forward(&engine->llama, batch, &engine->layout, &engine->pool,
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

static void draw(struct engine *engine, struct engine_sequence *s, const float *logits)
{
    struct sampler_row row = {.logits = logits,
                              .index = s->index,
                              .allowed = s->allowed,
                              .tokens = s->history,
                              .token_count = s->position + s->token_count};
    if (s->ban_end) {
        row.ban.ids[0] = s->sampling->stop_ids;
        row.ban.counts[0] = s->sampling->stop_id_count;
        row.ban.ids[1] = engine->model.end_ids.ids;
        row.ban.counts[1] = s->sampling->ignore_eos ? 0 : engine->model.end_ids.count;
    }
    s->logits = logits;
    s->logits_hash = s->sampling->logits_hash ? logits_hash(logits, engine->model.shape.vocab) : 0;
    if (s->score_count && s->status != STATUS_OK)
        return; /* an earlier row was bad: no token may be drawn from it */
    s->status = sampler_draw(&engine->sampler, &row, s->sampling, &s->token);
    s->logprobs.given = false;
    if (s->status == STATUS_OK && s->sampling->logprobs)
        s->status = logprobs_of(logits, engine->model.shape.vocab, s->token,
                                s->sampling->top_logprobs, &s->logprobs);
    if (s->status != STATUS_OK) /* STATUS_INVALID: the request's own bans */
        log_write(s->status == STATUS_INVALID ? LOG_DEBUG : LOG_ERROR, "engine",
                  "msg=\"no token can be drawn\" status=%s position=%u index=%u",
                  status_name(s->status), s->position + s->token_count - 1, s->index);
}

enum status engine_step(struct engine *engine, struct engine_sequence *sequences, uint32_t count,
                        struct error *err)
{
    struct step_batch batch;
    struct llama_samples samples;
    TRY(check_step(engine, sequences, count, err));
    fill_tables(engine, sequences, count, &batch, &samples);
    const float *row = NULL;
    enum status status = compute(engine, &batch, &samples, sequences, &row);
    if (status != STATUS_OK)
        return error_set(err, STATUS_INTERNAL, "the device failed in a step of %u rows (%s)",
                         batch.rows, status_name(status));
    for (uint32_t i = 0; i < count; i++) {
        engine->counters.prompt_rows += sequences[i].prompt_rows;
        engine->counters.decode_rows += sequences[i].token_count - sequences[i].prompt_rows;
        if (!sequences[i].sample)
            continue;
        draw(engine, &sequences[i], row);
        row += engine->model.shape.vocab;
    }
    engine->counters.steps++;
    return STATUS_OK;
}

/* --- moves of blocks --- */

enum status engine_move_block(struct engine *engine, enum engine_move move, uint32_t from,
                              uint32_t to, struct error *err)
{
    uint32_t blocks = engine->pool.address ? engine->config.block_count : 0;
    uint32_t slots = engine->config.swap_blocks;
    if (from >= (move == ENGINE_SWAP_IN ? slots : blocks) ||
        to >= (move == ENGINE_SWAP_OUT ? slots : blocks))
        return error_set(err, STATUS_INVALID,
                         "block %u to %u: there are %u KV blocks and %u slots for swapped ones",
                         from, to, blocks, slots);
    size_t bytes = kv_layout_block_bytes(&engine->layout), source = from * bytes,
           target = to * bytes;
    enum status status =
        move == ENGINE_COPY
            ? kernels_copy(engine->kernels, &engine->pool, source, &engine->pool, target, bytes)
        : move == ENGINE_SWAP_OUT
            ? kernels_download(engine->kernels, &engine->pool, source, engine->slots + target,
                               bytes)
            : kernels_upload(engine->kernels, &engine->pool, target, engine->slots + source, bytes);
    if (status == STATUS_OK)
        return STATUS_OK;
    return error_set(err, status == STATUS_INVALID ? STATUS_INVALID : STATUS_INTERNAL,
                     "KV block %u could not be moved to %u (%s)", from, to, status_name(status));
}

enum status engine_moves_done(struct engine *engine, struct error *err)
{
    enum status status = kernels_sync(engine->kernels);
    if (status == STATUS_OK)
        return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "the device failed in a move of KV blocks (%s)",
                     status_name(status));
}
