#include "common/cli/commands.h"

#include "common/base/config/config.h"
#include "common/base/json/json.h"
#include "common/base/json/json_quote.h"
#include "common/base/standard_output.h"
#include "common/cli/input_lines.h"
#include "common/language/text/detokenizer.h"
#include "common/language/text/tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define INPUT_LIMIT_BYTES (64u << 20)  /* a line, or the whole text without --jsonl */
#define TEXT_LIMIT_BYTES  (256u << 20) /* detokenized */
#define IDS_LIMIT_COUNT   (32u << 20)
#define PATH_BYTES        4096

struct settings {
    char tokenizer[PATH_BYTES];
    bool jsonl;
    bool special;
    bool pieces;
};

#define AT(field) CONFIG_AT(struct settings, field)
static const struct config_setting tokenize_settings[] = {
    {"tokenizer", CONFIG_STRING, AT(tokenizer), .required = true, .value = "FILE",
     .help = "tokenizer.json of the model, or its folder"},
    {"jsonl", CONFIG_BOOL, AT(jsonl), "false",
     .help = "Lines of standard input: a JSON string in, a JSON array of ids out"},
    {"special", CONFIG_BOOL, AT(special), "true",
     .help = "Add the tokenizer's special tokens (a begin token), as the RPC Tokenize does"},
};
static const struct config_setting detokenize_settings[] = {
    {"tokenizer", CONFIG_STRING, AT(tokenizer), .required = true, .value = "FILE",
     .help = "tokenizer.json of the model, or its folder"},
    {"jsonl", CONFIG_BOOL, AT(jsonl), "false",
     .help = "Lines of standard input: a JSON array of ids in, a JSON string out"},
    {"special", CONFIG_BOOL, AT(special), "true",
     .help = "Keep special tokens in the text, as the RPC Detokenize does"},
    {"pieces", CONFIG_BOOL, AT(pieces), "false",
     .help = "With --jsonl: a JSON array of what each id gives in a stream, and the end"},
};
static const struct config_program tokenize_program = {
    .name = "baton tokenize",
    .summary = "Prints the token ids of TEXT, or of all of standard input, on one line.\n"
               "Special tokens that are spelled out in the text become those tokens.",
    .usage = "[TEXT]",
    .settings = tokenize_settings,
    .setting_count = sizeof tokenize_settings / sizeof *tokenize_settings,
    .max_positionals = 1,
};
static const struct config_program detokenize_program = {
    .name = "baton detokenize",
    .summary = "Prints the text of IDS (1,2,3 or 1 2 3), or of the ids on standard input.",
    .usage = "[IDS...]",
    .settings = detokenize_settings,
    .setting_count = sizeof detokenize_settings / sizeof *detokenize_settings,
    .max_positionals = CONFIG_MAX_POSITIONALS,
};

/* A command's functions for one input. Both append the output to `out`. */
struct command {
    const struct config_program *program;
    enum status (*plain)(const struct tokenizer *tokenizer, const struct settings *settings,
                         const struct str *input, struct str *out, struct error *err);
    enum status (*json)(const struct tokenizer *tokenizer, const struct settings *settings,
                        const struct json_value *input, struct str *out, struct error *err);
};

static void add_ids(struct str *out, const struct token_ids *ids, const char *separator)
{
    for (size_t i = 0; i < ids->count; i++)
        str_addf(out, "%s%u", i ? separator : "", ids->data[i]);
}

static enum status tokenize_plain(const struct tokenizer *tokenizer,
                                  const struct settings *settings, const struct str *input,
                                  struct str *out, struct error *err)
{
    struct token_ids ids;
    token_ids_init(&ids, IDS_LIMIT_COUNT);
    enum status status =
        tokenizer_encode(tokenizer, input->data, input->length, settings->special, &ids, err);
    if (status == STATUS_OK)
        add_ids(out, &ids, " ");
    token_ids_deinit(&ids);
    return status;
}

static enum status tokenize_json(const struct tokenizer *tokenizer, const struct settings *settings,
                                 const struct json_value *input, struct str *out, struct error *err)
{
    const char *text;
    size_t length;
    TRY(json_as_string(input, &text, &length, err));
    struct token_ids ids;
    token_ids_init(&ids, IDS_LIMIT_COUNT);
    enum status status = tokenizer_encode(tokenizer, text, length, settings->special, &ids, err);
    str_add(out, "[");
    if (status == STATUS_OK)
        add_ids(out, &ids, ", ");
    str_add(out, "]");
    token_ids_deinit(&ids);
    return status;
}

static enum status detokenize(const struct tokenizer *tokenizer, const struct settings *settings,
                              const struct token_ids *ids, struct str *text, struct error *err)
{
    return detokenizer_decode(tokenizer, ids->data, ids->count, !settings->special, text, err);
}

/* Appends the pieces of a stream: the text that each id completes, then the text at the end. */
static void add_pieces(struct str *out, const struct tokenizer *tokenizer,
                       const struct settings *settings, const struct token_ids *ids)
{
    struct detokenizer detokenizer;
    struct str piece;
    str_init(&piece, TEXT_LIMIT_BYTES);
    detokenizer_init(&detokenizer, tokenizer, !settings->special);
    str_add(out, "[");
    for (size_t i = 0; i <= ids->count; i++) {
        str_clear(&piece);
        if (i < ids->count)
            detokenizer_push(&detokenizer, ids->data[i], &piece);
        else
            detokenizer_flush(&detokenizer, &piece);
        str_add(out, i ? ", " : "");
        json_quote(out, piece.data, piece.length);
    }
    str_add(out, "]");
    str_deinit(&piece);
}

static enum status push_id(struct token_ids *ids, uint64_t id, struct error *err)
{
    if (token_ids_push(ids, (uint32_t)id))
        return STATUS_OK;
    return error_set(err, STATUS_LIMIT, "more than %zu ids", ids->limit_count);
}

/* Parses decimal numbers between commas and white space. */
static enum status parse_ids(const struct str *input, struct token_ids *ids, struct error *err)
{
    static const char between[] = ", \t\r\n";
    const char *p = input->data + strspn(input->data, between);
    while (*p) {
        char number[16] = "";
        uint64_t id;
        size_t length = strcspn(p, between);
        if (length < sizeof number)
            memcpy(number, p, length);
        if (!str_to_u64(number, 0, UINT32_MAX, &id))
            return error_set(err, STATUS_INVALID, "'%.*s' is not a token id",
                             (int)(length < 40 ? length : 40), p);
        TRY(push_id(ids, id, err));
        p += length;
        p += strspn(p, between);
    }
    if (p != input->data + input->length)
        return error_set(err, STATUS_INVALID, "the ids have a NUL among them");
    return STATUS_OK;
}

static enum status detokenize_plain(const struct tokenizer *tokenizer,
                                    const struct settings *settings, const struct str *input,
                                    struct str *out, struct error *err)
{
    struct token_ids ids;
    token_ids_init(&ids, IDS_LIMIT_COUNT);
    enum status status = parse_ids(input, &ids, err);
    if (status == STATUS_OK)
        status = detokenize(tokenizer, settings, &ids, out, err);
    token_ids_deinit(&ids);
    return status;
}

static enum status read_ids(const struct json_value *array, struct token_ids *ids,
                            struct error *err)
{
    if (json_kind(array) != JSON_ARRAY)
        return error_set(err, STATUS_INVALID, "expected an array of ids, found %s",
                         json_kind_name(array));
    for (size_t i = 0; i < json_count(array); i++) {
        int64_t id;
        TRY(json_as_i64(json_at(array, i), 0, UINT32_MAX, &id, err));
        TRY(push_id(ids, (uint64_t)id, err));
    }
    return STATUS_OK;
}

static enum status detokenize_json(const struct tokenizer *tokenizer,
                                   const struct settings *settings, const struct json_value *input,
                                   struct str *out, struct error *err)
{
    struct token_ids ids;
    struct str text;
    token_ids_init(&ids, IDS_LIMIT_COUNT);
    str_init(&text, TEXT_LIMIT_BYTES);
    enum status status = read_ids(input, &ids, err);
    if (status == STATUS_OK && settings->pieces) {
        add_pieces(out, tokenizer, settings, &ids);
    } else if (status == STATUS_OK) {
        status = detokenize(tokenizer, settings, &ids, &text, err);
        if (status == STATUS_OK)
            json_quote(out, text.data, text.length);
    }
    str_deinit(&text);
    token_ids_deinit(&ids);
    return status;
}

static enum status print_line(const struct str *out, struct error *err)
{
    if (out->truncated)
        return error_set(err, STATUS_LIMIT, "the output is over the limit of %zu bytes",
                         out->limit);
    fwrite(out->data, 1, out->length, stdout);
    putchar('\n');
    return standard_output_flush(err); /* a program behind a pipe waits for each line */
}

static enum status run_line(const struct command *command, const struct tokenizer *tokenizer,
                            const struct settings *settings, const struct str *line,
                            struct str *out, struct error *err)
{
    struct json *json;
    struct json_limits limits = {.max_bytes = INPUT_LIMIT_BYTES, .max_depth = 4};
    TRY(input_lines_check(line, err));
    TRY(json_parse(line->data, line->length, limits, &json, err));
    str_clear(out);
    enum status status = command->json(tokenizer, settings, json_root(json), out, err);
    json_destroy(json);
    return status == STATUS_OK ? print_line(out, err) : status;
}

static enum status run_plain(const struct command *command, const struct tokenizer *tokenizer,
                             const struct settings *settings, const struct config_result *given,
                             struct str *input, struct str *out, struct error *err)
{
    for (size_t i = 0; i < given->positional_count; i++) {
        str_add(input, i ? " " : "");
        str_add(input, given->positionals[i]);
    }
    if (!given->positional_count)
        (void)input_lines_read(stdin, EOF, input);
    TRY(input_lines_check(input, err));
    TRY(command->plain(tokenizer, settings, input, out, err));
    return print_line(out, err);
}

static enum status run(const struct command *command, const struct settings *settings,
                       const struct config_result *given, struct error *err)
{
    const char *path = settings->tokenizer;
    char file[PATH_BYTES + sizeof "/tokenizer.json"];
    struct stat found;
    struct tokenizer *tokenizer;
    bool folder = stat(path, &found) == 0 && S_ISDIR(found.st_mode);
    snprintf(file, sizeof file, "%s%s", path, folder ? "/tokenizer.json" : "");
    TRY(tokenizer_open(file, &tokenizer, err));
    struct str input, out;
    str_init(&input, INPUT_LIMIT_BYTES);
    str_init(&out, TEXT_LIMIT_BYTES);
    enum status status = STATUS_OK;
    if (!settings->jsonl)
        status = run_plain(command, tokenizer, settings, given, &input, &out, err);
    for (size_t number = 1;
         settings->jsonl && status == STATUS_OK && input_lines_read(stdin, '\n', &input);
         number++) {
        status = run_line(command, tokenizer, settings, &input, &out, err);
        if (status != STATUS_OK)
            error_prefix(err, status, "line %zu", number);
    }
    if (settings->jsonl && status == STATUS_OK)
        status = input_lines_check(&input, err);
    str_deinit(&out);
    str_deinit(&input);
    tokenizer_close(tokenizer);
    return status;
}

static int run_command(const struct command *command, int argc, char **argv)
{
    struct settings settings = {0};
    struct config_result result;
    struct error err;
    config_load_or_exit(command->program, argc, argv, &settings, &result);
    if (settings.jsonl && result.positional_count) {
        fprintf(stderr, "%s: --jsonl reads standard input, not an argument\n",
                command->program->name);
        return 2;
    }
    if (settings.pieces && !settings.jsonl) {
        fprintf(stderr, "%s: --pieces needs --jsonl\n", command->program->name);
        return 2;
    }
    if (run(command, &settings, &result, &err) == STATUS_OK)
        return 0;
    fprintf(stderr, "%s: %s\n", command->program->name, err.text);
    return 1;
}

int cmd_tokenize(int argc, char **argv)
{
    static const struct command command = {&tokenize_program, tokenize_plain, tokenize_json};
    return run_command(&command, argc, argv);
}

int cmd_detokenize(int argc, char **argv)
{
    static const struct command command = {&detokenize_program, detokenize_plain, detokenize_json};
    return run_command(&command, argc, argv);
}
