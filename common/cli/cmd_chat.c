#include "common/cli/cmd_chat.h"

#include "common/base/log.h"
#include "common/base/standard_output.h"
#include "common/cli/call_credentials.h"
#include "common/cli/chat_render.h"
#include "common/cli/cluster_file.h"
#include "common/cli/generate_answer.h"
#include "common/cli/generate_call.h"
#include "common/cli/line_reader.h"
#include "common/cli/terminal.h"
#include "common/config/config.h"
#include "proto/proto_unpack.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define MAX_REQUEST_BYTES (64u << 10) /* without the transcript, which is not copied */
#define MAX_SAY_BYTES     (5u << 20)

struct settings {
    char server[128], model[128], model_dir[1024];
    bool plain;
    struct credential_settings credentials;
    struct config_list stop;
    uint32_t max_tokens;
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
     .help = "Folder of the model, whose chat template and tokenizer make the prompts; empty: "
             "the one that `baton up` was given"},
    {"plain", CONFIG_BOOL, AT(plain), "false",
     .help = "No chat template: the model goes on from the transcript as it stands"},
    {"max-tokens", CONFIG_U64, AT(max_tokens), "128", "1", "1048576", .unit = "tokens",
     .help = "Length of an answer at most; with the conversation it must fit into the context"},
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
    struct chat_render render; /* of chat.templated */
    struct call_credentials credentials;
    struct token_ids prompt;
    struct line_reader input;
    struct str say;
    int signal_fd;
    bool interactive; /* both ends are a terminal: prompts and figures are shown */
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

/* What was signalled: Ctrl-C is about the answer, all else about the program. */
static bool take_signal(struct talk *talk)
{
    struct signalfd_siginfo info;
    if (read(talk->signal_fd, &info, sizeof info) != sizeof info)
        return false;
    talk->quit |= info.ssi_signo != SIGINT;
    return true;
}

static void follow(struct talk *talk, struct turn *turn)
{
    while (!turn->ended) {
        struct pollfd fds[2] = {{.fd = generate_call_fd(turn->call), .events = POLLIN},
                                {.fd = talk->signal_fd, .events = POLLIN}};
        poll(fds, 2, -1);
        if (fds[1].revents && take_signal(talk)) {
            turn->interrupted = true;
            generate_call_cancel(turn->call);
        }
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

static void prompt(const struct talk *talk)
{
    if (!talk->interactive)
        return;
    printf("%s>%s ", talk->color ? "\033[1m" : "", talk->color ? "\033[0m" : "");
    fflush(stdout);
}

static void take_line(struct talk *talk, const char *line)
{
    if (talk->interactive && strchr(line, '\033')) { /* not what its writer believes to see */
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

/* Everything that is there. */
static void take_lines(struct talk *talk)
{
    const char *line;
    for (enum line_event event;
         !talk->quit && (event = line_reader_next(&talk->input, &line)) != LINE_NONE;) {
        if (event == LINE_END) {
            talk->quit = true;
            if (talk->interactive)
                printf("\n");
            return;
        }
        if (event == LINE_WHOLE) {
            take_line(talk, line);
        } else {
            fprintf(stderr, "baton chat: a line of over %u bytes is left out\n",
                    LINE_READER_MAX_BYTES);
            talk->failed = true;
        }
        if (!talk->quit)
            prompt(talk);
    }
}

static void converse(struct talk *talk)
{
    prompt(talk);
    while (!talk->quit) {
        struct pollfd fds[2] = {{.fd = talk->input.fd, .events = POLLIN},
                                {.fd = talk->signal_fd, .events = POLLIN}};
        poll(fds, 2, -1);
        if (fds[1].revents && take_signal(talk) && !talk->quit) {
            /* The terminal has dropped the line. */
            printf("%s\n", talk->interactive ? "\n(/quit or Ctrl-D ends)" : "");
            prompt(talk);
        }
        if (fds[0].revents)
            line_reader_fill(&talk->input);
        take_lines(talk);
    }
}

/* The folder that was named must have a template; one that the cluster was started with may. */
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

static enum status apply_settings(struct talk *talk, const struct config_result *result,
                                  struct error *err)
{
    const struct settings *settings = &talk->settings;
    struct chat *chat = &talk->chat;
    str_copy(chat->model, sizeof chat->model, settings->model);
    TRY(chat_set(chat, CHAT_MAX_TOKENS, settings->max_tokens, err));
    if (config_given(&program, result, "seed"))
        TRY(chat_set(chat, CHAT_SEED, (double)settings->seed, err));
    for (size_t i = 0; i < settings->stop.count; i++)
        TRY(chat_add_stop(chat, settings->stop.items[i], err));
    struct cluster_file cluster = {0};
    if (!*settings->server) {
        TRY(cluster_file_find("--server", &cluster, err));
        str_copy(talk->settings.server, sizeof talk->settings.server, cluster.grpc);
    }
    return settings->plain ? STATUS_OK : open_template(talk, &cluster, err);
}

/* Before threads start, so that none of them takes one. */
static enum status take_signals(struct talk *talk, struct error *err)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    talk->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (talk->signal_fd < 0)
        return error_set(err, STATUS_IO, "cannot take signals");
    return STATUS_OK;
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
    line_reader_init(&talk->input, STDIN_FILENO);
    str_init(&talk->say, MAX_SAY_BYTES);
    enum status status = apply_settings(talk, &result, &err);
    if (status == STATUS_OK)
        status = take_signals(talk, &err);
    if (status == STATUS_OK)
        status = call_credentials_open(&talk->settings.credentials, &talk->credentials, &err);
    if (status == STATUS_OK) {
        greet(talk);
        converse(talk);
    } else {
        fprintf(stderr, "baton chat: %s\n", err.text);
    }
    /* Who was there has seen what failed, and went on. */
    bool failed = status != STATUS_OK || (talk->failed && !talk->interactive);
    int code = status == STATUS_INVALID ? 2 : failed;
    if (talk->signal_fd >= 0)
        close(talk->signal_fd);
    str_deinit(&talk->say);
    line_reader_deinit(&talk->input);
    chat_render_close(&talk->render);
    call_credentials_close(&talk->credentials);
    token_ids_deinit(&talk->prompt);
    chat_deinit(&talk->chat);
    free(talk);
    return code;
}
