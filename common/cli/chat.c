#include "common/cli/chat.h"

#include "common/base/assert.h"
#include "common/base/domain/sampling.h"
#include "common/base/json/json_quote.h"
#include "proto/proto_text.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_WHOLE 9007199254740992.0 /* 2^53: a double can't hold all whole numbers above */

/* Errors have the words of `baton generate`: for whole numbers from here, for others from
 * common/base/domain/sampling.c. */
static const struct {
    const char *name, *help;
    double least, most; /* limits of whole numbers */
    bool whole;
} options[CHAT_OPTIONS] = {
    [CHAT_TEMPERATURE] = {"temperature", "0 .. 100; 0: the likeliest token, always"},
    [CHAT_TOP_P] = {"top_p", "draw among the likeliest that make up this share; 1: off"},
    [CHAT_TOP_K] = {"top_k", "draw among the k likeliest; 0: off", 0, UINT32_MAX, true},
    [CHAT_MIN_P] = {"min_p", "draw among those at least this share as likely as the likeliest"},
    [CHAT_SEED] = {"seed", "the same seed and transcript give the same answer", 0, MAX_WHOLE, true},
    [CHAT_MAX_TOKENS] = {"max_tokens", "length of an answer at most", 1, SAMPLING_MAX_TOKENS_LIMIT,
                         true},
};

void chat_init(struct chat *chat)
{
    memset(chat, 0, sizeof *chat);
    str_init(&chat->transcript, CHAT_MAX_TRANSCRIPT_BYTES);
    str_init(&chat->system, CHAT_MAX_SYSTEM_BYTES);
}

void chat_deinit(struct chat *chat)
{
    str_deinit(&chat->transcript);
    str_deinit(&chat->system);
}

/* --- options --- */

/* Returns the value as a float; infinity if it is out of range. */
static float narrow(double value)
{
    return fabs(value) <= (double)FLT_MAX ? (float)value : (float)copysign(INFINITY, value);
}

static enum status check(const struct chat *chat, struct error *err)
{
    struct sampling sampling = sampling_default();
    sampling.max_tokens = SAMPLING_MAX_TOKENS_LIMIT;
    if (chat->given[CHAT_TEMPERATURE])
        sampling.temperature = narrow(chat->values[CHAT_TEMPERATURE]);
    if (chat->given[CHAT_TOP_P])
        sampling.top_p = narrow(chat->values[CHAT_TOP_P]);
    if (chat->given[CHAT_MIN_P])
        sampling.min_p = narrow(chat->values[CHAT_MIN_P]);
    if (chat->given[CHAT_MAX_TOKENS])
        sampling.max_tokens = (uint32_t)chat->values[CHAT_MAX_TOKENS];
    return sampling_validate(&sampling, err);
}

static enum status check_whole(enum chat_option option, double value, struct error *err)
{
    double least = options[option].least, most = options[option].most;
    if (value != trunc(value))
        return error_set(err, STATUS_INVALID, "%s must be a whole number, but is '%.16g'",
                         options[option].name, value);
    if (value < least || value > most)
        return error_set(err, STATUS_INVALID, "%s must be in %.16g .. %.16g, but is '%.16g'",
                         options[option].name, least, most, value);
    return STATUS_OK;
}

enum status chat_set(struct chat *chat, enum chat_option option, double value, struct error *err)
{
    value = value == 0 ? 0 : value; /* not -0 */
    if (options[option].whole)
        TRY(check_whole(option, value, err));
    bool given = chat->given[option];
    double before = chat->values[option];
    chat->given[option] = true;
    chat->values[option] = value;
    enum status status = check(chat, err);
    if (status != STATUS_OK) {
        chat->given[option] = given;
        chat->values[option] = before;
    }
    return status;
}

enum status chat_add_stop(struct chat *chat, const char *text, struct error *err)
{
    if (chat->stop_count == CHAT_MAX_STOPS)
        return error_set(err, STATUS_LIMIT, "stop: there are %d already; /stop alone drops them",
                         CHAT_MAX_STOPS);
    if (!*text || strlen(text) > CHAT_MAX_STOP_BYTES)
        return error_set(err, STATUS_INVALID, "stop: 1 to %d bytes are wanted",
                         CHAT_MAX_STOP_BYTES);
    str_copy(chat->stops[chat->stop_count++], sizeof chat->stops[0], text);
    return STATUS_OK;
}

enum status chat_set_system(struct chat *chat, const char *text, struct error *err)
{
    if (!chat->templated)
        return error_set(err, STATUS_INVALID,
                         "system is for models with a chat template: here the transcript is all");
    str_clear(&chat->system);
    str_add(&chat->system, text);
    if (!chat->system.truncated)
        return STATUS_OK;
    str_clear(&chat->system);
    return error_set(err, STATUS_INVALID, "system: at most %u bytes; there is no text now",
                     CHAT_MAX_SYSTEM_BYTES);
}

static void show_options(const struct chat *chat, struct str *say)
{
    for (int i = 0; i < CHAT_OPTIONS; i++) {
        str_addf(say, "  /%-12s ", options[i].name);
        if (chat->given[i])
            str_addf(say, "%.16g\n", chat->values[i]);
        else
            str_add(say, "(the server's default)\n");
    }
    for (size_t i = 0; i < chat->stop_count; i++)
        str_addf(say, "  /stop         %s\n", chat->stops[i]);
}

/* --- commands --- */

static void help(struct chat *chat, const char *rest, struct str *say)
{
    (void)chat;
    (void)rest;
    str_add(say, "  /help         this\n"
                 "  /show         the transcript, with its speakers\n"
                 "  /reset        forget the transcript\n"
                 "  /undo         forget the last turn\n"
                 "  /retry        forget the last answer, and ask for it again\n"
                 "  /system TEXT  a text before all turns; without TEXT: none\n"
                 "  /set          the options of the next answer; /set NAME NUMBER changes one, "
                 "like these:\n");
    for (int i = 0; i < CHAT_OPTIONS; i++)
        str_addf(say, "  /%-12s NUMBER   %s\n", options[i].name, options[i].help);
    str_add(say, "  /stop TEXT    end answers before this text, too; without TEXT: drop them\n"
                 "  /quit         the end, as Ctrl-D\n"
                 "Ctrl-C stops an answer. A line that is to begin with a slash: write two.\n");
}

static void reset(struct chat *chat, const char *rest, struct str *say)
{
    (void)rest;
    str_clear(&chat->transcript);
    chat->turn_count = 0;
    str_add(say, "The transcript is empty.\n");
}

static void cut_to(struct chat *chat, size_t length)
{
    chat->transcript.data[chat->transcript.length = length] = 0;
    chat->transcript.truncated = false;
}

static void undo(struct chat *chat, const char *rest, struct str *say)
{
    (void)rest;
    if (!chat->turn_count) {
        str_add(say, "There is nothing to take back.\n");
        return;
    }
    cut_to(chat, chat->turns[--chat->turn_count].begin);
    str_addf(say, "The last turn is forgotten; %zu %s left.\n", chat->turn_count,
             chat->turn_count == 1 ? "is" : "are");
}

/* Returns the begin of turn `index` in the transcript. The user's text ends at its line feed, and
 * the answer goes from there to `end`. */
static const char *line_of(const struct chat *chat, size_t index, const char **feed,
                           const char **end)
{
    const struct chat_turn *turn = &chat->turns[index];
    const char *text = chat->transcript.data, *begin = text + turn->begin;
    bool last = index + 1 == chat->turn_count;
    *end = text + (last ? chat->transcript.length : chat->turns[index + 1].begin);
    *feed = begin + turn->line_bytes;
    ASSERT(*feed < *end && **feed == '\n');
    return begin;
}

static void show(struct chat *chat, const char *rest, struct str *say)
{
    (void)rest;
    if (chat->system.length)
        str_addf(say, "system: %s\n", chat->system.data);
    for (size_t i = 0; i < chat->turn_count; i++) {
        const char *feed, *end, *begin = line_of(chat, i, &feed, &end);
        str_add(say, "you: ");
        str_append(say, begin, (size_t)(feed + 1 - begin));
        if (feed + 1 == end)
            continue;
        str_add(say, "model: ");
        str_append(say, feed + 1, (size_t)(end - feed - 1));
        if (end[-1] != '\n')
            str_add(say, "\n");
    }
    if (!chat->turn_count)
        str_add(say, "The transcript is empty.\n");
}

static void set_system(struct chat *chat, const char *rest, struct str *say)
{
    struct error err;
    if (chat_set_system(chat, rest, &err) != STATUS_OK)
        str_addf(say, "/%s\n", err.text);
    else
        str_add(say, *rest ? "The system text is set.\n" : "There is no system text now.\n");
}

static void run_option(struct chat *chat, enum chat_option option, const char *rest,
                       struct str *say)
{
    struct error err;
    double value;
    if (!*rest)
        show_options(chat, say);
    else if (!str_to_double(rest, -DBL_MAX, DBL_MAX, &value))
        str_addf(say, "%s must be a%s number, but is '%.40s'\n", options[option].name,
                 options[option].whole ? " whole" : "", rest);
    else if (chat_set(chat, option, value, &err) != STATUS_OK)
        str_addf(say, "%s\n", err.text);
    else
        str_addf(say, "%s is %.16g from now on.\n", options[option].name, chat->values[option]);
}

static size_t word_length(const char *line)
{
    return strcspn(line, " \t");
}

static const char *behind_word(const char *line)
{
    const char *rest = line + word_length(line);
    return rest + strspn(rest, " \t");
}

/* Returns how much of a word a message quotes. */
static int shown(const char *line)
{
    return (int)(word_length(line) < 40 ? word_length(line) : 40);
}

static bool is_word(const char *line, const char *word)
{
    return strlen(word) == word_length(line) && !strncmp(line, word, word_length(line));
}

/* Returns the option that the first word names. CHAT_OPTIONS: none. */
static int option_of(const char *line)
{
    int option = 0;
    while (option < CHAT_OPTIONS && !is_word(line, options[option].name))
        option++;
    return option;
}

static void set(struct chat *chat, const char *rest, struct str *say)
{
    int option = option_of(rest);
    if (!*rest)
        show_options(chat, say);
    else if (option < CHAT_OPTIONS)
        run_option(chat, (enum chat_option)option, behind_word(rest), say);
    else
        str_addf(say, "there is no %.*s to set; /help lists what there is\n", shown(rest), rest);
}

static void stop(struct chat *chat, const char *rest, struct str *say)
{
    struct error err;
    if (!*rest) {
        chat->stop_count = 0;
        str_add(say, "Answers end at no text of yours.\n");
    } else if (chat_add_stop(chat, rest, &err) == STATUS_OK) {
        str_addf(say, "Answers end before \"%s\".\n", rest);
    } else {
        str_addf(say, "%s\n", err.text);
    }
}

static const struct {
    const char *name;
    void (*run)(struct chat *chat, const char *rest, struct str *say);
} commands[] = {{"help", help}, {"reset", reset}, {"undo", undo},        {"show", show},
                {"set", set},   {"stop", stop},   {"system", set_system}};

/* Cuts the transcript behind the user's last line. */
static enum chat_act retry(struct chat *chat, struct str *say)
{
    if (!chat->turn_count) {
        str_add(say, "There is nothing to ask again.\n");
        return CHAT_GO_ON;
    }
    const char *feed, *end;
    (void)line_of(chat, chat->turn_count - 1, &feed, &end);
    cut_to(chat, (size_t)(feed - chat->transcript.data) + 1);
    return CHAT_ASK;
}

static enum chat_act run_command(struct chat *chat, const char *line, struct str *say)
{
    int option = option_of(line);
    if (is_word(line, "quit") || is_word(line, "exit"))
        return CHAT_QUIT;
    if (is_word(line, "retry"))
        return retry(chat, say);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (is_word(line, commands[i].name)) {
            commands[i].run(chat, behind_word(line), say);
            return CHAT_GO_ON;
        }
    }
    if (option < CHAT_OPTIONS)
        run_option(chat, (enum chat_option)option, behind_word(line), say);
    else
        str_addf(say, "/%.*s is no command; /help lists them\n", shown(line), line);
    return CHAT_GO_ON;
}

/* --- turns --- */

/* Begins a turn with a line. The answer before it may have ended without a line feed. */
static enum chat_act begin_turn(struct chat *chat, const char *line, struct str *say)
{
    struct str *transcript = &chat->transcript;
    size_t begin = transcript->length;
    if (chat->turn_count == CHAT_MAX_TURNS) {
        str_addf(say, "There are %d turns: /reset begins anew\n", CHAT_MAX_TURNS);
        return CHAT_GO_ON;
    }
    if (begin && transcript->data[begin - 1] != '\n')
        str_add(transcript, "\n");
    size_t own = transcript->length;
    str_add(transcript, line);
    str_add(transcript, "\n");
    if (transcript->truncated) {
        cut_to(chat, begin);
        str_addf(say, "The transcript would have over %u bytes: /reset begins anew\n",
                 CHAT_MAX_TRANSCRIPT_BYTES);
        return CHAT_GO_ON;
    }
    chat->turns[chat->turn_count++] = (struct chat_turn){own, strlen(line)};
    return CHAT_ASK;
}

enum chat_act chat_take_line(struct chat *chat, const char *line, struct str *say)
{
    if (*line == '/' && line[1] != '/')
        return run_command(chat, line + 1, say);
    return begin_turn(chat, *line == '/' ? line + 1 : line, say);
}

void chat_take_answer(struct chat *chat, const char *text, size_t length)
{
    str_append(&chat->transcript, text, length);
}

void chat_take_failure(struct chat *chat)
{
    ASSERT(chat->turn_count);
    cut_to(chat, chat->turns[--chat->turn_count].begin);
}

/* --- the request --- */

static void add_message(struct str *json, const char *role, const char *text, size_t length)
{
    bool first = json->data[json->length - 1] == '[';
    str_addf(json, "%s{\"role\": \"%s\", \"content\": ", first ? "" : ", ", role);
    json_quote(json, text, length);
    str_add(json, "}");
}

void chat_messages(const struct chat *chat, struct str *json)
{
    str_add(json, "{\"messages\": [");
    if (chat->system.length)
        add_message(json, "system", chat->system.data, chat->system.length);
    for (size_t i = 0; i < chat->turn_count; i++) {
        bool last = i + 1 == chat->turn_count;
        const char *feed, *end, *begin = line_of(chat, i, &feed, &end);
        add_message(json, "user", begin, (size_t)(feed - begin));
        if (last && feed + 1 == end)
            continue;
        const char *answer = feed + 1;
        while (answer < end && memchr(" \t\r\n", *answer, 4))
            answer++;
        while (end > answer && memchr(" \t\r\n", end[-1], 4))
            end--;
        add_message(json, "assistant", answer, (size_t)(end - answer));
    }
    str_add(json, "]}");
}

#define SET(option, field, type, PRESENCE)                                                         \
    do {                                                                                           \
        if (chat->given[option]) {                                                                 \
            sampling->field##_presence_case = BATON__V1__SAMPLING__##PRESENCE;                     \
            sampling->field = (type)chat->values[option];                                          \
        }                                                                                          \
    } while (0)

static Baton__V1__Sampling *make_sampling(const struct chat *chat, struct arena *arena)
{
    Baton__V1__Sampling *sampling = arena_take(arena, sizeof *sampling);
    ASSERT(sampling);
    baton__v1__sampling__init(sampling);
    SET(CHAT_TEMPERATURE, temperature, float, TEMPERATURE_PRESENCE_TEMPERATURE);
    SET(CHAT_TOP_P, top_p, float, TOP_P_PRESENCE_TOP_P);
    SET(CHAT_TOP_K, top_k, uint32_t, TOP_K_PRESENCE_TOP_K);
    SET(CHAT_MIN_P, min_p, float, MIN_P_PRESENCE_MIN_P);
    SET(CHAT_SEED, seed, uint64_t, SEED_PRESENCE_SEED);
    SET(CHAT_MAX_TOKENS, max_tokens, uint32_t, MAX_TOKENS_PRESENCE_MAX_TOKENS);
    return sampling;
}

static void set_input(Baton__V1__GenerateRequest *request, const struct chat *chat, uint32_t *ids,
                      size_t id_count, struct arena *arena)
{
    if (!ids) {
        request->input_case = BATON__V1__GENERATE_REQUEST__INPUT_TEXT;
        request->text = proto_bytes((struct text){chat->transcript.data, chat->transcript.length});
        return;
    }
    request->token_ids = arena_take(arena, sizeof *request->token_ids);
    ASSERT(request->token_ids);
    baton__v1__token_ids__init(request->token_ids);
    request->input_case = BATON__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS;
    request->token_ids->ids = ids;
    request->token_ids->n_ids = id_count;
}

Baton__V1__GenerateRequest *chat_request(struct chat *chat, uint32_t *ids, size_t id_count,
                                         struct arena *arena)
{
    Baton__V1__GenerateRequest *request = arena_take(arena, sizeof *request);
    Baton__V1__Stop *stops = arena_take(arena, sizeof *stops);
    Baton__V1__Output *output = arena_take(arena, sizeof *output);
    ProtobufCBinaryData *texts = arena_take(arena, CHAT_MAX_STOPS * sizeof *texts);
    ASSERT(request && stops && output && texts);
    baton__v1__generate_request__init(request);
    baton__v1__stop__init(stops);
    baton__v1__output__init(output);
    for (size_t i = 0; i < chat->stop_count; i++)
        texts[i] = proto_bytes(text_from(chat->stops[i]));
    stops->n_strings = chat->stop_count;
    stops->strings = texts;
    output->return_timing_presence_case = BATON__V1__OUTPUT__RETURN_TIMING_PRESENCE_RETURN_TIMING;
    output->return_timing = true;
    request->model = chat->model;
    request->slo_class = chat->slo_class;
    set_input(request, chat, ids, id_count, arena);
    request->sampling = make_sampling(chat, arena);
    request->stop = stops;
    request->output = output;
    return request;
}
