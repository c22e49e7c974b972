#include "router/doors/openai/openai_answer.h"

#include "common/base/json/json_quote.h"
#include "router/doors/openai/openai_logprobs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool openai_finish_cut(enum finish_reason finish)
{
    return finish == FINISH_MAX_TOKENS || finish == FINISH_CONTEXT;
}

const char *openai_finish_name(enum finish_reason finish, bool has_calls)
{
    if (openai_finish_cut(finish))
        return "length";
    return has_calls ? "tool_calls" : "stop";
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
             "}",
             usage->prompt_tokens, usage->completion_tokens, total);
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

/* Of a chunk with a choice. */
static void end_chunk(struct str *out, const struct openai_answer *answer,
                      const struct openai_usage *usage)
{
    if (answer->continuous_usage)
        add_usage(out, usage);
    else if (answer->include_usage)
        str_add(out, ",\"usage\":null");
    str_add(out, "}\n\n");
}

/* A call's beginning, or more of its arguments, as a member of the delta. */
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

static void add_role(struct str *out, struct openai_choice *choice)
{
    if (!choice->begun)
        str_add(out, "\"role\":\"assistant\",");
    choice->begun = true;
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
        add_role(out, choice);
        if (call) {
            str_add(out, first ? "\"content\":null," : "");
            add_call_delta(out, answer, choice, piece->event);
        } else {
            str_add(out, "\"content\":");
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
    else
        str_add(out, choice->begun ? "\"delta\":{}"
                                   : "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
    choice->begun = true;
    str_addf(out, ",\"logprobs\":null,\"finish_reason\":\"%s\"}]",
             openai_finish_name(finish, choice->calls && !answer->tool_named));
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

void openai_whole_init(struct openai_whole *whole, uint32_t index, size_t limit_bytes)
{
    *whole = (struct openai_whole){.choice = {.index = index}};
    str_init(&whole->text, limit_bytes);
    str_init(&whole->calls, limit_bytes);
    str_init(&whole->logprobs, limit_bytes);
    str_init(&whole->ids, limit_bytes);
    str_init(&whole->prompt_ids, limit_bytes);
}

void openai_whole_deinit(struct openai_whole *whole)
{
    str_deinit(&whole->text);
    str_deinit(&whole->calls);
    str_deinit(&whole->logprobs);
    str_deinit(&whole->ids);
    str_deinit(&whole->prompt_ids);
}

bool openai_whole_truncated(const struct openai_whole *whole)
{
    return whole->text.truncated || whole->calls.truncated || whole->logprobs.truncated ||
           whole->ids.truncated || whole->prompt_ids.truncated;
}

/* `calls` holds [{...,"arguments":"... and what comes is put inside that string, which
 * openai_object ends. */
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

/* Nothing, where none are told. */
static void add_member(struct str *out, const char *name, const struct str *value)
{
    if (!value->length)
        return;
    str_addf(out, ",\"%s\":", name);
    str_append(out, value->data, value->length);
}

static void add_message(struct str *out, const struct openai_whole *whole)
{
    str_add(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (whole->choice.calls && !whole->text.length)
        str_add(out, "null");
    else
        json_quote(out, whole->text.data, whole->text.length);
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
        add_message(out, whole);
    }
    str_add(out, ",\"logprobs\":");
    str_add(out, whole->logprobs.length ? whole->logprobs.data : "null");
    str_addf(out, ",\"finish_reason\":\"%s\"",
             openai_finish_name(whole->finish, whole->choice.calls && !answer->tool_named));
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
