#include "common/cli/prefix_trace.h"

#include "common/base/json/json.h"
#include "common/base/str.h"
#include "common/cli/input_lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void prefix_trace_init(struct prefix_trace *trace)
{
    *trace = (struct prefix_trace){0};
}

void prefix_trace_deinit(struct prefix_trace *trace)
{
    free(trace->prompts);
    free(trace->ids);
}

/* Room for `need` items of `size` bytes in all; grows by doubling. */
static enum status make_room(void **items, size_t size, uint32_t *capacity, uint32_t need,
                             struct error *err)
{
    if (need <= *capacity)
        return STATUS_OK;
    uint32_t wanted = *capacity ? *capacity : 1024;
    while (wanted < need)
        wanted *= 2;
    void *grown = realloc(*items, wanted * size);
    if (!grown)
        return error_set(err, STATUS_LIMIT, "out of memory for a trace of %u items", wanted);
    *items = grown;
    *capacity = wanted;
    return STATUS_OK;
}

static enum status read_ids(struct prefix_trace *trace, const struct json_value *array,
                            struct error *err)
{
    size_t count = json_count(array);
    if (trace->prompt_count == PREFIX_TRACE_MAX_PROMPTS ||
        trace->id_count + count > PREFIX_TRACE_MAX_IDS)
        return error_set(err, STATUS_LIMIT, "the trace has more than %u prompts or %u ids",
                         PREFIX_TRACE_MAX_PROMPTS, PREFIX_TRACE_MAX_IDS);
    TRY(make_room((void **)&trace->ids, sizeof *trace->ids, &trace->id_capacity,
                  trace->id_count + (uint32_t)count, err));
    TRY(make_room((void **)&trace->prompts, sizeof *trace->prompts, &trace->prompt_capacity,
                  trace->prompt_count + 1, err));
    for (size_t i = 0; i < count; i++) {
        int64_t id;
        TRY(json_as_i64(json_at(array, i), 0, PREFIX_TRACE_MAX_ID - 1, &id, err));
        trace->ids[trace->id_count + i] = (uint32_t)id;
    }
    return STATUS_OK;
}

static enum status add_prompt(struct prefix_trace *trace, const struct json_value *line,
                              struct error *err)
{
    int64_t tokens;
    const struct json_value *array;
    TRY(json_get_i64(line, "input_length", 1, PREFIX_TRACE_MAX_TOKENS, &tokens, err));
    TRY(json_get_array(line, "hash_ids", &array, err));
    int64_t blocks = (tokens + PREFIX_TRACE_BLOCK_TOKENS - 1) / PREFIX_TRACE_BLOCK_TOKENS;
    if (json_count(array) != (size_t)blocks)
        return error_set(err, STATUS_INVALID,
                         "%lld tokens are %lld started blocks of %d, but there are %zu hash_ids",
                         (long long)tokens, (long long)blocks, PREFIX_TRACE_BLOCK_TOKENS,
                         json_count(array));
    TRY(read_ids(trace, array, err));
    trace->prompts[trace->prompt_count++] = (struct prefix_trace_prompt){
        .token_count = (uint32_t)tokens, .id_count = (uint32_t)blocks, .first_id = trace->id_count};
    trace->id_count += (uint32_t)blocks;
    trace->token_count += (uint64_t)tokens;
    if (trace->longest_tokens < tokens)
        trace->longest_tokens = (uint32_t)tokens;
    return STATUS_OK;
}

enum status prefix_trace_add(struct prefix_trace *trace, const char *line, size_t length,
                             struct error *err)
{
    const struct json_limits limits = {.max_bytes = PREFIX_TRACE_MAX_LINE_BYTES, .max_depth = 4};
    struct json *json;
    TRY(json_parse(line, length, limits, &json, err));
    enum status status = add_prompt(trace, json_root(json), err);
    json_destroy(json);
    return status;
}

/* What is no line of a trace, whatever its JSON might say. */
static enum status check_line(const struct str *line, const char *path, uint32_t number,
                              struct error *err)
{
    if (number == 1 && strncmp(line->data, "\x1f\x8b", 2) == 0)
        return error_set(err, STATUS_INVALID, "%s is compressed by gzip: unpack it first", path);
    if (memchr(line->data, 0, line->length))
        return error_set(err, STATUS_INVALID,
                         "%s:%u: has a NUL byte: it is not a trace, which has a JSON object on "
                         "each line",
                         path, number);
    if (line->truncated)
        return error_set(err, STATUS_LIMIT, "%s:%u: longer than %u bytes", path, number,
                         PREFIX_TRACE_MAX_LINE_BYTES);
    return STATUS_OK;
}

static enum status read_lines(struct prefix_trace *trace, FILE *file, struct str *line,
                              const char *path, struct error *err)
{
    for (uint32_t number = 1; input_lines_read(file, '\n', line); number++) {
        TRY(check_line(line, path, number, err));
        enum status status = prefix_trace_add(trace, line->data, line->length, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "%s:%u", path, number);
    }
    if (ferror(file))
        return error_set(err, STATUS_IO, "cannot read %s: %s", path, strerror(errno));
    if (trace->prompt_count == 0)
        return error_set(err, STATUS_INVALID, "%s has no lines", path);
    return STATUS_OK;
}

enum status prefix_trace_read(struct prefix_trace *trace, const char *path, struct error *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(err, STATUS_IO, "cannot open %s: %s", path, strerror(errno));
    struct str line;
    str_init(&line, PREFIX_TRACE_MAX_LINE_BYTES);
    enum status status = read_lines(trace, file, &line, path, err);
    str_deinit(&line);
    fclose(file);
    return status;
}
