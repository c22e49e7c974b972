#include "common/cli/commands.h"

#include "common/base/config/config.h"
#include "common/base/log.h"
#include "common/base/standard_output.h"
#include "common/cli/chat_render.h"
#include "common/cli/generate.h"
#include "common/cli/line_editor.h"
#include "common/cli/terminal.h"
#include "proto/proto_unpack.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_REQUEST_BYTES (64u << 10) /* without the transcript, which isn't copied */
#define MAX_SAY_BYTES     (5u << 20)

struct settings {
    char server[128], model[128], model_dir[1024], slo_class[64];
    bool plain, history;
    struct credential_settings credentials;
    struct config_list stop;
    char system[CHAT_MAX_SYSTEM_BYTES + 1];
    double temperature, top_p, min_p;
    uint32_t top_k, max_tokens;
    uint64_t seed, timeout_us;
};

#define AT(field) CONFIG_AT(struct settings, field)
static const struct config_setting settings_table[] = {
    {"server", CONFIG_STRING, AT(server), "", .value = "HOST:PORT",
     .help = "gRPC address of the router; empty: the cluster started here last",
     .check = rpc_check_target},
    CREDENTIAL_ROWS(struct settings, credentials),
    {"model", CONFIG_STRING, AT(model), "", .value = "NAME",
     .help = "Name of the model; empty: the only one", .flag_only = true},
    {"model-dir", CONFIG_STRING, AT(model_dir), "", .value = "DIR",
     .help = "Folder of the model with the chat template and tokenizer for the prompts; empty: "
             "the one that `baton up` was given"},
    {"slo-class", CONFIG_STRING, AT(slo_class), "", .value = "NAME",
     .help = "SLO class, one of the router's; empty: the router's default", .flag_only = true},
    {"plain", CONFIG_BOOL, AT(plain), "false",
     .help = "No chat template: the model goes on from the transcript as it stands"},
    {"history", CONFIG_BOOL, AT(history), "true",
     .help = "Lines typed in a terminal are kept for the next start, in "
             "~/.local/state/baton/chat_history"},
    {"system", CONFIG_STRING, AT(system), "",
     .help = "System text, which stands before all turns; needs a chat template"},
    {"max-tokens", CONFIG_U64, AT(max_tokens), "128", "1", "1048576", .unit = "tokens",
     .help = "Length of an answer at most; with the conversation it must fit into the context"},
    {"temperature", CONFIG_DOUBLE, AT(temperature), .help = "0 .. 100; 0: greedy"},
    {"top-p", CONFIG_DOUBLE, AT(top_p),
     .help = "Draw among the likeliest that make up this share, above 0 and up to 1; 1: off"},
    {"top-k", CONFIG_U64, AT(top_k), NULL, "0", .help = "Draw among the k likeliest; 0: off"},
    {"min-p", CONFIG_DOUBLE, AT(min_p),
     .help = "Draw among those at least this share as likely as the likeliest, from 0 to below 1; "
             "0: off"},
    {"seed", CONFIG_U64, AT(seed), NULL,
     .help = "The same seed and transcript give the same answer"},
    {"stop", CONFIG_LIST, AT(stop), .max = "4", .help = "End answers before this text"},
    {"timeout", CONFIG_DURATION, AT(timeout_us), "10m", "1ms", "24h",
     .help = "Deadline of an answer"},
};
static void check(const void *settings, struct str *mistakes)
{
    struct error err;
    const struct settings *talk = settings;
    config_mistake(mistakes, call_credentials_check(&talk->credentials, &err), &err);
}

static const struct config_program program = {
    .name = "baton chat",
    .summary =
        "A conversation with the cluster's model: lines of standard input, answers as they come.\n"
        "/help lists what else can be said; Ctrl-C stops an answer, Ctrl-D ends.",
    .settings = settings_table,
    .setting_count = sizeof settings_table / sizeof *settings_table,
    .check = check,
};

struct talk {
    struct settings settings;
    struct chat chat;
    struct chat_render render; /* if chat.templated */
    struct call_credentials credentials;
    struct token_ids prompt;
    struct line_editor *editor; /* NULL: lines come unedited, through `reader` */
    struct line_reader reader;
    struct line_history history;
    const char *input_prompt; /* "": none is shown */
    struct str say;
    int signal_fd;
    bool interactive; /* both ends are a terminal: shows prompts and figures */
    bool color, failed, quit;
};

/* One answer on its way. */
struct turn {
    struct arena arena; /* holds the request */
    struct generate_call *call;
    struct generate_answer answer;
    bool ended, interrupted, broken;
};

/* --- an answer --- */

static enum status take_message(struct turn *turn, const struct generate_event *event,
                                struct error *err)
{
    struct arena arena;
    ProtobufCMessage *message;
    arena_init(&arena, proto_arena_bytes(event->size));
    size_t shown = turn->answer.text.length;
    enum status status = proto_unpack(&baton__v1__generate_response__descriptor, event->data,
                                      event->size, &arena, &message, err);
    if (status == STATUS_OK)
        status =
            generate_answer_take(&turn->answer, (const Baton__V1__GenerateResponse *)message, err);
    if (status == STATUS_OK && turn->answer.text.length > shown) {
        terminal_show(turn->answer.text.data + shown, turn->answer.text.length - shown);
        status = standard_output_flush(err);
    }
    arena_deinit(&arena);
    return status;
}

static void say_end(struct talk *talk, const struct turn *turn, const struct generate_event *event)
{
    struct error why;
    if (turn->interrupted) {
        fprintf(stderr, "[stopped]\n");
    } else if (event->code != RPC_OK || !turn->answer.finished) {
        generate_event_explain(event, talk->settings.server, talk->settings.timeout_us,
                               turn->answer.tokens > 0, &why);
        fprintf(stderr, "baton chat: %s\n", why.text);
        talk->failed = true;
        if (!strcmp(event->reason, "context_length_exceeded"))
            fprintf(stderr, "baton chat: /max_tokens NUMBER asks for a shorter answer, /undo "
                            "forgets a turn, /reset all\n");
    } else if (talk->interactive) {
        struct str figures;
        str_init(&figures, 4096);
        generate_answer_figures(&turn->answer, &figures);
        fprintf(stderr, "%s[%s]%s\n", talk->color ? "\033[2m" : "", figures.data,
                talk->color ? "\033[0m" : "");
        str_deinit(&figures);
    }
}

static void take_event(struct talk *talk, struct turn *turn, const struct generate_event *event)
{
    struct error err;
    if (event->ended) {
        turn->ended = true;
        size_t length = turn->answer.text.length;
        if (length && turn->answer.text.data[length - 1] != '\n')
            printf("\n");
        fflush(stdout);
        if (!turn->broken)
            say_end(talk, turn, event);
    } else if (!turn->broken && take_message(turn, event, &err) != STATUS_OK) {
        fprintf(stderr, "baton chat: %s\n", err.text);
        talk->failed = turn->broken = true;
        generate_call_cancel(turn->call);
    }
}

/* Ctrl-C ends the answer. A signal that ends the program ends both. */
static void take_signal(struct talk *talk, struct turn *turn)
{
    enum terminal_signal signal = terminal_signals_take(talk->signal_fd);
    if (signal == TERMINAL_STOP)
        terminal_signals_stop();
    if (signal != TERMINAL_INTERRUPT && signal != TERMINAL_END)
        return;
    talk->quit |= signal == TERMINAL_END;
    turn->interrupted = true;
    generate_call_cancel(turn->call);
}

static void follow(struct talk *talk, struct turn *turn)
{
    while (!turn->ended) {
        struct pollfd fds[2] = {{.fd = generate_call_fd(turn->call), .events = POLLIN},
                                {.fd = talk->signal_fd, .events = POLLIN}};
        poll(fds, 2, -1);
        if (fds[1].revents)
            take_signal(talk, turn);
        struct generate_event *event = fds[0].revents ? generate_call_next(turn->call) : NULL;
        if (event)
            take_event(talk, turn, event);
        free(event);
    }
}

static enum status send_turn(struct talk *talk, struct turn *turn, struct error *err)
{
    bool templated = talk->chat.templated;
    talk->prompt.count = 0;
    if (templated)
        TRY(chat_render_prompt(&talk->render, &talk->chat, &talk->prompt, err));
    Baton__V1__GenerateRequest *request = chat_request(
        &talk->chat, templated ? talk->prompt.data : NULL, talk->prompt.count, &turn->arena);
    const struct generate_target target =
        call_credentials_target(&talk->credentials, talk->settings.server);
    return generate_call_open(&target, request, talk->settings.timeout_us, &turn->call, err);
}

static void ask(struct talk *talk)
{
    struct turn turn = {0};
    struct error err;
    arena_init(&turn.arena, MAX_REQUEST_BYTES);
    generate_answer_init(&turn.answer);
    enum status status = send_turn(talk, &turn, &err);
    if (status == STATUS_OK) {
        follow(talk, &turn);
        generate_call_close(turn.call);
    } else {
        fprintf(stderr, "baton chat: %s\n", err.text);
        talk->failed = true;
    }
    if (turn.answer.finished || turn.answer.text.length)
        chat_take_answer(&talk->chat, turn.answer.text.data, turn.answer.text.length);
    else
        chat_take_failure(&talk->chat);
    generate_answer_deinit(&turn.answer);
    arena_deinit(&turn.arena);
}

/* --- the conversation --- */

static void open_input(struct talk *talk)
{
    talk->input_prompt = talk->interactive ? "> " : "";
    line_reader_init(&talk->reader, STDIN_FILENO);
    if (!talk->interactive || !terminal_is_one())
        return;
    if (terminal_color())
        talk->input_prompt =
            LINE_EDITOR_INVISIBLE "\033[1m" LINE_EDITOR_INVISIBLE ">" LINE_EDITOR_INVISIBLE
                                  "\033[0m" LINE_EDITOR_INVISIBLE " ";
    line_editor_locale();
    line_history_open(&talk->history, talk->settings.history);
    talk->editor = line_editor_open(talk->input_prompt, &talk->history, talk->signal_fd);
}

/* Waits for the next line, which is valid until the next call. LINE_END also after a signal that
 * ends the program. Never LINE_NONE. */
static enum line_event next_line(struct talk *talk, const char **line)
{
    if (talk->editor)
        return line_editor_read(talk->editor, line);
    fputs(talk->input_prompt, stdout);
    fflush(stdout);
    for (enum line_event event;;) {
        if ((event = line_reader_next(&talk->reader, line)) != LINE_NONE)
            return event;
        struct pollfd fds[2] = {{.fd = talk->reader.fd, .events = POLLIN},
                                {.fd = talk->signal_fd, .events = POLLIN}};
        poll(fds, 2, -1);
        enum terminal_signal signal =
            fds[1].revents ? terminal_signals_take(talk->signal_fd) : TERMINAL_NOTHING;
        if (signal == TERMINAL_INTERRUPT || signal == TERMINAL_END)
            return signal == TERMINAL_END ? LINE_END : LINE_INTERRUPTED;
        if (fds[0].revents)
            line_reader_fill(&talk->reader);
    }
}
static void take_line(struct talk *talk, const char *line)
{
    if (talk->interactive && !talk->editor && strchr(line, '\033')) { /* it differs from its look */
        printf("Keys like arrows don't edit here: the line is left out, write it again.\n");
        return;
    }
    str_clear(&talk->say);
    enum chat_act act = chat_take_line(&talk->chat, line, &talk->say);
    terminal_show(talk->say.data, talk->say.length);
    fflush(stdout);
    if (act == CHAT_ASK)
        ask(talk);
    talk->quit |= act == CHAT_QUIT;
}

static void converse(struct talk *talk)
{
    const char *line;
    while (!talk->quit) {
        switch (next_line(talk, &line)) {
        case LINE_WHOLE: take_line(talk, line); break;
        case LINE_INTERRUPTED:
            printf("%s\n", talk->interactive ? "\n(/quit or Ctrl-D ends)" : "");
            break;
        case LINE_TOO_LONG:
            fprintf(stderr, "baton chat: a line of over %u %s is left out\n",
                    talk->editor ? LINE_EDITOR_MAX_CHARACTERS : LINE_READER_MAX_BYTES,
                    talk->editor ? "characters" : "bytes");
            talk->failed = true;
            break;
        case LINE_NONE:
        case LINE_END:
            talk->quit = true;
            if (talk->interactive)
                printf("\n");
        }
    }
}

/* --model-dir must have a template. A folder that the cluster was started with may have one. */
static enum status open_template(struct talk *talk, const struct cluster_file *cluster,
                                 struct error *err)
{
    const char *named = talk->settings.model_dir;
    const char *folder = *named ? named : cluster_file_model_dir(cluster, talk->settings.model);
    if (!*folder)
        return STATUS_OK;
    enum status status = chat_render_open(folder, &talk->render, err);
    talk->chat.templated = status == STATUS_OK;
    if (status == STATUS_OK || *named)
        return status;
    if (status != STATUS_NOT_FOUND)
        fprintf(stderr, "baton chat: no chat template is used: %s\n", err->text);
    return STATUS_OK;
}

/* Applies the options that were given. The server has defaults for the others. */
static enum status apply_options(struct talk *talk, const struct config_result *result,
                                 struct error *err)
{
    const struct settings *settings = &talk->settings;
    const struct {
        const char *flag;
        enum chat_option option;
        double value;
    } options[] = {
        {"temperature", CHAT_TEMPERATURE, settings->temperature},
        {"top-p", CHAT_TOP_P, settings->top_p},
        {"top-k", CHAT_TOP_K, settings->top_k},
        {"min-p", CHAT_MIN_P, settings->min_p},
        {"seed", CHAT_SEED, (double)settings->seed},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (config_given(&program, result, options[i].flag))
            TRY(chat_set(&talk->chat, options[i].option, options[i].value, err));
    return STATUS_OK;
}

static enum status apply_settings(struct talk *talk, const struct config_result *result,
                                  struct error *err)
{
    const struct settings *settings = &talk->settings;
    struct chat *chat = &talk->chat;
    str_copy(chat->model, sizeof chat->model, settings->model);
    str_copy(chat->slo_class, sizeof chat->slo_class, settings->slo_class);
    TRY(chat_set(chat, CHAT_MAX_TOKENS, settings->max_tokens, err));
    TRY(apply_options(talk, result, err));
    for (size_t i = 0; i < settings->stop.count; i++)
        TRY(chat_add_stop(chat, settings->stop.items[i], err));
    struct cluster_file cluster = {0};
    if (!*settings->server) {
        TRY(cluster_file_find("--server", &cluster, err));
        cluster_file_note(&cluster, "--server");
        str_copy(talk->settings.server, sizeof talk->settings.server, cluster.grpc);
    }
    if (!settings->plain)
        TRY(open_template(talk, &cluster, err));
    return *settings->system ? chat_set_system(chat, settings->system, err) : STATUS_OK;
}

static void greet(const struct talk *talk)
{
    if (!talk->interactive)
        return;
    if (talk->chat.templated)
        printf("Prompts are made by the model's chat template (--plain: none).");
    else
        printf("No chat template is used: the model goes on from the transcript, which is your "
               "lines and its answers\nas they stand (/show).");
    printf(" /help lists commands, Ctrl-C stops an answer, Ctrl-D ends.\n");
}

int cmd_chat(int argc, char **argv)
{
    struct talk *talk = calloc(1, sizeof *talk);
    struct config_result result;
    struct error err = {"out of memory"};
    if (!talk) {
        fprintf(stderr, "baton chat: %s\n", err.text);
        return 1;
    }
    config_load_or_exit(&program, argc, argv, &talk->settings, &result);
    log_init("chat", LOG_WARN);
    talk->signal_fd = -1;
    talk->interactive = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    talk->color = terminal_color();
    chat_init(&talk->chat);
    token_ids_init(&talk->prompt, CHAT_RENDER_MAX_IDS);
    str_init(&talk->say, MAX_SAY_BYTES);
    enum status status = apply_settings(talk, &result, &err);
    if (status == STATUS_OK)
        status =
            terminal_signals_open(talk->interactive && terminal_is_one(), &talk->signal_fd, &err);
    if (status == STATUS_OK)
        status = call_credentials_open(&talk->settings.credentials, &talk->credentials, &err);
    if (status == STATUS_OK) {
        greet(talk);
        open_input(talk);
        converse(talk);
        line_editor_close(talk->editor);
        if (line_history_close(&talk->history, &err) != STATUS_OK)
            fprintf(stderr, "baton chat: %s\n", err.text);
        line_reader_deinit(&talk->reader);
    } else {
        fprintf(stderr, "baton chat: %s\n", err.text);
    }
    /* In a terminal the user has seen a failed answer, and went on. */
    bool failed = status != STATUS_OK || (talk->failed && !talk->interactive);
    int code = status == STATUS_INVALID ? 2 : failed;
    if (talk->signal_fd >= 0)
        close(talk->signal_fd);
    str_deinit(&talk->say);
    chat_render_close(&talk->render);
    call_credentials_close(&talk->credentials);
    token_ids_deinit(&talk->prompt);
    chat_deinit(&talk->chat);
    free(talk);
    return code;
}
