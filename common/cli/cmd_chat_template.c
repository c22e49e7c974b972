#include "common/cli/commands.h"

#include "common/base/config/config.h"
#include "common/base/json/json_quote.h"
#include "common/base/standard_output.h"
#include "common/cli/input_lines.h"
#include "common/language/chat/chat_request.h"
#include "common/language/chat/chat_template.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define IDS_LIMIT_COUNT     (32u << 20)
#define REQUEST_LIMIT_BYTES (8u << 20)   /* a line, or the whole request without --jsonl */
#define RECORD_LIMIT_BYTES  (64u << 20)  /* a request in the template's form, with more quotes */
#define OUTPUT_LIMIT_BYTES  (256u << 20) /* a line: a prompt, quoted */
#define REQUEST_LIMIT_DEPTH 110          /* depth that templates get, and a little more */

struct settings {
    char model[4096];
    char template[4096];
    bool jsonl;
    bool ids;
    char now[32];
};

#define AT(field) CONFIG_AT(struct settings, field)
static const struct config_setting settings_table[] = {
    {"model", CONFIG_STRING, AT(model), "", .value = "DIR",
     .help = "Folder of the model: its chat_template.jinja or tokenizer_config.json"},
    {"template", CONFIG_STRING, AT(template), "", .value = "FILE",
     .help = "A template in a file of its own, instead of a model's"},
    {"jsonl", CONFIG_BOOL, AT(jsonl), "false",
     .help = "Lines of standard input: a request in, {\"text\"} or {\"error\"} out"},
    {"ids", CONFIG_BOOL, AT(ids), "false",
     .help = "Token ids instead of text, by the model's tokenizer.json"},
    {"now", CONFIG_STRING, AT(now), "", .value = "TIME",
     .help = "Time that the template sees: 2026-07-26 or 2026-07-26T10:20:30; otherwise it is now"},
};
static const struct config_program program = {
    .name = "baton chat-template",
    .summary =
        "Prints the prompt that a chat request on standard input becomes.\n"
        "The request is a JSON object: \"messages\", and \"tools\", \"documents\",\n"
        "\"add_generation_prompt\" (true unless said), \"continue_final_message\",\n"
        "\"chat_template_kwargs\". With --jsonl also \"bos\" and \"eos\", the begin and end\n"
        "tokens that the template writes; messages go to the template as they are there,\n"
        "and without --jsonl as the server gives it what OpenAI's clients send.",
    .settings = settings_table,
    .setting_count = sizeof settings_table / sizeof *settings_table,
};

/* --- time --- */

static bool parse_time(const char *text, struct template_time *time)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int end = 0;
    *time = (struct template_time){0};
    if (strspn(text, "0123456789-:T") != strlen(text) ||
        sscanf(text, "%4d-%2d-%2d%n", &time->year, &time->month, &time->day, &end) != 3 ||
        end != 10)
        return false;
    if (text[end] && (sscanf(text + end, "T%2d:%2d:%2d%n", &time->hour, &time->minute,
                             &time->second, &end) != 3 ||
                      end != 9 || text[19]))
        return false;
    if (time->year < 1 || time->month < 1 || time->month > 12)
        return false;
    bool leap = (time->year % 4 == 0 && time->year % 100 != 0) || time->year % 400 == 0;
    return time->day >= 1 && time->day <= days[time->month - 1] + (time->month == 2 && leap) &&
           time->hour >= 0 && time->hour < 24 && time->minute >= 0 && time->minute < 60 &&
           time->second >= 0 && time->second < 60;
}

/* --- requests --- */

struct command {
    const struct chat_template *chat;
    const struct tokenizer *tokenizer; /* NULL: the output is text */
    const struct settings *settings;
    struct template_time now;
};

/* Reads a body as the server does for a template. *request points into *record. */
static enum status read_as_served(const struct json_value *json, struct chat_request *request,
                                  struct json **record, struct error *err)
{
    static const struct json_limits limits = {.max_bytes = RECORD_LIMIT_BYTES,
                                              .max_depth = REQUEST_LIMIT_DEPTH};
    const char *choice;
    struct str text;
    TRY(chat_request_read(json, request, err));
    if (json_get_string(json, "tool_choice", &choice, NULL, NULL) == STATUS_OK &&
        !strcmp(choice, "none"))
        request->tools = NULL;
    str_init(&text, RECORD_LIMIT_BYTES);
    chat_record_write(request, &text);
    enum status status = json_parse(text.data, text.length, limits, record, err);
    str_deinit(&text);
    return status == STATUS_OK ? chat_request_read(json_root(*record), request, err) : status;
}

static enum status render(const struct command *command, const struct json_value *json,
                          struct chat_prompt *prompt, struct chat_failure *failure,
                          struct error *err)
{
    struct chat_request request = {.now = command->now, .openai = !command->settings->jsonl};
    struct json *record = NULL;
    enum status status = request.openai ? read_as_served(json, &request, &record, err)
                                        : chat_request_read(json, &request, err);
    if (status == STATUS_OK && !request.openai && json_find(json, "bos"))
        status = json_get_string(json, "bos", &request.bos, NULL, err);
    if (status == STATUS_OK && !request.openai && json_find(json, "eos"))
        status = json_get_string(json, "eos", &request.eos, NULL, err);
    if (status == STATUS_OK)
        status = chat_template_render(command->chat, &request, prompt, failure, err);
    else
        str_copy(failure->message, sizeof failure->message, err->text);
    json_destroy(record);
    return status;
}

static enum status print(const struct str *out, struct error *err)
{
    if (out->truncated)
        return error_set(err, STATUS_LIMIT, "the output is over the limit of %zu bytes",
                         out->limit);
    fwrite(out->data, 1, out->length, stdout);
    return standard_output_flush(err);
}

static enum status parse(const struct str *text, struct json **json, struct error *err)
{
    struct json_limits limits = {.max_bytes = REQUEST_LIMIT_BYTES,
                                 .max_depth = REQUEST_LIMIT_DEPTH};
    TRY(input_lines_check(text, err));
    return json_parse(text->data, text->length, limits, json, err);
}

static enum status add_ids(const struct command *command, const struct chat_prompt *prompt,
                           const char *separator, struct str *out, struct error *err)
{
    struct token_ids ids;
    token_ids_init(&ids, IDS_LIMIT_COUNT);
    enum status status = chat_encode(command->tokenizer, prompt, &ids, err);
    for (size_t i = 0; status == STATUS_OK && i < ids.count; i++)
        str_addf(out, "%s%u", i ? separator : "", ids.data[i]);
    token_ids_deinit(&ids);
    return status;
}

static enum status add_prompt_member(const struct command *command,
                                     const struct chat_prompt *prompt, struct str *out,
                                     struct error *err)
{
    if (!command->tokenizer) {
        str_add(out, "{\"text\": ");
        json_quote(out, prompt->text, prompt->length);
        return STATUS_OK;
    }
    str_add(out, "{\"ids\": [");
    TRY(add_ids(command, prompt, ", ", out, err));
    str_add(out, "]");
    return STATUS_OK;
}

static enum status run_line(const struct command *command, const struct str *line, struct str *out,
                            struct error *err)
{
    struct json *json;
    struct chat_prompt prompt = {0};
    struct chat_failure failure = {0};
    struct error refusal;
    enum status status = STATUS_OK;
    TRY(parse(line, &json, err));
    str_clear(out);
    if (render(command, json_root(json), &prompt, &failure, &refusal) == STATUS_OK) {
        status = add_prompt_member(command, &prompt, out, err);
        chat_prompt_deinit(&prompt);
    } else {
        str_add(out, "{\"error\": ");
        json_quote(out, failure.message, strlen(failure.message));
    }
    str_add(out, "}\n");
    json_destroy(json);
    return status == STATUS_OK ? print(out, err) : status;
}

static enum status run_whole(const struct command *command, struct str *input, struct str *out,
                             struct error *err)
{
    struct json *json;
    struct chat_prompt prompt;
    struct chat_failure failure;
    (void)input_lines_read(stdin, EOF, input);
    TRY(parse(input, &json, err));
    enum status status = render(command, json_root(json), &prompt, &failure, err);
    json_destroy(json);
    if (status != STATUS_OK)
        return status;
    if (command->tokenizer)
        status = add_ids(command, &prompt, " ", out, err);
    else
        str_append(out, prompt.text, prompt.length);
    if (command->tokenizer)
        str_add(out, "\n");
    chat_prompt_deinit(&prompt);
    return status == STATUS_OK ? print(out, err) : status;
}

static enum status run(const struct settings *settings, struct template_time now, struct error *err)
{
    struct chat_template *chat;
    struct tokenizer *tokenizer = NULL;
    char path[4096 + 32];
    snprintf(path, sizeof path, "%s/tokenizer.json", settings->model);
    if (settings->ids)
        TRY(tokenizer_open(path, &tokenizer, err));
    enum status status = *settings->model ? chat_template_open(settings->model, &chat, err)
                                          : chat_template_open_file(settings->template, &chat, err);
    if (status != STATUS_OK) {
        tokenizer_close(tokenizer);
        return status;
    }
    struct command command = {
        .chat = chat, .tokenizer = tokenizer, .settings = settings, .now = now};
    struct str input, out;
    str_init(&input, REQUEST_LIMIT_BYTES);
    str_init(&out, OUTPUT_LIMIT_BYTES);
    if (!settings->jsonl)
        status = run_whole(&command, &input, &out, err);
    for (size_t number = 1;
         settings->jsonl && status == STATUS_OK && input_lines_read(stdin, '\n', &input);
         number++) {
        status = run_line(&command, &input, &out, err);
        if (status != STATUS_OK)
            error_prefix(err, status, "line %zu", number);
    }
    if (settings->jsonl && status == STATUS_OK)
        status = input_lines_check(&input, err);
    str_deinit(&out);
    str_deinit(&input);
    chat_template_close(chat);
    tokenizer_close(tokenizer);
    return status;
}

int cmd_chat_template(int argc, char **argv)
{
    struct settings settings = {0};
    struct config_result result;
    struct error err;
    struct template_time now;
    config_load_or_exit(&program, argc, argv, &settings, &result);
    if (!*settings.model == !*settings.template) {
        fprintf(stderr, "%s: give --model DIR or --template FILE, one of them\n", program.name);
        return 2;
    }
    if (settings.ids && !*settings.model) {
        fprintf(stderr, "%s: --ids needs --model\n", program.name);
        return 2;
    }
    if (!*settings.now) {
        now = chat_time_now();
    } else if (!parse_time(settings.now, &now)) {
        fprintf(stderr, "%s: --now must be as 2026-07-26 or 2026-07-26T10:20:30\n", program.name);
        return 2;
    }
    if (run(&settings, now, &err) == STATUS_OK)
        return 0;
    fprintf(stderr, "%s: %s\n", program.name, err.text);
    return 1;
}
