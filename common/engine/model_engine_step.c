/* Computes one step of a model, and moves blocks between two steps. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/engine/model/logits.h"
#include "common/engine/model_engine.h"

#include <inttypes.h>
#include <string.h>
#include <sys/eventfd.h>

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
            if (!s->sample_count)
                continue;
            bool here = !engine_feeds(&engine->base, s->sampling) || s->allowed || s->ban_end;
            bool read = s->sampling->logits_hash || s->reads_logits;
            bool is_kind = kind == (here ? DRAWN_HERE : read ? DRAWN_THERE_AND_READ : DRAWN_THERE);
            for (uint32_t j = 0; j < s->sample_count; j++, sample++)
                if (is_kind)
                    flight->places[sample] = place++;
        }
    }
    flight->first_read = firsts[DRAWN_THERE_AND_READ];
    flight->drawn_count = firsts[DRAWN_HERE];
    flight->sample_count = place;
}

/* Returns the recorded bucket that does the step: each of its rows draws. */
static uint32_t bucket_of(const struct model_engine *engine,
                          const struct engine_sequence *sequences, uint32_t count)
{
    uint32_t blocks = 0, rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct engine_sequence *s = &sequences[i];
        uint32_t needed = kv_layout_blocks_for(&engine->base.layout, s->position + s->token_count);
        if (s->sample_count != s->token_count || s->score_count)
            return STEP_BUCKETS_NONE;
        blocks = needed > blocks ? needed : blocks;
        rows += s->token_count;
    }
    return step_buckets_choose(&engine->buckets, rows, blocks);
}

static const struct queued_step *step_before(const struct model_engine *engine,
                                             const struct queued_step *flight)
{
    return &engine->flights[flight == &engine->flights[0]];
}

/* Fills the draws, for the device, and the places of tokens that it drew in the step before. A
 * bucket draws all its rows; the host doesn't read what others than the first drawn_count drew. */
static void fill_draws(struct model_engine *engine, struct queued_step *flight,
                       const struct engine_sequence *sequences, uint32_t count, uint32_t rows,
                       uint32_t *used)
{
    const struct queued_step *before = step_before(engine, flight);
    const size_t words = sizeof(struct kernels_draw) / sizeof *flight->tables;
    bool padded = flight->bucket != STEP_BUCKETS_NONE, feeds = padded;
    uint32_t drawn = padded ? rows : flight->drawn_count;
    /* They come first in the tables: on a multiple of 8 bytes. */
    struct kernels_draw *draws =
        (void *)take_table(engine, flight, used, drawn * words, &flight->draws);
    for (uint32_t i = flight->drawn_count; i < drawn; i++)
        draws[i] = (struct kernels_draw){.top_p = 1};
    for (uint32_t i = 0, sample = 0; i < count; i++) {
        const struct engine_sequence *s = &sequences[i];
        feeds |= s->fed;
        for (uint32_t j = 0; j < s->sample_count; j++, sample++)
            if (flight->places[sample] < flight->drawn_count)
                draws[flight->places[sample]] = sampler_settings(s->sampling, s->index + j);
    }
    flight->from = (struct buffer){0};
    if (!feeds)
        return;
    uint32_t *from = take_table(engine, flight, used, rows, &flight->from), *end = from + rows;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < sequences[i].token_count; j++)
            *from++ = sequences[i].fed && j == 0 ? before->places[sequences[i].token_from]
                                                 : KERNELS_TOKEN_GIVEN;
    while (from < end)
        *from++ = KERNELS_TOKEN_GIVEN;
}

/* Fills a row of the block tables. */
static void fill_blocks(uint32_t *to, const uint32_t *blocks, uint32_t count, uint32_t stride)
{
    memcpy(to, blocks, count * sizeof *to);
    memset(to + count, 0, (stride - count) * sizeof *to);
}

/* Gives the step's numbers of rows, sequences and blocks: its own, or those of its bucket. */
static struct step_batch batch_of(const struct model_engine *engine,
                                  const struct queued_step *flight,
                                  const struct engine_sequence *sequences, uint32_t count)
{
    struct step_batch batch = {.sequences = count};
    if (flight->bucket != STEP_BUCKETS_NONE) {
        const struct step_bucket *bucket = &engine->buckets.all[flight->bucket];
        return (struct step_batch){
            .rows = bucket->rows, .sequences = bucket->rows, .table_stride = bucket->blocks};
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct engine_sequence *s = &sequences[i];
        uint32_t blocks = kv_layout_blocks_for(&engine->base.layout, s->position + s->token_count);
        if (blocks > batch.table_stride)
            batch.table_stride = blocks;
        batch.rows += s->token_count;
    }
    return batch;
}

/* Fills the step's tables on the host. Returns how many numbers they have. In a bucket each row is
 * a sequence of its own, so that nothing but their number is fixed: drafts repeat the blocks of
 * their answer, and rows that pad it are of one token in a block that no answer has. */
static uint32_t fill_tables(struct model_engine *engine, struct queued_step *flight,
                            const struct engine_sequence *sequences, uint32_t count,
                            struct step_batch *batch, struct llama_samples *samples)
{
    *batch = batch_of(engine, flight, sequences, count);
    *samples = (struct llama_samples){
        .count = flight->bucket == STEP_BUCKETS_NONE ? flight->sample_count : batch->rows};
    uint32_t used = 0, row = 0, sample = 0;
    fill_draws(engine, flight, sequences, count, batch->rows, &used);
    uint32_t *tokens = take_table(engine, flight, &used, batch->rows, &batch->tokens);
    uint32_t *positions = take_table(engine, flight, &used, batch->rows, &batch->positions);
    uint32_t *row_sequence = take_table(engine, flight, &used, batch->rows, &batch->row_sequence);
    uint32_t *first_rows =
        take_table(engine, flight, &used, batch->sequences + 1, &batch->sequence_rows);
    uint32_t *blocks =
        take_table(engine, flight, &used, (size_t)batch->sequences * batch->table_stride,
                   &batch->block_tables);
    uint32_t *sample_rows = take_table(engine, flight, &used, samples->count, &samples->rows);
    const bool alone = flight->bucket != STEP_BUCKETS_NONE;
    uint32_t table = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct engine_sequence *s = &sequences[i];
        uint32_t used_blocks =
            kv_layout_blocks_for(&engine->base.layout, s->position + s->token_count);
        for (uint32_t j = 0; j < s->token_count; j++, row++) {
            if (j == 0 || alone) {
                first_rows[table] = row;
                fill_blocks(blocks + (size_t)table++ * batch->table_stride, s->blocks, used_blocks,
                            batch->table_stride);
            }
            tokens[row] = s->fed && j == 0 ? 0 : s->tokens[j];
            positions[row] = s->position + j;
            row_sequence[row] = table - 1;
        }
        for (uint32_t j = s->sample_count; j > 0; j--)
            sample_rows[flight->places[sample++]] = row - j;
    }
    for (; table < batch->sequences; table++, row++) {
        first_rows[table] = sample_rows[table] = row;
        tokens[row] = positions[row] = 0;
        row_sequence[row] = table;
        fill_blocks(blocks + (size_t)table * batch->table_stride, &engine->padding_block, 1,
                    batch->table_stride);
    }
    first_rows[batch->sequences] = row;
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
    s->drawn.status = STATUS_OK;
    for (uint32_t done = 0; done < s->score_count;) {
        uint32_t left = s->score_count - done, count = left < at_once ? left : at_once;
        const float *logits;
        TRY(score_logits(engine, row + s->score_first + done, count, host, &logits));
        for (uint32_t i = 0; i < count && s->drawn.status == STATUS_OK; i++, done++)
            s->drawn.status = logprobs_of(logits + (size_t)i * vocab, vocab, s->score_tokens[done],
                                          s->score_top, &s->scores[done]);
        if (s->drawn.status != STATUS_OK) {
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

/* Queues the operations of a step, up to its draws. */
static enum status queue_rows(struct model_engine *engine, const struct queued_step *flight,
                              struct step_batch *batch, const struct llama_samples *samples)
{
    struct kernels *kernels = engine->kernels;
    if (flight->from.address)
        TRY(kernels_take_tokens(kernels, &flight->from, batch->rows, &engine->drawn,
                                &batch->tokens));
    return llama_forward(&engine->llama, batch, &engine->base.layout, &engine->pool, samples);
}

/* Queues draws of the first `count` rows of logits. */
static enum status queue_draws(struct model_engine *engine, const struct queued_step *flight,
                               uint32_t count)
{
    if (!count)
        return STATUS_OK;
    return kernels_sample(engine->kernels, &engine->llama.logits, count,
                          engine->base.model.shape.vocab, &flight->draws, &engine->sample_scratch,
                          &engine->drawn);
}

/* Queues the way of drawn tokens and logits to the host. */
static enum status queue_results(struct model_engine *engine, struct queued_step *flight)
{
    struct kernels *kernels = engine->kernels;
    const size_t row_bytes = engine->base.model.shape.vocab * sizeof *flight->logits;
    if (flight->drawn_count)
        TRY(kernels_read_back(kernels, KERNELS_STEPS, &engine->drawn, 0, flight->drawn,
                              flight->drawn_count * sizeof *flight->drawn));
    if (!flight->logits || flight->first_read == flight->sample_count)
        return STATUS_OK;
    return kernels_read_back(kernels, KERNELS_STEPS, &engine->llama.logits,
                             flight->first_read * row_bytes, flight->logits,
                             (flight->sample_count - flight->first_read) * row_bytes);
}

/* Queues a step's operations one by one. */
static enum status queue_operations(struct model_engine *engine, struct queued_step *flight,
                                    struct engine_sequence *sequences, uint32_t count,
                                    struct step_batch *batch, const struct llama_samples *samples)
{
    const struct llama_samples none = {.more = true};
    bool scores = false;
    for (uint32_t i = 0; i < count; i++)
        scores |= sequences[i].score_count > 0;
    TRY(queue_rows(engine, flight, batch, scores ? &none : samples));
    if (scores) {
        TRY(score_rows(engine, sequences, count, flight->logits));
        if (samples->count)
            TRY(llama_head(&engine->llama, samples));
    }
    return queue_draws(engine, flight, flight->drawn_count);
}

/* Queues the step: its tables in one upload, the rows, their draws, and the results' way to the
 * host. */
static enum status queue_step(struct model_engine *engine, struct queued_step *flight,
                              struct engine_sequence *sequences, uint32_t count)
{
    struct kernels *kernels = engine->kernels;
    struct step_batch batch;
    struct llama_samples samples;
    place_samples(engine, flight, sequences, count);
    flight->bucket = bucket_of(engine, sequences, count);
    uint32_t words = fill_tables(engine, flight, sequences, count, &batch, &samples);
    flight->rows = batch.rows;
    flight->moved = engine->has_moved ? engine->moved : 0;
    flight->computed_before =
        engine->base.in_flight && !flight->moved ? step_before(engine, flight)->computed : 0;
    if (engine->has_moved)
        TRY(kernels_order(kernels, KERNELS_STEPS, KERNELS_MOVES, engine->moved));
    engine->has_moved = false;
    TRY(kernels_upload(kernels, KERNELS_STEPS, &engine->tables, 0, flight->tables,
                       words * sizeof *flight->tables));
    TRY(kernels_record(kernels, KERNELS_STEPS, &flight->begun));
    if (flight->bucket != STEP_BUCKETS_NONE)
        TRY(kernels_pass_run(kernels, flight->bucket));
    else
        TRY(queue_operations(engine, flight, sequences, count, &batch, &samples));
    TRY(kernels_record(kernels, KERNELS_STEPS, &flight->computed));
    TRY(queue_results(engine, flight));
    return kernels_record(kernels, KERNELS_STEPS, &flight->ended);
}

/* --- recording --- */

#define RECORD_LIMIT_US 10000000 /* start-up time for recordings */

static enum status record_bucket(struct model_engine *engine, uint32_t number, size_t most_bytes,
                                 size_t *bytes)
{
    struct queued_step *flight = &engine->flights[0];
    struct step_batch batch;
    struct llama_samples samples;
    place_samples(engine, flight, NULL, 0);
    flight->bucket = number;
    (void)fill_tables(engine, flight, NULL, 0, &batch, &samples);
    TRY(kernels_pass_begin(engine->kernels));
    enum status status = queue_rows(engine, flight, &batch, &samples);
    if (status == STATUS_OK)
        status = queue_draws(engine, flight, batch.rows);
    enum status ended = kernels_pass_end(
        engine->kernels, status == STATUS_OK ? number : KERNELS_NO_PASS, most_bytes, bytes);
    return status == STATUS_OK ? ended : status;
}

enum status model_engine_record(struct model_engine *engine)
{
    struct step_buckets *buckets = &engine->buckets;
    uint64_t begun_us = clock_now_us(), took_us = 0, used = 0;
    uint32_t ready = 0;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && ready < buckets->count &&
           took_us + step_buckets_record_us(buckets, ready) <= RECORD_LIMIT_US) {
        size_t bytes = 0;
        status = record_bucket(engine, ready, engine->memory.recorded - used, &bytes);
        used += bytes;
        uint64_t before_us = took_us;
        took_us = clock_now_us() - begun_us;
        buckets->record_us[ready] = took_us - before_us;
        if (status == STATUS_OK)
            buckets->all[ready++].ready = true;
    }
    if (status == STATUS_UNAVAILABLE || !buckets->count)
        return status;
    if (ready < buckets->count)
        log_warn("engine",
                 "msg=\"not all decode steps are recorded: the others are launched kernel by "
                 "kernel\" recorded=%u of=%u why=%s",
                 ready, buckets->count,
                 status == STATUS_OK      ? "time"
                 : status == STATUS_LIMIT ? "memory"
                                          : status_name(status));
    log_info("engine",
             "msg=\"decode steps are recorded\" recorded=%u most_rows=%u most_tokens=%u "
             "bytes=%" PRIu64 " limit_bytes=%" PRIu64 " took_ms=%" PRIu64,
             ready, ready ? buckets->all[0].rows : 0,
             ready ? buckets->all[ready - 1].blocks * engine->base.config.block_tokens : 0, used,
             engine->memory.recorded, took_us / 1000);
    buckets->count = ready;
    return STATUS_OK;
}

/* --- drawing tokens --- */

/* Draws the token of the sequence's sample `number`. */
static enum status draw_here(struct model_engine *engine, const struct engine_sequence *s,
                             uint32_t number, const float *logits, uint32_t *token)
{
    struct sampler_row row = {.logits = logits,
                              .index = s->index + number,
                              .allowed = s->allowed,
                              .tokens = s->history,
                              .token_count =
                                  s->position + s->token_count - s->sample_count + 1 + number};
    if (s->ban_end) {
        row.ban.ids[0] = s->sampling->stop_ids;
        row.ban.counts[0] = s->sampling->stop_id_count;
        row.ban.ids[1] = engine->base.model.end_ids.ids;
        row.ban.counts[1] = s->sampling->ignore_eos ? 0 : engine->base.model.end_ids.count;
    }
    return sampler_draw(&engine->sampler, &row, s->sampling, token);
}

/* Fills the results of the sequence's sample `number`. drawn: NULL if the host draws. logits: NULL
 * if it doesn't read them. */
static void give_token(struct model_engine *engine, struct engine_sequence *s, uint32_t number,
                       const struct kernels_drawn *drawn, const float *logits)
{
    const uint32_t vocab = engine->base.model.shape.vocab;
    struct engine_draw *draw = number ? &s->more[number - 1] : &s->drawn;
    s->logits = logits;
    draw->logits_hash = s->sampling->logits_hash ? logits_hash(logits, vocab) : 0;
    if (s->score_count && draw->status != STATUS_OK)
        return; /* an earlier row was bad: no token may be drawn from it */
    if (drawn)
        draw->token = drawn->token;
    draw->status =
        drawn ? (enum status)drawn->status : draw_here(engine, s, number, logits, &draw->token);
    s->logprobs.given = false;
    if (draw->status == STATUS_OK && s->sampling->logprobs)
        draw->status =
            logprobs_of(logits, vocab, draw->token, s->sampling->top_logprobs, &s->logprobs);
    if (draw->status != STATUS_OK) /* STATUS_INVALID: the request's own bans */
        log_write(draw->status == STATUS_INVALID ? LOG_DEBUG : LOG_ERROR, "engine",
                  "msg=\"no token can be drawn\" status=%s position=%u index=%u",
                  status_name(draw->status),
                  s->position + s->token_count - s->sample_count + number, s->index + number);
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
    if (status == STATUS_UNAVAILABLE)
        return error_set(err, status, "the device was lost in a step of %u rows", flight->rows);
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
    base->counters.recorded_steps += flight->bucket != STEP_BUCKETS_NONE;
    if (flight->computed_before) {
        base->counters.device_us += base->step_us;
        base->counters.idle_us += kernels_event_us(engine->kernels, KERNELS_STEPS,
                                                   flight->computed_before, flight->begun);
    }
    for (uint32_t i = 0, sample = 0; i < count; i++) {
        for (uint32_t j = 0; j < sequences[i].sample_count; j++) {
            uint32_t place = flight->places[sample++];
            size_t read = (size_t)place - flight->first_read;
            if (!sequences[i].dropped)
                give_token(engine, &sequences[i], j,
                           place < flight->drawn_count ? &flight->drawn[place] : NULL,
                           place < flight->first_read ? NULL
                                                      : logits + read * base->model.shape.vocab);
        }
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

/* --- the way to the pool for another thread, which calls all of these --- */

static enum status copied(struct model_engine *engine, enum status queued, uint64_t *copy)
{
    return queued != STATUS_OK ? queued : kernels_record(engine->kernels, KERNELS_TRANSFERS, copy);
}

static enum status copy_in(void *state, uint64_t offset, const void *host, size_t bytes,
                           uint64_t *copy)
{
    struct model_engine *engine = state;
    return copied(
        engine,
        kernels_upload(engine->kernels, KERNELS_TRANSFERS, &engine->pool, offset, host, bytes),
        copy);
}

static enum status copy_out(void *state, uint64_t offset, void *host, size_t bytes, uint64_t *copy)
{
    struct model_engine *engine = state;
    return copied(
        engine,
        kernels_read_back(engine->kernels, KERNELS_TRANSFERS, &engine->pool, offset, host, bytes),
        copy);
}

static enum status await_copy(void *state, uint64_t copy)
{
    return kernels_wait(((struct model_engine *)state)->kernels, KERNELS_TRANSFERS, copy);
}

static enum status sum_blocks(void *state, const struct kv_sum_job *job, uint32_t *sums,
                              uint64_t *copy)
{
    struct model_engine *engine = state;
    size_t bytes = job->count * (job->block_bytes / job->run_bytes) * sizeof *sums;
    TRY(kernels_block_sums(engine->kernels, &engine->pool, job, &engine->sums));
    return copied(
        engine,
        kernels_read_back(engine->kernels, KERNELS_TRANSFERS, &engine->sums, 0, sums, bytes), copy);
}

static enum status share_pool(void *state, int *fd, struct error *err)
{
    return kernels_share(((struct model_engine *)state)->kernels, fd, err);
}

static enum status map_pool(void *state, int fd, uint64_t bytes, struct kv_mapping *mapping,
                            struct error *err)
{
    struct buffer mapped;
    TRY(kernels_map(((struct model_engine *)state)->kernels, fd, bytes, &mapped, err));
    *mapping = (struct kv_mapping){mapped.address, mapped.bytes};
    return STATUS_OK;
}

static void unmap_pool(void *state, struct kv_mapping *mapping)
{
    struct buffer mapped = {mapping->address, mapping->bytes};
    kernels_unmap(((struct model_engine *)state)->kernels, &mapped);
    *mapping = (struct kv_mapping){0};
}

static enum status gather(void *state, const struct kv_mapping *from, const struct kv_move *moves,
                          uint32_t count, uint64_t *copy)
{
    struct model_engine *engine = state;
    const struct buffer source = {from->address, from->bytes};
    return copied(engine, kernels_gather(engine->kernels, &source, &engine->pool, moves, count),
                  copy);
}

static bool poll_copy(void *state, uint64_t copy, enum status *status)
{
    struct model_engine *engine = state;
    if (!kernels_passed(engine->kernels, KERNELS_TRANSFERS, copy))
        return false;
    *status = await_copy(state, copy); /* it doesn't wait now: it reports a failure */
    return true;
}

enum status model_engine_open_copier(struct model_engine *engine)
{
    int ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ended_fd < 0)
        return STATUS_LIMIT;
    engine->base.copier.ended_fd = ended_fd;
    TRY(kernels_host_alloc(engine->kernels, ENGINE_COPIER_BYTES,
                           (void **)&engine->base.copier.host));
    TRY(kernels_alloc(engine->kernels, engine->sizes.sums, &engine->sums));
    kernels_signal(engine->kernels, KERNELS_TRANSFERS, ended_fd);
    engine->base.copier = (struct kv_copier){.state = engine,
                                             .host = engine->base.copier.host,
                                             .host_bytes = ENGINE_COPIER_BYTES,
                                             .ended_fd = ended_fd,
                                             .copy_in = copy_in,
                                             .copy_out = copy_out,
                                             .poll = poll_copy,
                                             .wait = await_copy,
                                             .sum = sum_blocks};
    if (*engine->shares_nothing.text) {
        engine->base.copier.shares_nothing = engine->shares_nothing.text;
        return STATUS_OK;
    }
    const size_t unit = KV_PROBE_PIECE_BYTES;
    engine->base.copier.memory = engine->pool.address;
    engine->base.copier.probe_offset = (engine->base.pool_bytes + unit - 1) / unit * unit;
    engine->base.copier.share = share_pool;
    engine->base.copier.map = map_pool;
    engine->base.copier.unmap = unmap_pool;
    engine->base.copier.gather = gather;
    return STATUS_OK;
}
