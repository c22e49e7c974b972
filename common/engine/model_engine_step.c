/* Computes one step of a model, and moves blocks between two steps. */
#include "common/base/log.h"
#include "common/engine/model/logits.h"
#include "common/engine/model_engine.h"

#include <string.h>

/* --- the input --- */

/* Takes the next `count` numbers of the flight's tables. Gives their place on the device, and
 * returns the one on the host. */
static uint32_t *take_table(struct model_engine *engine, struct queued_step *flight,
                            uint32_t *used_words, size_t count, struct buffer *device)
{
    uint32_t *host = flight->tables + *used_words;
    *device =
        (struct buffer){(uint32_t *)engine->tables.address + *used_words, count * sizeof *host};
    *used_words += (uint32_t)count;
    return host;
}

/* Rows of logits: the token is drawn on the device, or here. Logits are read for a draw here, or
 * because the caller asks for them. */
enum sample_kind { DRAWN_THERE, DRAWN_THERE_AND_READ, DRAWN_HERE, SAMPLE_KINDS };

/* Gives each sample its row of logits: kind by kind, so that a draw and a read-back each take
 * neighbours. */
static void place_samples(const struct model_engine *engine, struct queued_step *flight,
                          const struct engine_sequence *sequences, uint32_t count)
{
    uint32_t firsts[SAMPLE_KINDS + 1], place = 0;
    for (enum sample_kind kind = 0; kind < SAMPLE_KINDS; kind++) {
        firsts[kind] = place;
        for (uint32_t i = 0, sample = 0; i < count; i++) {
            const struct engine_sequence *s = &sequences[i];
            if (!s->sample)
                continue;
            bool here = !engine_feeds(&engine->base, s->sampling) || s->allowed || s->ban_end;
            bool read = s->sampling->logits_hash || s->reads_logits;
            if (kind == (here ? DRAWN_HERE : read ? DRAWN_THERE_AND_READ : DRAWN_THERE))
                flight->places[sample] = place++;
            sample++;
        }
    }
    flight->first_read = firsts[DRAWN_THERE_AND_READ];
    flight->drawn_count = firsts[DRAWN_HERE];
    flight->sample_count = place;
}

static const struct queued_step *step_before(const struct model_engine *engine,
                                             const struct queued_step *flight)
{
    return &engine->flights[flight == &engine->flights[0]];
}

/* Fills the draws, for the device, and the places of tokens that it drew in the step before. */
static void fill_draws(struct model_engine *engine, struct queued_step *flight,
                       const struct engine_sequence *sequences, uint32_t count, uint32_t rows,
                       uint32_t *used)
{
    const struct queued_step *before = step_before(engine, flight);
    const size_t words = sizeof(struct kernels_draw) / sizeof *flight->tables;
    bool feeds = false;
    /* They come first in the tables: on a multiple of 8 bytes. */
    void *draws = take_table(engine, flight, used, flight->drawn_count * words, &flight->draws);
    for (uint32_t i = 0, sample = 0; i < count; i++) {
        const struct engine_sequence *s = &sequences[i];
        feeds |= s->fed;
        if (!s->sample || flight->places[sample++] >= flight->drawn_count)
            continue;
        ((struct kernels_draw *)draws)[flight->places[sample - 1]] =
            sampler_settings(s->sampling, s->index);
    }
    flight->from = (struct buffer){0};
    if (!feeds)
        return;
    uint32_t *from = take_table(engine, flight, used, rows, &flight->from);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < sequences[i].token_count; j++)
            *from++ =
                sequences[i].fed ? before->places[sequences[i].token_from] : KERNELS_TOKEN_GIVEN;
}

/* Fills the step's tables on the host. Returns how many numbers they have. */
static uint32_t fill_tables(struct model_engine *engine, struct queued_step *flight,
                            const struct engine_sequence *sequences, uint32_t count,
                            struct step_batch *batch, struct llama_samples *samples)
{
    *batch = (struct step_batch){.sequences = count};
    *samples = (struct llama_samples){0};
    for (uint32_t i = 0; i < count; i++) {
        const struct engine_sequence *s = &sequences[i];
        uint32_t blocks = kv_layout_blocks_for(&engine->base.layout, s->position + s->token_count);
        if (blocks > batch->table_stride)
            batch->table_stride = blocks;
        batch->rows += s->token_count;
    }
    samples->count = flight->sample_count;
    uint32_t used = 0, row = 0, sample = 0;
    fill_draws(engine, flight, sequences, count, batch->rows, &used);
    uint32_t *tokens = take_table(engine, flight, &used, batch->rows, &batch->tokens);
    uint32_t *positions = take_table(engine, flight, &used, batch->rows, &batch->positions);
    uint32_t *row_sequence = take_table(engine, flight, &used, batch->rows, &batch->row_sequence);
    uint32_t *first_rows = take_table(engine, flight, &used, count + 1, &batch->sequence_rows);
    uint32_t *blocks = take_table(engine, flight, &used, (size_t)count * batch->table_stride,
                                  &batch->block_tables);
    uint32_t *sample_rows = take_table(engine, flight, &used, samples->count, &samples->rows);
    for (uint32_t i = 0; i < count; i++) {
        const struct engine_sequence *s = &sequences[i];
        first_rows[i] = row;
        for (uint32_t j = 0; j < s->token_count; j++, row++) {
            tokens[row] = s->fed ? 0 : s->tokens[j];
            positions[row] = s->position + j;
            row_sequence[row] = i;
        }
        if (s->sample)
            sample_rows[flight->places[sample++]] = row - 1;
        uint32_t has = kv_layout_blocks_for(&engine->base.layout, s->position + s->token_count);
        memcpy(blocks, s->blocks, has * sizeof *blocks);
        memset(blocks + has, 0, (batch->table_stride - has) * sizeof *blocks);
        blocks += batch->table_stride;
    }
    first_rows[count] = row;
    return used;
}

/* --- the forward pass --- */

/* Gives the first `rows` rows of llama.logits on the host, valid until they are computed again.
 * Waits for all that is queued. `host`: memory for them, if they can't be read in place. */
static enum status read_logits(struct model_engine *engine, uint32_t rows, float *host,
                               const float **logits)
{
    const void *seen;
    TRY(kernels_view(engine->kernels, &engine->llama.logits, 0,
                     (size_t)rows * engine->base.model.shape.vocab * sizeof **logits, host, &seen));
    *logits = seen;
    return STATUS_OK;
}

/* Computes logits of rows [row, row + count) of the step. */
static enum status score_logits(struct model_engine *engine, uint32_t row, uint32_t count,
                                float *host, const float **logits)
{
    struct llama_samples samples = {.rows = engine->score_table, .count = count};
    for (uint32_t i = 0; i < count; i++)
        engine->score_rows[i] = row + i;
    TRY(kernels_upload(engine->kernels, KERNELS_STEPS, &engine->score_table, 0, engine->score_rows,
                       count * sizeof *engine->score_rows));
    TRY(llama_head(&engine->llama, &samples));
    return read_logits(engine, count, host, logits);
}

/* Gives the logprobs of a prompt's tokens. Runs the head once more, on as many rows at a time as
 * llama.logits has room for: memory doesn't grow with prompts. `row`: its first row in the step.
 * The sequence's status is STATUS_INTERNAL if a logit is not finite. The host waits for each run:
 * steps with such rows don't run ahead. */
static enum status score(struct model_engine *engine, struct engine_sequence *s, uint32_t row,
                         float *host)
{
    const uint32_t vocab = engine->base.model.shape.vocab,
                   at_once = engine->base.config.max_sequences;
    s->status = STATUS_OK;
    for (uint32_t done = 0; done < s->score_count;) {
        uint32_t left = s->score_count - done, count = left < at_once ? left : at_once;
        const float *logits;
        TRY(score_logits(engine, row + s->score_first + done, count, host, &logits));
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
                              uint32_t count, float *host)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (sequences[i].score_count)
            TRY(score(engine, &sequences[i], row, host));
        row += sequences[i].token_count;
    }
    return STATUS_OK;
}

/* Queues the device's draws, and their way and that of logits to the host. */
static enum status queue_draws(struct model_engine *engine, struct queued_step *flight)
{
    struct kernels *kernels = engine->kernels;
    const uint32_t vocab = engine->base.model.shape.vocab;
    const size_t row_bytes = vocab * sizeof *flight->logits;
    if (flight->drawn_count) {
        TRY(kernels_sample(kernels, &engine->llama.logits, flight->drawn_count, vocab,
                           &flight->draws, &engine->sample_scratch, &engine->drawn));
        TRY(kernels_read_back(kernels, KERNELS_STEPS, &engine->drawn, 0, flight->drawn,
                              flight->drawn_count * sizeof *flight->drawn));
    }
    if (!flight->logits || flight->first_read == flight->sample_count)
        return STATUS_OK;
    return kernels_read_back(kernels, KERNELS_STEPS, &engine->llama.logits,
                             flight->first_read * row_bytes, flight->logits,
                             (flight->sample_count - flight->first_read) * row_bytes);
}

/* Queues the step: its tables in one upload, the rows, their draws, and the results' way to the
 * host. */
static enum status queue_step(struct model_engine *engine, struct queued_step *flight,
                              struct engine_sequence *sequences, uint32_t count)
{
    struct kernels *kernels = engine->kernels;
    struct step_batch batch;
    struct llama_samples samples, none = {.more = true};
    place_samples(engine, flight, sequences, count);
    uint32_t words = fill_tables(engine, flight, sequences, count, &batch, &samples);
    bool scores = false;
    for (uint32_t i = 0; i < count; i++)
        scores |= sequences[i].score_count > 0;
    flight->rows = batch.rows;
    flight->moved = engine->has_moved ? engine->moved : 0;
    if (engine->has_moved)
        TRY(kernels_order(kernels, KERNELS_STEPS, KERNELS_MOVES, engine->moved));
    engine->has_moved = false;
    TRY(kernels_record(kernels, KERNELS_STEPS, &flight->begun));
    TRY(kernels_upload(kernels, KERNELS_STEPS, &engine->tables, 0, flight->tables,
                       words * sizeof *flight->tables));
    if (flight->from.address)
        TRY(kernels_take_tokens(kernels, &flight->from, batch.rows, &engine->drawn, &batch.tokens));
    TRY(llama_forward(&engine->llama, &batch, &engine->base.layout, &engine->pool,
                      scores ? &none : &samples));
    if (scores) {
        TRY(score_rows(engine, sequences, count, flight->logits));
        if (samples.count)
            TRY(llama_head(&engine->llama, &samples));
    }
    TRY(queue_draws(engine, flight));
    return kernels_record(kernels, KERNELS_STEPS, &flight->ended);
}

/* --- drawing tokens --- */

static enum status draw_here(struct model_engine *engine, struct engine_sequence *s,
                             const float *logits)
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
    return sampler_draw(&engine->sampler, &row, s->sampling, &s->token);
}

/* Fills the results of a sample. drawn: NULL if the host draws. logits: NULL if it doesn't read
 * them. */
static void give_token(struct model_engine *engine, struct engine_sequence *s,
                       const struct kernels_drawn *drawn, const float *logits)
{
    s->logits = logits;
    s->logits_hash =
        s->sampling->logits_hash ? logits_hash(logits, engine->base.model.shape.vocab) : 0;
    if (s->score_count && s->status != STATUS_OK)
        return; /* an earlier row was bad: no token may be drawn from it */
    if (drawn)
        s->token = drawn->token;
    s->status = drawn ? (enum status)drawn->status : draw_here(engine, s, logits);
    s->logprobs.given = false;
    if (s->status == STATUS_OK && s->sampling->logprobs)
        s->status = logprobs_of(logits, engine->base.model.shape.vocab, s->token,
                                s->sampling->top_logprobs, &s->logprobs);
    if (s->status != STATUS_OK) /* STATUS_INVALID: the request's own bans */
        log_write(s->status == STATUS_INVALID ? LOG_DEBUG : LOG_ERROR, "engine",
                  "msg=\"no token can be drawn\" status=%s position=%u index=%u",
                  status_name(s->status), s->position + s->token_count - 1, s->index);
}

/* Steps in flight fail with the device. Its streams go on behind them: a sync would end the failure
 * that they have to report. */
static void device_failed(struct model_engine *engine)
{
    engine->failed = engine->base.in_flight > 0;
    if (!engine->failed)
        (void)!kernels_sync(engine->kernels);
}

static enum status step_failed(struct model_engine *engine, const struct queued_step *flight,
                               enum status status, struct error *err)
{
    device_failed(engine);
    return error_set(err, STATUS_INTERNAL, "the device failed in a step of %u rows (%s)",
                     flight->rows, status_name(status));
}

enum status model_engine_submit(struct engine *base, struct engine_sequence *sequences,
                                uint32_t count, engine_ticket ticket, struct error *err)
{
    struct model_engine *engine = (struct model_engine *)base;
    struct queued_step *flight = &engine->flights[base->runs_ahead ? ticket : 0];
    const struct queued_step *before = step_before(engine, flight);
    for (uint32_t i = 0; i < count; i++)
        if (sequences[i].fed && before->places[sequences[i].token_from] >= before->drawn_count)
            return error_set(err, STATUS_INVALID, "sequence %u: the host draws sample %u", i,
                             sequences[i].token_from);
    enum status status = queue_step(engine, flight, sequences, count);
    return status == STATUS_OK ? STATUS_OK : step_failed(engine, flight, status, err);
}

enum status model_engine_wait(struct engine *base, engine_ticket ticket,
                              struct engine_sequence *sequences, uint32_t count, struct error *err)
{
    struct model_engine *engine = (struct model_engine *)base;
    struct queued_step *flight = &engine->flights[base->runs_ahead ? ticket : 0];
    const float *logits = flight->logits;
    enum status status = kernels_wait(engine->kernels, KERNELS_STEPS, flight->ended);
    if (status == STATUS_OK && engine->failed)
        status = STATUS_INTERNAL;
    if (status == STATUS_OK && flight->moved) /* its failures show in its own stream */
        status = kernels_wait(engine->kernels, KERNELS_MOVES, flight->moved);
    if (status == STATUS_OK && !logits) /* in place: nothing was queued since */
        status = read_logits(engine, 0, NULL, &logits);
    if (status != STATUS_OK)
        return step_failed(engine, flight, status, err);
    base->step_us = base->runs_ahead ? kernels_event_us(engine->kernels, KERNELS_STEPS,
                                                        flight->begun, flight->ended)
                                     : 0;
    for (uint32_t i = 0, sample = 0; i < count; i++) {
        if (!sequences[i].sample)
            continue;
        uint32_t place = flight->places[sample++];
        size_t read = (size_t)place - flight->first_read;
        if (!sequences[i].dropped)
            give_token(engine, &sequences[i],
                       place < flight->drawn_count ? &flight->drawn[place] : NULL,
                       place < flight->first_read ? NULL : logits + read * base->model.shape.vocab);
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
    enum status status = STATUS_INVALID;
    switch (move) {
    case ENGINE_COPY:
        status = kernels_copy(kernels, KERNELS_MOVES, pool, source, pool, target, bytes);
        break;
    case ENGINE_SWAP_OUT:
        status =
            kernels_read_back(kernels, KERNELS_MOVES, pool, source, base->slots + target, bytes);
        break;
    case ENGINE_SWAP_IN:
        status = kernels_upload(kernels, KERNELS_MOVES, pool, target, base->slots + source, bytes);
        break;
    }
    if (status == STATUS_OK)
        status = kernels_record(kernels, KERNELS_MOVES, &engine->moved);
    engine->has_moved = true;
    return status;
}

enum status model_engine_moves_done(struct engine *base)
{
    struct model_engine *engine = (struct model_engine *)base;
    enum status status = kernels_wait(engine->kernels, KERNELS_MOVES, engine->moved);
    if (status != STATUS_OK)
        device_failed(engine);
    return status;
}
