/* Requests of files: traces of Azure and Mooncake, and ShareGPT's conversations. */
#include "common/base/json/json.h"
#include "common/cli/input_lines.h"
#include "common/cli/load_plan.h"
#include "common/cli/prefix_trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_LINE_BYTES     4096
#define MAX_SHAREGPT_BYTES (1536u << 20)

/* Counts a request, or leaves it out if it is too long. */
static bool fits(struct load_plan *plan, const struct load_file *file, uint64_t tokens)
{
    if (!file->max_tokens || tokens <= file->max_tokens)
        return true;
    plan->left_out++;
    return false;
}

static enum status check_any(const struct load_plan *plan, const struct load_file *file,
                             struct error *err)
{
    if (plan->request_count)
        return STATUS_OK;
    return plan->left_out
               ? error_set(err, STATUS_INVALID,
                           "%s: all %u requests have more than %u tokens (--max-request-tokens)",
                           file->path, plan->left_out, file->max_tokens)
               : error_set(err, STATUS_INVALID, "%s holds no requests", file->path);
}

/* --- Azure --- */

/* The columns of a line, by the two headers that such files have. */
static const char *const azure_headers[] = {"arrived_at,num_prefill_tokens,num_decode_tokens",
                                            "TIMESTAMP,ContextTokens,GeneratedTokens"};

/* Parses "4.314579", or "2023-11-16 18:17:03.9799600". Seconds. */
static bool parse_time(const char *text, double *seconds)
{
    struct tm date = {.tm_isdst = 0};
    int used = 0;
    if (str_to_double(text, 0, 1e12, seconds))
        return true;
    if (sscanf(text, "%4d-%2d-%2d%*1[ T]%2d:%2d:%n", &date.tm_year, &date.tm_mon, &date.tm_mday,
               &date.tm_hour, &date.tm_min, &used) != 5 ||
        !used || !str_to_double(text + used, 0, 61, seconds))
        return false;
    if (date.tm_year < 1970 || date.tm_mon < 1 || date.tm_mon > 12 || date.tm_mday < 1 ||
        date.tm_mday > 31 || date.tm_hour < 0 || date.tm_hour > 23 || date.tm_min < 0 ||
        date.tm_min > 59)
        return false;
    date.tm_year -= 1900;
    date.tm_mon--;
    *seconds += (double)timegm(&date);
    return true;
}

/* One line behind the header: its time, and the tokens of prompt and answer. */
static enum status read_azure_line(char *line, double *seconds, uint64_t tokens[2],
                                   struct error *err)
{
    char *prompt = strchr(line, ','), *answer = prompt ? strchr(prompt + 1, ',') : NULL;
    if (!answer || strchr(answer + 1, ','))
        return error_set(err, STATUS_INVALID, "not three columns: time, prompt and answer");
    *prompt++ = *answer++ = 0;
    if (!parse_time(line, seconds))
        return error_set(err, STATUS_INVALID, "'%.40s' is no time: seconds, or a date and a time",
                         line);
    const char *texts[] = {prompt, answer};
    for (int i = 0; i < 2; i++)
        if (!str_to_u64(texts[i], i ? 0 : 1, LOAD_MAX_TOKENS, &tokens[i]))
            return error_set(err, STATUS_INVALID,
                             "'%.40s' must be a number of tokens from %d to %u", texts[i],
                             i ? 0 : 1, LOAD_MAX_TOKENS);
    return STATUS_OK;
}

static enum status add_azure_line(struct load_plan *plan, const struct load_file *file, char *line,
                                  double *first, struct error *err)
{
    double seconds;
    uint64_t tokens[2];
    TRY(read_azure_line(line, &seconds, tokens, err));
    if (*first < 0)
        *first = seconds;
    if (seconds < *first)
        return error_set(err, STATUS_INVALID, "its time is before that of the first line");
    if (!fits(plan, file, tokens[0] + tokens[1]))
        return STATUS_OK;
    const struct load_segment segment = {plan->next_name++, (uint32_t)tokens[0]};
    return load_plan_add(
        plan,
        (struct load_request){.text = LOAD_NONE,
                              .output_tokens = tokens[1] ? (uint32_t)tokens[1] : 1,
                              .parent = LOAD_NONE,
                              .at_ns = (uint64_t)((seconds - *first) * file->second * 1e9)},
        &segment, 1, err);
}

static enum status read_azure_lines(struct load_plan *plan, const struct load_file *file,
                                    FILE *stream, struct str *line, struct error *err)
{
    double first = -1;
    for (uint32_t number = 1;
         plan->request_count < file->count && input_lines_read(stream, '\n', line); number++) {
        enum status status = STATUS_OK;
        line->data[strcspn(line->data, "\r")] = 0;
        if (line->truncated || strlen(line->data) + 1 < line->length)
            status = error_set(err, STATUS_INVALID, "this is no line of a CSV file%s",
                               number == 1 && !strncmp(line->data, "\x1f\x8b", 2)
                                   ? ": the file is compressed by gzip, unpack it first"
                                   : "");
        else if (number > 1)
            status = add_azure_line(plan, file, line->data, &first, err);
        else if (strcmp(line->data, azure_headers[0]) != 0 &&
                 strcmp(line->data, azure_headers[1]) != 0)
            status = error_set(err, STATUS_INVALID, "the header must be \"%s\" or \"%s\"",
                               azure_headers[0], azure_headers[1]);
        if (status != STATUS_OK)
            return error_prefix(err, status, "%s:%u", file->path, number);
    }
    if (ferror(stream))
        return error_set(err, STATUS_IO, "cannot read %s: %s", file->path, strerror(errno));
    return check_any(plan, file, err);
}

enum status load_plan_read_azure(struct load_plan *plan, const struct load_file *file,
                                 struct error *err)
{
    FILE *stream = fopen(file->path, "re");
    if (!stream)
        return error_set(err, STATUS_IO, "cannot open %s: %s", file->path, strerror(errno));
    struct str line;
    str_init(&line, MAX_LINE_BYTES);
    enum status status = read_azure_lines(plan, file, stream, &line, err);
    str_deinit(&line);
    fclose(stream);
    return status;
}

/* --- Mooncake --- */

/* Adds the prompt of line `number`. Its segments are its blocks, the last one maybe shorter. */
static enum status add_mooncake(struct load_plan *plan, const struct load_file *file,
                                const struct prefix_trace *trace, uint32_t number, double first,
                                struct error *err)
{
    const struct prefix_trace_prompt *prompt = &trace->prompts[number - 1];
    if (!prompt->answer_tokens || prompt->time < first)
        return error_set(err, STATUS_INVALID, "%s:%u: %s", file->path, number,
                         prompt->answer_tokens ? "its timestamp is before that of the first line"
                                               : "output_length is missing or 0");
    if (!fits(plan, file, (uint64_t)prompt->token_count + prompt->answer_tokens))
        return STATUS_OK;
    struct load_segment *segments = calloc(prompt->id_count, sizeof *segments);
    if (!segments)
        return error_set(err, STATUS_LIMIT, "out of memory for %u blocks", prompt->id_count);
    for (uint32_t i = 0, left = prompt->token_count; i < prompt->id_count; i++) {
        uint32_t tokens = left < PREFIX_TRACE_BLOCK_TOKENS ? left : PREFIX_TRACE_BLOCK_TOKENS;
        segments[i] = (struct load_segment){1 + trace->ids[prompt->first_id + i], tokens};
        left -= tokens;
    }
    enum status status = load_plan_add(
        plan,
        (struct load_request){.text = LOAD_NONE,
                              .output_tokens = prompt->answer_tokens,
                              .parent = LOAD_NONE,
                              .at_ns = (uint64_t)((prompt->time - first) * file->second * 1e9)},
        segments, prompt->id_count, err);
    free(segments);
    return status;
}

enum status load_plan_read_mooncake(struct load_plan *plan, const struct load_file *file,
                                    struct error *err)
{
    struct prefix_trace trace;
    prefix_trace_init(&trace);
    enum status status = prefix_trace_read(&trace, file->path, err);
    for (uint32_t i = 0;
         status == STATUS_OK && i < trace.prompt_count && plan->request_count < file->count; i++)
        status = add_mooncake(plan, file, &trace, i + 1, trace.prompts[0].time, err);
    plan->next_name = 1 + (uint64_t)PREFIX_TRACE_MAX_ID;
    prefix_trace_deinit(&trace);
    return status == STATUS_OK ? check_any(plan, file, err) : status;
}

/* --- ShareGPT --- */

/* Adds the first two texts of a conversation, unless they are too short or too long. */
static enum status add_conversation(struct load_plan *plan, const struct load_sharegpt *sharegpt,
                                    const struct json_value *turns, struct error *err)
{
    const char *texts[2];
    size_t lengths[2];
    uint32_t tokens[2];
    for (size_t i = 0; i < 2; i++) {
        TRY(json_get_string(json_at(turns, i), "value", &texts[i], &lengths[i], err));
        TRY(sharegpt->count_tokens(sharegpt->context, texts[i], lengths[i], &tokens[i], err));
    }
    if (sharegpt->output)
        tokens[1] = sharegpt->output;
    if (tokens[0] < 4 || (tokens[1] < 4 && !sharegpt->output) || tokens[0] > 1024 ||
        tokens[0] + tokens[1] > 2048 ||
        (sharegpt->file.max_tokens && tokens[0] + tokens[1] > sharegpt->file.max_tokens)) {
        plan->left_out++;
        return STATUS_OK;
    }
    TRY(load_plan_reserve((void **)&plan->texts, sizeof *plan->texts, &plan->text_capacity,
                          plan->text_count + 1, err));
    char *text = malloc(lengths[0] + 1);
    if (!text)
        return error_set(err, STATUS_LIMIT, "out of memory for the prompts");
    memcpy(text, texts[0], lengths[0] + 1); /* the prompt ends at a NUL, if there is one inside */
    plan->texts[plan->text_count] = text;
    return load_plan_add(plan,
                         (struct load_request){.text = plan->text_count++,
                                               .input_tokens = tokens[0],
                                               .output_tokens = tokens[1],
                                               .parent = LOAD_NONE},
                         NULL, 0, err);
}

static enum status add_conversations(struct load_plan *plan, const struct load_sharegpt *sharegpt,
                                     const struct json_value *root, struct error *err)
{
    struct rng rng = rng_seeded(sharegpt->seed);
    if (json_kind(root) != JSON_ARRAY)
        return error_set(err, STATUS_INVALID,
                         "%s must hold an array of conversations, but holds %s",
                         sharegpt->file.path, json_kind_name(root));
    uint32_t count = (uint32_t)json_count(root);
    uint32_t *order = calloc(count + 1, sizeof *order);
    if (!order)
        return error_set(err, STATUS_LIMIT, "out of memory for %u conversations", count);
    for (uint32_t i = 0; i < count; i++) { /* shuffled inside out */
        uint32_t at = sharegpt->in_order ? i : (uint32_t)rng_below(&rng, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    enum status status = STATUS_OK;
    for (uint32_t i = 0;
         status == STATUS_OK && i < count && plan->request_count < sharegpt->file.count; i++) {
        const struct json_value *turns = json_find(json_at(root, order[i]), "conversations");
        if (json_count(turns) < 2)
            continue;
        status = add_conversation(plan, sharegpt, turns, err);
        if (status != STATUS_OK)
            error_prefix(err, status, "%s: conversation %u (from 0)", sharegpt->file.path,
                         order[i]);
    }
    free(order);
    return status == STATUS_OK ? check_any(plan, &sharegpt->file, err) : status;
}

enum status load_plan_read_sharegpt(struct load_plan *plan, const struct load_sharegpt *sharegpt,
                                    struct error *err)
{
    const struct json_limits limits = {.max_bytes = MAX_SHAREGPT_BYTES, .max_depth = 16};
    struct json *json;
    TRY(json_read_file(sharegpt->file.path, limits, &json, err));
    enum status status = add_conversations(plan, sharegpt, json_root(json), err);
    json_destroy(json);
    return status;
}
