#include "router/doors/openai/openai_answer.h"

#include "common/base/json/json_quote.h"
#include "common/base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool openai_finish_cut(enum finish_reason finish)
{
    return finish == FINISH_MAX_TOKENS || finish == FINISH_CONTEXT;
}

static const char *finish_name(const struct openai_answer *answer,
                               const struct openai_choice *choice, enum finish_reason finish)
{
    if (openai_finish_cut(finish))
        return "length";
    return choice->calls && !answer->tool_named ? "tool_calls" : "stop";
}

void openai_call_id(const struct openai_answer *answer, uint32_t choice, uint32_t call, char id[32])
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const uint32_t numbers[] = {choice, call};
    uint64_t hash = hash_bytes(answer->request_id, strlen(answer->request_id), HASH_SEED);
    hash = hash_bytes(numbers, sizeof numbers, hash);
    bool mistral = answer->tools == TOOL_FORMAT_MISTRAL;
    size_t begin = mistral ? 0 : 5, end = mistral ? 9 : 29;
    memcpy(id, "call_", 5);
    for (size_t i = begin; i < end; i++) {
        id[i] = digits[hash % 62];
        hash = hash / 62 ? hash / 62 : hash_bytes(id, i, HASH_SEED + choice * 131 + call);
    }
    id[end] = 0;
}

/* ------------------------------------------------------------------------------------- logprobs */

static struct openai_token shown(const struct tokenizer *tokenizer, uint32_t id)
{
    struct openai_token token = {.id = id, .bytes = ""};
    const char *bytes = tokenizer ? tokenizer_token_bytes(tokenizer, id, &token.length) : NULL;
    if (bytes)
        token.bytes = bytes;
    else
        token.length = 0;
    return token;
}

struct openai_token *token_texts_make(const struct tokenizer *tokenizer, const uint32_t *ids,
                                      const struct token_logprobs *logprobs, size_t count)
{
    size_t tops = 0;
    for (size_t i = 0; logprobs && i < count; i++)
        tops += logprobs[i].top_count;
    struct openai_token *tokens = count ? malloc((count + tops) * sizeof *tokens) : NULL;
    if (!tokens)
        return NULL;
    struct openai_token *top = tokens + count;
    for (size_t i = 0; i < count; i++) {
        tokens[i] = shown(tokenizer, ids[i]);
        if (!logprobs || !logprobs[i].given)
            continue;
        tokens[i].has_logprob = true;
        tokens[i].logprob = logprobs[i].logprob;
        tokens[i].top = top;
        tokens[i].top_count = logprobs[i].top_count;
        for (uint32_t t = 0; t < logprobs[i].top_count; t++, top++) {
            *top = shown(tokenizer, logprobs[i].top_ids[t]);
            top->has_logprob = true;
            top->logprob = logprobs[i].top_logprobs[t];
        }
    }
    return tokens;
}

static void add_logprob(struct str *out, const struct openai_token *token)
{
    if (token->has_logprob)
        str_addf(out, "%.9g", (double)token->logprob);
    else
        str_add(out, "null");
}

static void add_token(struct str *out, const struct openai_token *token)
{
    str_add(out, "{\"token\":");
    json_quote(out, token->bytes, token->length);
    str_add(out, ",\"logprob\":");
    add_logprob(out, token);
    str_add(out, ",\"bytes\":[");
    for (size_t i = 0; i < token->length; i++)
        str_addf(out, "%s%u", i ? "," : "", (unsigned char)token->bytes[i]);
    str_add(out, "]");
}

void openai_logprobs_chat(struct str *out, const struct openai_token *tokens, size_t count)
{
    str_add(out, "{\"content\":[");
    for (size_t i = 0; i < count; i++) {
        str_add(out, i ? "," : "");
        add_token(out, &tokens[i]);
        str_add(out, ",\"top_logprobs\":[");
        for (size_t t = 0; t < tokens[i].top_count; t++) {
            str_add(out, t ? "," : "");
            add_token(out, &tokens[i].top[t]);
            str_add(out, "}");
        }
        str_add(out, "]}");
    }
    str_add(out, "],\"refusal\":null}");
}

size_t openai_characters(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t at = 0; at < length; count++)
        at += utf8_next(text + at, length - at).length;
    return count;
}

/* The keys of one object of tokens: their texts as JSON writes them. */
struct token_keys {
    struct str texts; /* one behind another */
    size_t ends[LOGPROBS_MAX_TOP + 1];
    size_t count;
};

/* Appends the token's key. It is the token's text, or for one that reads like an earlier token
 * (equal texts, or parts of characters, which are all U+FFFD) vLLM's name of an id. */
static void add_key(struct str *out, struct token_keys *keys, const struct openai_token *token)
{
    struct str *texts = &keys->texts;
    size_t begin = texts->length, at = 0;
    bool taken = false;
    json_quote(texts, token->bytes, token->length);
    for (size_t i = 0; i < keys->count; at = keys->ends[i++])
        taken |= keys->ends[i] - at == texts->length - begin &&
                 !memcmp(texts->data + at, texts->data + begin, texts->length - begin);
    keys->ends[keys->count++] = texts->length;
    if (taken)
        str_addf(out, "\"token_id:%u\"", token->id);
    else
        str_append(out, texts->data + begin, texts->length - begin);
}

/* An object of the likeliest tokens, and of the token itself if it isn't one of them. */
static void add_top(struct str *out, const struct openai_token *token)
{
    struct token_keys keys = {.count = 0};
    bool among = false;
    if (!token->has_logprob) {
        str_add(out, "null");
        return;
    }
    str_init(&keys.texts, SIZE_MAX);
    str_add(out, "{");
    for (size_t t = 0; t < token->top_count; t++)
        among |= token->top[t].id == token->id;
    for (size_t t = 0; t < token->top_count + !among; t++) {
        const struct openai_token *one = t < token->top_count ? &token->top[t] : token;
        str_add(out, t ? "," : "");
        add_key(out, &keys, one);
        str_add(out, ":");
        add_logprob(out, one);
    }
    str_add(out, "}");
    str_deinit(&keys.texts);
}

void openai_logprobs_completion(struct str *out, const struct openai_token *tokens, size_t count,
                                size_t *offset)
{
    str_add(out, "{\"tokens\":[");
    for (size_t i = 0; i < count; i++) {
        str_add(out, i ? "," : "");
        json_quote(out, tokens[i].bytes, tokens[i].length);
    }
    str_add(out, "],\"token_logprobs\":[");
    for (size_t i = 0; i < count; i++) {
        str_add(out, i ? "," : "");
        add_logprob(out, &tokens[i]);
    }
    str_add(out, "],\"top_logprobs\":[");
    for (size_t i = 0; i < count; i++) {
        str_add(out, i ? "," : "");
        add_top(out, &tokens[i]);
    }
    str_add(out, "],\"text_offset\":[");
    for (size_t i = 0; i < count; i++) {
        str_addf(out, "%s%zu", i ? "," : "", *offset);
        *offset += openai_characters(tokens[i].bytes, tokens[i].length);
    }
    str_add(out, "]}");
}

/* ------------------------------------------------------------------------------------- a stream */

/* {"id":...,"object":...,"created":...,"model":...,"choices": */
static void begin_object(struct str *out, const struct openai_answer *answer, bool chunk)
{
    char id[OPENAI_ID_BYTES];
    bool chat = answer->kind == OPENAI_CHAT;
    int length = snprintf(id, sizeof id, "%s-%s", chat ? "chatcmpl" : "cmpl", answer->request_id);
    str_add(out, "{\"id\":");
    json_quote(out, id, (size_t)length < sizeof id ? (size_t)length : sizeof id - 1);
    str_addf(out, ",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":",
             !chat   ? "text_completion"
             : chunk ? "chat.completion.chunk"
                     : "chat.completion",
             answer->created_s);
    json_quote(out, answer->model, strlen(answer->model));
    str_add(out, ",\"choices\":");
}

static void add_usage(struct str *out, const struct openai_usage *usage)
{
    uint64_t total = (uint64_t)usage->prompt_tokens + usage->completion_tokens;
    str_addf(out,
             ",\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%" PRIu64
             ",\"prompt_tokens_details\":{\"cached_tokens\":%u},\"completion_tokens_details\":{"
             "\"reasoning_tokens\":%u}}",
             usage->prompt_tokens, usage->completion_tokens, total, usage->cached_tokens,
             usage->reasoning_tokens);
}

static void add_ids(struct str *out, const struct openai_token_ids *ids)
{
    for (size_t i = 0; i < ids->count; i++)
        str_addf(out, "%s%u", i ? "," : "[", ids->ids[i]);
    str_add(out, ids->count ? "]" : "[]");
}

static void begin_chunk(struct str *out, const struct openai_answer *answer)
{
    str_add(out, "data: ");
    begin_object(out, answer, true);
}

/* Ends a chunk that has a choice. */
static void end_chunk(struct str *out, const struct openai_answer *answer,
                      const struct openai_usage *usage)
{
    if (answer->continuous_usage)
        add_usage(out, usage);
    else if (answer->include_usage)
        str_add(out, ",\"usage\":null");
    str_add(out, "}\n\n");
}

/* Appends tool_calls, a member of the delta: a call's name, or a piece of its arguments. */
static void add_call_delta(struct str *out, const struct openai_answer *answer,
                           const struct openai_choice *choice, const struct tool_event *event)
{
    char id[32];
    str_addf(out, "\"tool_calls\":[{\"index\":%u,", event->index);
    if (event->kind == TOOL_CALL) {
        openai_call_id(answer, choice->index, event->index, id);
        str_addf(out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", id);
        json_quote(out, event->text, event->length);
        str_add(out, ",\"arguments\":\"\"}}]");
        return;
    }
    str_add(out, "\"function\":{\"arguments\":");
    json_quote(out, event->text, event->length);
    str_add(out, "}}]");
}

static void add_logprobs(struct str *out, const struct openai_answer *answer,
                         struct openai_choice *choice, const struct openai_token *tokens,
                         size_t count)
{
    str_add(out, ",\"logprobs\":");
    if (!answer->logprobs || !count)
        str_add(out, "null");
    else if (answer->kind == OPENAI_CHAT)
        openai_logprobs_chat(out, tokens, count);
    else
        openai_logprobs_completion(out, tokens, count, &choice->characters);
    choice->tokens_shown += (uint32_t)count;
}

static void add_piece_ids(struct str *out, const struct openai_answer *answer, bool first,
                          const struct openai_piece *piece)
{
    if (answer->token_ids && answer->kind == OPENAI_COMPLETION && first) {
        str_add(out, ",\"prompt_token_ids\":");
        add_ids(out, &piece->prompt);
    }
    if (answer->token_ids) {
        str_add(out, ",\"token_ids\":");
        add_ids(out, &piece->ids);
    }
}

void openai_chunk(struct str *out, const struct openai_answer *answer, struct openai_choice *choice,
                  const struct openai_piece *piece)
{
    bool call = piece->event != NULL, first = !choice->begun;
    begin_chunk(out, answer);
    str_addf(out, "[{\"index\":%u,", choice->index);
    if (answer->kind == OPENAI_COMPLETION) {
        str_add(out, "\"text\":");
        json_quote(out, piece->text, piece->length);
    } else {
        str_add(out, "\"delta\":{");
        str_add(out, first ? "\"role\":\"assistant\"," : "");
        if (call) {
            str_add(out, first ? "\"content\":null," : "");
            add_call_delta(out, answer, choice, piece->event);
        } else {
            str_add(out, first && piece->reasoning ? "\"content\":null," : "");
            str_add(out, piece->reasoning ? "\"reasoning_content\":" : "\"content\":");
            json_quote(out, piece->text, piece->length);
        }
        str_add(out, "}");
    }
    if (call)
        choice->calls = piece->event->index + 1;
    choice->begun = true;
    add_logprobs(out, answer, choice, piece->tokens, piece->token_count);
    str_add(out, ",\"finish_reason\":null");
    add_piece_ids(out, answer, first, piece);
    str_add(out, "}]");
    if (answer->token_ids && answer->kind == OPENAI_CHAT && first) {
        str_add(out, ",\"prompt_token_ids\":");
        add_ids(out, &piece->prompt);
    }
    end_chunk(out, answer, &piece->usage);
}

void openai_chunk_end(struct str *out, const struct openai_answer *answer,
                      struct openai_choice *choice, enum finish_reason finish,
                      const struct openai_usage *usage)
{
    begin_chunk(out, answer);
    str_addf(out, "[{\"index\":%u,", choice->index);
    if (answer->kind == OPENAI_COMPLETION)
        str_add(out, "\"text\":\"\"");
    else if (choice->begun)
        str_add(out, "\"delta\":{}");
    else /* as add_message writes an answer without text */
        str_addf(out, "\"delta\":{\"role\":\"assistant\",\"content\":%s}",
                 choice->reasoned ? "null" : "\"\"");
    choice->begun = true;
    str_addf(out, ",\"logprobs\":null,\"finish_reason\":\"%s\"}]",
             finish_name(answer, choice, finish));
    end_chunk(out, answer, usage);
}

void openai_chunk_usage(struct str *out, const struct openai_answer *answer,
                        const struct openai_usage *usage)
{
    begin_chunk(out, answer);
    str_add(out, "[]");
    add_usage(out, usage);
    str_add(out, "}\n\n");
}

void openai_chunk_error(struct str *out, enum reason reason, const char *sentence)
{
    str_add(out, "data: ");
    openai_error_json(out, reason, NULL, sentence);
    str_add(out, "\n\n" OPENAI_DONE);
}

/* ----------------------------------------------------------------------------------- one object */

void openai_whole_init(struct openai_whole *whole, uint32_t index, size_t limit_bytes)
{
    *whole = (struct openai_whole){.choice = {.index = index}};
    str_init(&whole->text, limit_bytes);
    str_init(&whole->reasoning, limit_bytes);
    str_init(&whole->calls, limit_bytes);
    str_init(&whole->logprobs, limit_bytes);
    str_init(&whole->ids, limit_bytes);
    str_init(&whole->prompt_ids, limit_bytes);
}

void openai_whole_deinit(struct openai_whole *whole)
{
    str_deinit(&whole->text);
    str_deinit(&whole->reasoning);
    str_deinit(&whole->calls);
    str_deinit(&whole->logprobs);
    str_deinit(&whole->ids);
    str_deinit(&whole->prompt_ids);
}

bool openai_whole_truncated(const struct openai_whole *whole)
{
    return whole->text.truncated || whole->reasoning.truncated || whole->calls.truncated ||
           whole->logprobs.truncated || whole->ids.truncated || whole->prompt_ids.truncated;
}

/* `calls` ends inside the string of the last call's arguments: [{...,"arguments":"... More
 * arguments are appended to the string; the next call or openai_object closes it. */
void openai_whole_event(struct openai_whole *whole, const struct openai_answer *answer,
                        const struct tool_event *event)
{
    char id[32];
    struct str *calls = &whole->calls;
    switch (event->kind) {
    case TOOL_TEXT: str_append(&whole->text, event->text, event->length); break;
    case TOOL_CALL:
        openai_call_id(answer, whole->choice.index, event->index, id);
        str_addf(calls, "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":",
                 whole->choice.calls++ ? "\"}}," : "[", id);
        json_quote(calls, event->text, event->length);
        str_add(calls, ",\"arguments\":\"");
        break;
    case TOOL_ARGUMENTS: {
        struct str quoted;
        str_init(&quoted, calls->limit);
        json_quote(&quoted, event->text, event->length);
        if (quoted.truncated)
            calls->truncated = true;
        else
            str_append(calls, quoted.data + 1, quoted.length - 2);
        str_deinit(&quoted);
        break;
    }
    }
}

void openai_whole_tokens(struct openai_whole *whole, const struct openai_answer *answer,
                         const struct openai_token *tokens, size_t count)
{
    str_clear(&whole->logprobs);
    if (answer->kind == OPENAI_CHAT)
        openai_logprobs_chat(&whole->logprobs, tokens, count);
    else
        openai_logprobs_completion(&whole->logprobs, tokens, count, &whole->choice.characters);
}

void openai_whole_ids(struct openai_whole *whole, const struct openai_token_ids *prompt,
                      const struct openai_token_ids *ids)
{
    str_clear(&whole->ids);
    str_clear(&whole->prompt_ids);
    add_ids(&whole->ids, ids);
    add_ids(&whole->prompt_ids, prompt);
}

/* Appends the member if it has a value. */
static void add_member(struct str *out, const char *name, const struct str *value)
{
    if (!value->length)
        return;
    str_addf(out, ",\"%s\":", name);
    str_append(out, value->data, value->length);
}

static void add_message(struct str *out, const struct openai_answer *answer,
                        const struct openai_whole *whole)
{
    const struct str *reasoning = &whole->reasoning;
    str_add(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    if ((whole->choice.calls || whole->choice.reasoned) && !whole->text.length)
        str_add(out, "null");
    else
        json_quote(out, whole->text.data, whole->text.length);
    str_add(out, answer->reasoning ? ",\"reasoning_content\":" : "");
    if (answer->reasoning && reasoning->length)
        json_quote(out, reasoning->data, reasoning->length);
    else if (answer->reasoning)
        str_add(out, "null");
    str_add(out, ",\"refusal\":null");
    if (whole->choice.calls) {
        str_add(out, ",\"tool_calls\":");
        str_append(out, whole->calls.data, whole->calls.length);
        str_add(out, "\"}}]");
    }
    str_add(out, "}");
}

static void add_choice(struct str *out, const struct openai_answer *answer,
                       const struct openai_whole *whole)
{
    str_addf(out, "{\"index\":%u,", whole->choice.index);
    if (answer->kind == OPENAI_COMPLETION) {
        str_add(out, "\"text\":");
        json_quote(out, whole->text.data, whole->text.length);
    } else {
        add_message(out, answer, whole);
    }
    str_add(out, ",\"logprobs\":");
    str_add(out, whole->logprobs.length ? whole->logprobs.data : "null");
    str_addf(out, ",\"finish_reason\":\"%s\"", finish_name(answer, &whole->choice, whole->finish));
    if (answer->kind == OPENAI_COMPLETION)
        add_member(out, "prompt_token_ids", &whole->prompt_ids);
    add_member(out, "token_ids", &whole->ids);
    str_add(out, "}");
}

void openai_object(struct str *out, const struct openai_answer *answer,
                   const struct openai_whole *const *choices, size_t count,
                   const struct openai_usage *usage)
{
    begin_object(out, answer, false);
    for (size_t i = 0; i < count; i++) {
        str_add(out, i ? "," : "[");
        add_choice(out, answer, choices[i]);
    }
    str_add(out, "]");
    if (answer->kind == OPENAI_CHAT)
        add_member(out, "prompt_token_ids", &choices[0]->prompt_ids);
    add_usage(out, usage);
    str_add(out, "}\n");
}

/* --------------------------------------------------------------------------------------- models */

void openai_model_json(struct str *out, const struct request_model *model, uint64_t created_s)
{
    str_add(out, "{\"id\":");
    json_quote(out, model->name, strlen(model->name));
    str_addf(out, ",\"object\":\"model\",\"created\":%" PRIu64 ",\"owned_by\":\"baton\",\"root\":",
             created_s);
    json_quote(out, model->name, strlen(model->name));
    str_addf(out, ",\"parent\":null,\"max_model_len\":%u}", model->context);
}

void openai_models_json(struct str *out, const struct request_model *const *models, size_t count,
                        uint64_t created_s)
{
    str_add(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < count; i++) {
        str_add(out, i ? "," : "");
        openai_model_json(out, models[i], created_s);
    }
    str_add(out, "]}\n");
}
