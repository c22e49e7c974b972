#include "common/cli/load_answer.h"

#include "common/base/assert.h"
#include "common/base/json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void load_answer_init(struct load_answer *answer, bool keeps_text)
{
    *answer = (struct load_answer){.keeps_text = keeps_text};
    str_init(&answer->text, LOAD_MAX_EVENT_BYTES);
}

void load_answer_deinit(struct load_answer *answer)
{
    free(answer->itls);
    str_deinit(&answer->text);
}

void load_answer_token(struct load_answer *answer, const char *text, size_t length, uint64_t now_ns)
{
    if (answer->keeps_text)
        str_append(&answer->text, text, length);
    if (!answer->chunks) {
        answer->first_ns = now_ns;
    } else if (answer->chunks <= LOAD_MAX_ITLS) {
        if (answer->chunks > answer->itl_capacity) {
            answer->itl_capacity = answer->itl_capacity ? 2 * answer->itl_capacity : 64;
            answer->itls = realloc(answer->itls, answer->itl_capacity * sizeof *answer->itls);
            ASSERT(answer->itls);
        }
        answer->itls[answer->chunks - 1] = (float)((double)(now_ns - answer->last_ns) * 1e-9);
    }
    answer->chunks += answer->chunks <= LOAD_MAX_ITLS;
    answer->last_ns = now_ns;
}

void load_answer_fail(struct load_answer *answer, const char *reason, const char *message)
{
    if (*answer->reason)
        return;
    str_copy(answer->reason, sizeof answer->reason, reason);
    str_copy(answer->message, sizeof answer->message, message);
}

/* --- OpenAI's streams --- */

void load_reader_init(struct load_reader *reader, struct load_answer *answer, bool chat)
{
    *reader = (struct load_reader){.answer = answer, .chat = chat};
    str_init(&reader->line, LOAD_MAX_EVENT_BYTES);
}

void load_reader_deinit(struct load_reader *reader)
{
    str_deinit(&reader->line);
}

/* Appends a member's text, if it is one. */
static void add_text(const struct json_value *object, const char *key, struct str *out)
{
    const struct json_value *value = json_find(object, key);
    const char *text;
    size_t length;
    struct error ignored;
    if (json_kind(value) == JSON_STRING &&
        json_as_string(value, &text, &length, &ignored) == STATUS_OK)
        str_append(out, text, length);
}

/* Reads the first choice of a chunk. Its text goes to `text`, with reasoning in front. */
static void read_choice(struct load_reader *reader, const struct json_value *choice,
                        struct str *text, uint64_t now_ns)
{
    struct load_answer *answer = reader->answer;
    const struct json_value *delta = json_find(choice, "delta");
    bool finished = json_find(choice, "finish_reason") != NULL;
    answer->finished |= finished;
    add_text(delta, "reasoning_content", text);
    add_text(delta, "reasoning", text);
    bool reasons = text->length > 0, calls = json_count(json_find(delta, "tool_calls")) > 0;
    if (reasons)
        str_clear(text); /* it doesn't belong to the answer that a later turn quotes */
    add_text(reader->chat ? delta : choice, reader->chat ? "content" : "text", text);
    if (text->length || reasons || calls || (!reader->chat && !finished))
        load_answer_token(answer, text->data, text->length, now_ns);
}

static void read_usage(struct load_answer *answer, const struct json_value *usage)
{
    int64_t prompt = 0, completion = 0;
    struct error ignored;
    if (json_get_i64(usage, "prompt_tokens", 0, UINT32_MAX, &prompt, &ignored) != STATUS_OK ||
        json_get_i64(usage, "completion_tokens", 0, UINT32_MAX, &completion, &ignored) != STATUS_OK)
        return;
    answer->has_usage = true;
    answer->input_tokens = (uint32_t)prompt;
    answer->output_tokens = (uint32_t)completion;
}

/* Marks the answer as failed by an error's object: {"error": {"message", "code", "type"}}, or these
 * members at the top. `fallback` is the reason of one without a code. */
static void read_refusal(struct load_answer *answer, const struct json_value *root,
                         const char *fallback)
{
    const struct json_value *error = json_find(root, "error");
    struct str reason, message;
    str_init(&reason, sizeof answer->reason - 1);
    str_init(&message, sizeof answer->message - 1);
    error = json_kind(error) == JSON_OBJECT ? error : root;
    add_text(error, "code", &reason);
    if (!reason.length)
        str_add(&reason, fallback);
    add_text(error, "message", &message);
    load_answer_fail(answer, reason.data, message.data);
    str_deinit(&reason);
    str_deinit(&message);
}

static void read_event(struct load_reader *reader, const char *data, size_t length, uint64_t now_ns)
{
    const struct json_limits limits = {.max_bytes = LOAD_MAX_EVENT_BYTES, .max_depth = 64};
    struct json *json;
    struct error err;
    if (length == 6 && !memcmp(data, "[DONE]", 6)) {
        reader->answer->finished = true;
        return;
    }
    if (json_parse(data, length, limits, &json, &err) != STATUS_OK) {
        load_answer_fail(reader->answer, "malformed event", err.text);
        return;
    }
    const struct json_value *root = json_root(json), *choices = json_find(root, "choices");
    if (json_find(root, "error"))
        read_refusal(reader->answer, root, "error in the stream");
    if (json_count(choices)) {
        struct str text;
        str_init(&text, LOAD_MAX_EVENT_BYTES);
        read_choice(reader, json_at(choices, 0), &text, now_ns);
        str_deinit(&text);
    }
    if (json_find(root, "usage"))
        read_usage(reader->answer, json_find(root, "usage"));
    json_destroy(json);
}

/* A line of the stream, without its end. Comments and other fields than data are skipped. */
static void read_line(struct load_reader *reader, uint64_t now_ns)
{
    const struct str *line = &reader->line;
    size_t length = line->length, start = 5;
    if (length && line->data[length - 1] == '\r')
        length--;
    if (line->truncated)
        load_answer_fail(reader->answer, "malformed event", "an event of the stream is too long");
    if (line->truncated || length < start || memcmp(line->data, "data:", start) != 0)
        return;
    start += start < length && line->data[start] == ' ';
    read_event(reader, line->data + start, length - start, now_ns);
}

void load_reader_take(struct load_reader *reader, int status, const char *bytes, size_t count,
                      uint64_t now_ns)
{
    if (status / 100 != 2) { /* a refusal: read at its end */
        str_append(&reader->line, bytes, count);
        return;
    }
    while (count) {
        const char *end = memchr(bytes, '\n', count);
        size_t taken = end ? (size_t)(end - bytes) : count;
        str_append(&reader->line, bytes, taken);
        if (!end)
            return;
        read_line(reader, now_ns);
        str_clear(&reader->line);
        bytes = end + 1;
        count -= taken + 1;
    }
}

void load_reader_end(struct load_reader *reader, int status, uint64_t now_ns)
{
    struct load_answer *answer = reader->answer;
    answer->end_ns = now_ns;
    if (status / 100 != 2) {
        const struct json_limits limits = {.max_bytes = LOAD_MAX_EVENT_BYTES, .max_depth = 64};
        char fallback[32];
        struct json *json;
        struct error err;
        snprintf(fallback, sizeof fallback, "http %d", status);
        if (json_parse(reader->line.data, reader->line.length, limits, &json, &err) == STATUS_OK) {
            read_refusal(answer, json_root(json), fallback);
            json_destroy(json);
        } else {
            load_answer_fail(answer, fallback, reader->line.data);
        }
        return;
    }
    if (reader->line.length) /* a last line without its end */
        read_line(reader, now_ns);
    if (!answer->chunks)
        load_answer_fail(answer, "no token", "the answer ended without a token");
    if (!answer->finished)
        load_answer_fail(answer, "unfinished", "the stream ended before its last event");
    if (!answer->has_usage)
        answer->output_tokens = answer->chunks;
}
