#include "common/engine/mock/mock_engine.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/engine/engine_state.h"
#include "common/language/text/detokenizer.h"

#include <errno.h>
#include <malloc.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MAX_TOKENS 4096 /* to draw from */

struct mock_engine {
    struct engine base;
    struct step_profile profile;
    uint8_t *pool, *own_pool; /* own_pool: NULL if the pool is the caller's */
    uint32_t *token_ids;
    struct mock_tokens tokens;
    uint64_t moved_tokens; /* to or from slots since the last moves_done */
    sem_t wake;            /* posted by an interrupt */
    _Atomic bool interrupted;
};

/* --- tokens to draw --- */

/* Returns whether the token is plain text: one or more printable characters of ASCII. */
static bool is_plain(const struct tokenizer *tokenizer, uint32_t id)
{
    size_t length;
    const char *text = token_text_is_known(tokenizer)
                           ? token_text(tokenizer, id, false, &length)
                           : tokenizer_token_bytes(tokenizer, id, &length);
    if (!text || !length || tokenizer_is_special(tokenizer, id))
        return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] < 0x20 || text[i] > 0x7e)
            return false;
    return true;
}

/* Lists the ids to draw: every n-th of those that are fit, so that they are at most MAX_TOKENS.
 * `tokenizer`: NULL: all are fit but the end ids. Returns the number of fit ids. */
static uint32_t list_tokens(struct mock_engine *mock, const struct tokenizer *tokenizer,
                            uint32_t every)
{
    const struct end_ids *end = &mock->base.model.end_ids;
    uint32_t fit = 0;
    mock->tokens.count = 0;
    for (uint32_t id = 0; id < mock->base.model.shape.vocab; id++) {
        bool ends = false;
        for (uint32_t i = 0; i < end->count; i++)
            ends |= end->ids[i] == id;
        if (ends || (tokenizer && !is_plain(tokenizer, id)))
            continue;
        if (fit++ % every == 0 && mock->tokens.count < MAX_TOKENS)
            mock->token_ids[mock->tokens.count++] = id;
    }
    return fit;
}

static enum status choose_tokens(struct mock_engine *mock, const char *model_dir, struct error *err)
{
    char path[1100];
    struct tokenizer *tokenizer = NULL;
    snprintf(path, sizeof path, "%s/tokenizer.json", model_dir);
    if (access(path, F_OK) == 0)
        TRY(tokenizer_open(path, &tokenizer, err));
    mock->token_ids = calloc(MAX_TOKENS, sizeof *mock->token_ids);
    if (!mock->token_ids) {
        tokenizer_close(tokenizer);
        return error_set(err, STATUS_LIMIT, "no memory for the tokens of a mock engine");
    }
    uint32_t fit = list_tokens(mock, tokenizer, 1);
    if (!fit && tokenizer) { /* a vocabulary without ASCII */
        tokenizer_close(tokenizer);
        tokenizer = NULL;
        fit = list_tokens(mock, NULL, 1);
    }
    if (fit > MAX_TOKENS)
        (void)list_tokens(mock, tokenizer, (fit + MAX_TOKENS - 1) / MAX_TOKENS);
    tokenizer_close(tokenizer);
    (void)malloc_trim(0); /* a tokenizer takes much more memory than all the rest */
    if (!fit)
        return error_set(err, STATUS_INVALID,
                         "%s: every id of the vocabulary ends an answer: the mock engine has no "
                         "token to draw",
                         model_dir);
    const struct end_ids *end = &mock->base.model.end_ids;
    mock->tokens.ids = mock->token_ids;
    mock->tokens.vocab = mock->base.model.shape.vocab;
    mock->tokens.end_ids = end->ids;
    mock->tokens.end_count = end->count;
    return STATUS_OK;
}

/* --- time --- */

/* Sleeps until the monotonic clock has come to `until_ns`, or until an interrupt. */
static void sleep_until(struct mock_engine *mock, uint64_t until_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                   .tv_nsec = (long)(until_ns % 1000000000u)};
    while (!atomic_load(&mock->interrupted) &&
           sem_clockwait(&mock->wake, CLOCK_MONOTONIC, &until) != 0 && errno == EINTR)
        continue;
}

static struct step_shape shape_of(const struct engine_sequence *sequences, uint32_t count)
{
    struct step_shape shape = {0};
    for (uint32_t i = 0; i < count; i++) {
        const struct engine_sequence *s = &sequences[i];
        uint64_t prompt = s->prompt_rows, decode = s->token_count - prompt;
        shape.prefill_rows += (uint32_t)prompt;
        shape.prefill_positions += prompt * s->position + (prompt ? prompt * (prompt - 1) / 2 : 0);
        uint64_t from = s->position + prompt;
        shape.decode_rows += (uint32_t)decode;
        shape.decode_context += decode * from + (decode ? decode * (decode - 1) / 2 : 0);
    }
    return shape;
}

/* --- its operations --- */

static enum status attach_pool(struct engine *base, void *pool)
{
    struct mock_engine *mock = (struct mock_engine *)base;
    if (!pool) {
        mock->own_pool = calloc(1, base->pool_bytes);
        if (!mock->own_pool)
            return STATUS_LIMIT;
    }
    mock->pool = pool ? pool : mock->own_pool;
    base->pool_address = mock->pool;
    return STATUS_OK;
}

static void run_sequence(struct mock_engine *mock, struct engine_sequence *s)
{
    const struct mock_kv kv = {.pool = mock->pool,
                               .layout = &mock->base.layout,
                               .blocks = s->blocks,
                               .seed = mock->base.model_hash};
    uint32_t drafts = s->sample_count ? s->sample_count - 1 : 0, sure = s->token_count - drafts;
    uint64_t context = mock_write_rows(&kv, s->tokens, s->position, sure);
    s->drawn.status = STATUS_OK;
    for (uint32_t i = 0; i < s->score_count; i++)
        mock_logprobs(&mock->tokens, mock_row(&kv, s->position + s->score_first + i),
                      s->score_tokens[i], s->score_top, &s->scores[i]);
    s->logits = NULL;
    s->logprobs.given = false;
    for (uint32_t i = 0; i < s->sample_count; i++) {
        struct engine_draw *draw = i ? &s->more[i - 1] : &s->drawn;
        struct engine_sequence row = *s;
        row.index += i;
        if (i)
            context = mock_write_rows(&kv, s->tokens + sure + i - 1, s->position + sure + i - 1, 1);
        draw->logits_hash = s->sampling->logits_hash ? context : 0;
        draw->status = mock_draw(&mock->tokens, &row, context, &draw->token);
    }
    if (s->sample_count && s->drawn.status == STATUS_OK && s->sampling->logprobs)
        mock_logprobs(&mock->tokens, context, s->drawn.token, s->sampling->top_logprobs,
                      &s->logprobs);
}

static enum status run_step(struct engine *base, engine_ticket ticket,
                            struct engine_sequence *sequences, uint32_t count, struct error *err)
{
    (void)ticket;
    (void)err;
    struct mock_engine *mock = (struct mock_engine *)base;
    uint64_t begun_ns = clock_now_ns();
    const struct step_shape shape = shape_of(sequences, count);
    double us = step_profile_us(&mock->profile, &shape, base->counters.steps);
    for (uint32_t i = 0; i < count; i++)
        run_sequence(mock, &sequences[i]);
    if (us > 0)
        sleep_until(mock, begun_ns + (uint64_t)(us * 1000));
    return STATUS_OK;
}

static enum status move_block(struct engine *base, enum engine_move move, uint32_t from,
                              uint32_t to)
{
    struct mock_engine *mock = (struct mock_engine *)base;
    size_t bytes = kv_layout_block_bytes(&base->layout);
    char *pool = (char *)mock->pool;
    const char *source = (move == ENGINE_SWAP_IN ? base->slots : pool) + from * bytes;
    char *target = (move == ENGINE_SWAP_OUT ? base->slots : pool) + to * bytes;
    if (source == target)
        return STATUS_INVALID;
    memcpy(target, source, bytes);
    if (move != ENGINE_COPY)
        mock->moved_tokens += base->layout.block_tokens;
    return STATUS_OK;
}

static enum status moves_done(struct engine *base)
{
    struct mock_engine *mock = (struct mock_engine *)base;
    double us = step_profile_swap_us(&mock->profile, mock->moved_tokens);
    mock->moved_tokens = 0;
    if (us > 0)
        sleep_until(mock, clock_now_ns() + (uint64_t)(us * 1000));
    return STATUS_OK;
}

static void interrupt(struct engine *base)
{
    struct mock_engine *mock = (struct mock_engine *)base;
    atomic_store(&mock->interrupted, true);
    sem_post(&mock->wake);
}

/* It has no weights to read and no arithmetic: chunks keep the length that the settings give. */
static struct engine_limits measure_limits(struct engine *base)
{
    return (struct engine_limits){.isa = base->isa, .instruction = ""};
}

static void close_engine(struct engine *base)
{
    struct mock_engine *mock = (struct mock_engine *)base;
    sem_destroy(&mock->wake);
    free(mock->own_pool);
    free(base->slots);
    free(mock->token_ids);
    free(mock);
}

static const struct engine_ops mock_engine_ops = {
    .close = close_engine,
    .attach_pool = attach_pool,
    .wait = run_step,
    .move_block = move_block,
    .moves_done = moves_done,
    .interrupt = interrupt,
    .measure_limits = measure_limits,
};

/* --- opening --- */

static enum status open_parts(struct mock_engine *mock, const struct engine_config *config,
                              struct error *err)
{
    struct engine *base = &mock->base;
    TRY(engine_read_model(base, config->model_dir, err));
    const struct kv_layout layout = mock_layout(config->block_tokens);
    TRY(engine_set_layout(base, &layout, err));
    base->slots = calloc(1, base->slot_bytes + 1);
    if (!base->slots)
        return error_set(err, STATUS_LIMIT, "no memory for %u swapped KV blocks",
                         config->swap_blocks);
    TRY(choose_tokens(mock, config->model_dir, err));
    base->isa = "mock";
    snprintf(base->numerics_name, sizeof base->numerics_name, "mock/v%d/block%u", MOCK_VERSION,
             config->block_tokens);
    size_t length = strlen(base->numerics_name);
    base->numerics_id = hash_bytes(base->numerics_name, length, HASH_SEED);
    uint64_t named = hash_bytes("mock", strlen("mock"), HASH_SEED);
    base->model_hash = engine_hash_shape(&base->model.shape, named);
    log_info("engine",
             "msg=\"opened: a mock, and its answers mean nothing\" numerics=%s profile=%s "
             "pool_bytes=%zu block_bytes=%zu blocks=%u tokens_to_draw=%u",
             base->numerics_name, *mock->profile.name ? mock->profile.name : "none",
             base->pool_bytes, kv_layout_block_bytes(&layout), config->block_count,
             mock->tokens.count);
    return STATUS_OK;
}

enum status mock_engine_open(const struct engine_config *config, struct engine **out,
                             struct error *err)
{
    struct mock_engine *mock = calloc(1, sizeof *mock);
    if (!mock || sem_init(&mock->wake, 0, 0)) {
        free(mock);
        return error_set(err, STATUS_LIMIT, "no memory for a mock engine");
    }
    mock->base.ops = &mock_engine_ops;
    mock->base.config = *config;
    mock->base.config.model_dir = NULL;
    mock->base.config.weight_cache = NULL;
    mock->base.config.kernels.cpus = NULL;
    mock->base.config.profile = NULL;
    if (config->profile)
        mock->profile = *config->profile;
    enum status status = open_parts(mock, config, err);
    if (status != STATUS_OK) {
        engine_close(&mock->base);
        return status;
    }
    *out = &mock->base;
    return STATUS_OK;
}
