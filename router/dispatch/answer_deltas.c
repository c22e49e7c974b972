#include "router/dispatch/answer_deltas.h"

#include "common/base/assert.h"

#include <stdlib.h>
#include <string.h>

enum status answer_deltas_init(struct answer_deltas *out, const struct answer_deltas_config *config,
                               struct error *err)
{
    static const struct reasoning_tags none = {.inside = false};
    ASSERT(config->tokenizer || !config->stop_count);
    ASSERT(config->stop_count <= STOP_MATCHER_LIMIT_COUNT);
    *out = (struct answer_deltas){.tokenizer = config->tokenizer,
                                  .return_token_ids = config->return_token_ids,
                                  .return_logits_hash = config->return_logits_hash,
                                  .return_logprobs = config->return_logprobs,
                                  .stop = STOP_MATCHER_NONE};
    TRY(stop_matcher_create(config->stops, config->stop_count, &out->matcher, err));
    if (config->tokenizer)
        detokenizer_init(&out->detokenizer, config->tokenizer, config->skip_special_tokens);
    size_t limit = config->max_text_bytes ? config->max_text_bytes : ANSWER_DELTAS_MAX_TEXT_BYTES;
    reasoning_splitter_init(&out->splitter, config->reasoning ? config->reasoning : &none);
    str_init(&out->piece, limit);
    str_init(&out->content, limit);
    str_init(&out->text, limit);
    str_init(&out->taken, limit);
    str_init(&out->reasoning, limit);
    str_init(&out->taken_reasoning, limit);
    return STATUS_OK;
}

void answer_deltas_deinit(struct answer_deltas *out)
{
    stop_matcher_destroy(out->matcher);
    str_deinit(&out->piece);
    str_deinit(&out->content);
    str_deinit(&out->text);
    str_deinit(&out->taken);
    str_deinit(&out->reasoning);
    str_deinit(&out->taken_reasoning);
    free(out->ids);
    free(out->hashes);
    free(out->logprobs);
}

/* Moves the piece to the reasoning, or through the stop strings to the text. `last`: no more comes.
 * True: a stop string matched. */
static bool release_piece(struct answer_deltas *out, bool last)
{
    struct reasoning_splitter *splitter = &out->splitter;
    bool open = splitter->state == REASONING_BEFORE || splitter->state == REASONING_INSIDE;
    const struct str *content = &out->piece;
    if (splitter->state != REASONING_CONTENT) {
        content = &out->content;
        reasoning_splitter_push(splitter, out->piece.data, out->piece.length, &out->reasoning,
                                &out->content);
        if (last)
            reasoning_splitter_end(splitter, &out->reasoning, &out->content);
    }
    if (open && splitter->reasoned && !last)
        out->reasoning_tokens = out->count;
    out->stop = stop_matcher_push(out->matcher, content->data, content->length, &out->text);
    out->overflowed |= out->piece.truncated || out->content.truncated;
    str_clear(&out->piece);
    str_clear(&out->content);
    return out->stop != STOP_MATCHER_NONE;
}

static bool is_tag(const char *tag, const char *text, size_t length)
{
    return strlen(tag) == length && !memcmp(tag, text, length);
}

/* A tag may be a special token, which isn't text. The splitter gets it all the same where it begins
 * or ends reasoning; elsewhere it would become text. Half a character before it ends there. */
static void add_special_tag(struct answer_deltas *out, uint32_t id)
{
    const struct reasoning_splitter *splitter = &out->splitter;
    bool inside = splitter->state == REASONING_INSIDE;
    bool may_begin = !out->detokenizer.held_count &&
                     (inside ? splitter->may_repeat && !splitter->repeated : !splitter->matched);
    size_t length = 0;
    const char *text = token_special_text(out->tokenizer, id, &length);
    if (!text || (!(may_begin && is_tag(splitter->tags.begin, text, length)) &&
                  !(inside && is_tag(splitter->tags.end, text, length))))
        return;
    detokenizer_flush(&out->detokenizer, &out->piece);
    str_append(&out->piece, text, length);
}

static void grow(struct answer_deltas *out)
{
    out->capacity = out->capacity ? out->capacity * 2 : 16;
    out->ids = realloc(out->ids, out->capacity * sizeof *out->ids);
    out->hashes = realloc(out->hashes, out->capacity * sizeof *out->hashes);
    ASSERT(out->ids && out->hashes);
    if (!out->return_logprobs)
        return;
    out->logprobs = realloc(out->logprobs, out->capacity * sizeof *out->logprobs);
    ASSERT(out->logprobs);
}

static void keep(struct answer_deltas *out, const struct stream_token *token)
{
    size_t pending = out->count - out->first;
    if (pending == out->capacity)
        grow(out);
    out->ids[pending] = token->id;
    out->hashes[pending] = token->logits_hash;
    if (out->return_logprobs)
        out->logprobs[pending] = *token->logprobs;
    out->count++;
}

bool answer_deltas_token(struct answer_deltas *out, const struct stream_token *token,
                         enum finish_reason finish)
{
    ASSERT(!out->ended);
    keep(out, token);
    if (!out->tokenizer || finish == FINISH_EOS || finish == FINISH_STOP_TOKEN)
        return false;
    detokenizer_push(&out->detokenizer, token->id, &out->piece);
    if (out->detokenizer.skip_special && out->splitter.state <= REASONING_INSIDE)
        add_special_tag(out, token->id);
    out->ended = release_piece(out, false);
    return out->ended;
}

enum finish_reason answer_deltas_end(struct answer_deltas *out, enum finish_reason finish)
{
    if (out->tokenizer && out->stop == STOP_MATCHER_NONE) {
        detokenizer_flush(&out->detokenizer, &out->piece);
        if (!release_piece(out, true))
            stop_matcher_flush(out->matcher, &out->text);
    }
    out->ended = true;
    return out->stop == STOP_MATCHER_NONE ? finish : FINISH_STOP_STRING;
}

bool answer_deltas_take(struct answer_deltas *out, struct stream_delta *delta)
{
    size_t pending = out->count - out->first;
    out->overflowed = answer_deltas_overflowed(out);
    str_clear(&out->taken);
    struct str text = out->taken; /* the two change places, so that the delta's text stays */
    out->taken = out->text;
    out->text = text;
    str_clear(&out->taken_reasoning);
    text = out->taken_reasoning;
    out->taken_reasoning = out->reasoning;
    out->reasoning = text;
    *delta =
        (struct stream_delta){.first_index = out->first,
                              .text = {out->taken.data, out->taken.length},
                              .reasoning = {out->taken_reasoning.data, out->taken_reasoning.length},
                              .ids = out->ids,
                              .id_count = out->return_token_ids ? pending : 0,
                              .hashes = out->hashes,
                              .hash_count = out->return_logits_hash ? pending : 0,
                              .logprobs = out->logprobs,
                              .logprobs_count = out->return_logprobs ? pending : 0};
    out->first = out->count;
    return out->taken.length || out->taken_reasoning.length || delta->id_count ||
           delta->hash_count || delta->logprobs_count;
}

bool answer_deltas_overflowed(const struct answer_deltas *out)
{
    return out->overflowed || out->text.truncated || out->reasoning.truncated ||
           out->piece.truncated;
}

bool answer_deltas_stop(const struct answer_deltas *out, struct text *stop)
{
    if (out->stop == STOP_MATCHER_NONE)
        return false;
    *stop = stop_matcher_text(out->matcher, out->stop);
    return true;
}
