#include "common/cli/commands.h"

#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/base/standard_output.h"
#include "common/cli/generate.h"
#include "common/cli/terminal.h"
#include "proto/proto_unpack.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define MAX_PROMPT_BYTES  (4u << 20)
#define MAX_REQUEST_BYTES (64u << 20)
#define MAX_OUTPUT_BYTES  (256u << 20)
#define EXIT_INTERRUPTED  130

struct run {
    struct generate_settings settings;
    struct config_result result;
    struct arena arena; /* holds the request */
    struct call_credentials credentials;
    struct generate_call *call;
    struct generate_answer answer;
    int signal_fd;
    bool interrupted, ended;
    int exit_code;
};

static enum status read_prompt(struct run *run, struct text *prompt, struct error *err)
{
    *prompt = (struct text){NULL, 0};
    if (!run->result.positional_count)
        return STATUS_OK;
    *prompt = text_from(run->result.positionals[0]);
    if (strcmp(prompt->bytes, "-") != 0)
        return STATUS_OK;
    struct str text;
    str_init(&text, MAX_PROMPT_BYTES);
    char buffer[16384];
    for (size_t count; !text.truncated && (count = fread(buffer, 1, sizeof buffer, stdin)) > 0;)
        str_append(&text, buffer, count);
    enum status status = STATUS_OK;
    if (ferror(stdin))
        status = error_set(err, STATUS_IO, "standard input: %s", strerror(errno));
    else if (text.truncated)
        status =
            error_set(err, STATUS_INVALID, "standard input has over %u bytes, the longest prompt",
                      MAX_PROMPT_BYTES);
    else
        *prompt = (struct text){arena_copy(&run->arena, text.data, text.length + 1), text.length};
    str_deinit(&text);
    return status;
}

/* Makes SIGINT and SIGTERM readable. Call it before threads start, since a thread may take one. */
static enum status take_signals(struct run *run, struct error *err)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    run->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (run->signal_fd < 0)
        return error_set(err, STATUS_IO, "cannot take signals: %s", strerror(errno));
    return STATUS_OK;
}

static enum status start(struct run *run, struct error *err)
{
    struct text prompt;
    Baton__V1__GenerateRequest *request;
    if (!*run->settings.request_id)
        snprintf(run->settings.request_id, sizeof run->settings.request_id,
                 "%016" PRIx64 "%016" PRIx64, rng_entropy(), rng_entropy());
    run->answer.request_id = run->settings.request_id;
    TRY(read_prompt(run, &prompt, err));
    TRY(generate_request_build(&run->settings, &run->result, prompt, &run->arena, &request, err));
    if (!*run->settings.server) {
        struct cluster_file cluster;
        TRY(cluster_file_find("--server", &cluster, err));
        cluster_file_note(&cluster, "--server");
        str_copy(run->settings.server, sizeof run->settings.server, cluster.grpc);
    }
    TRY(take_signals(run, err));
    TRY(call_credentials_open(&run->settings.credentials, &run->credentials, err));
    const struct generate_target target =
        call_credentials_target(&run->credentials, run->settings.server);
    return generate_call_open(&target, request, run->settings.timeout_us, &run->call, err);
}

/* --- the answer --- */

static enum status take_message(struct run *run, const struct generate_event *event,
                                struct error *err)
{
    struct arena arena;
    ProtobufCMessage *message;
    arena_init(&arena, proto_arena_bytes(event->size));
    enum status status = proto_unpack(&baton__v1__generate_response__descriptor, event->data,
                                      event->size, &arena, &message, err);
    size_t shown = run->answer.text.length;
    if (status == STATUS_OK)
        status =
            generate_answer_take(&run->answer, (const Baton__V1__GenerateResponse *)message, err);
    if (status != STATUS_OK)
        error_prefix(err, status, "cannot use the server's answer");
    if (status == STATUS_OK && !run->settings.json && run->answer.text.length > shown) {
        terminal_show(run->answer.text.data + shown, run->answer.text.length - shown);
        status = standard_output_flush(err);
    }
    arena_deinit(&arena);
    return status;
}

static enum status print_answer(const struct run *run, struct error *err)
{
    struct str out;
    str_init(&out, MAX_OUTPUT_BYTES);
    if (run->settings.json) {
        generate_answer_json(&run->answer, &out);
        fputs(out.data, stdout);
    } else {
        if (!run->answer.text.length) /* a model without tokenizer */
            printf("%s", run->answer.token_ids.data);
        printf("\n");
        generate_answer_figures(&run->answer, &out);
    }
    enum status status = standard_output_flush(err);
    if (!run->settings.json)
        fprintf(stderr, "[%s]\n", out.data);
    str_deinit(&out);
    return status;
}

static void take_end(struct run *run, const struct generate_event *event)
{
    run->ended = true;
    if (run->exit_code) /* we ended it, with a sentence */
        return;
    if (event->code == RPC_OK && run->answer.finished) {
        struct error err;
        if (print_answer(run, &err) == STATUS_OK)
            return;
        fprintf(stderr, "baton generate: %s\n", err.text);
        run->exit_code = 1;
        return;
    }
    run->exit_code = run->interrupted ? EXIT_INTERRUPTED : 1;
    if (!run->settings.json && run->answer.text.length)
        printf("\n");
    fflush(stdout);
    if (run->interrupted) {
        fprintf(stderr, "baton generate: cancelled\n");
    } else if (event->overflow) {
        fprintf(stderr, "baton generate: the answer came faster than it could be written\n");
    } else {
        struct error why;
        generate_event_explain(event, run->settings.server, run->settings.timeout_us,
                               run->answer.tokens > 0, &why);
        fprintf(stderr, "baton generate: %s\n", why.text);
    }
}

static void take_event(struct run *run, const struct generate_event *event)
{
    struct error err;
    if (event->ended) {
        take_end(run, event);
    } else if (run->exit_code == 0 && take_message(run, event, &err) != STATUS_OK) {
        fprintf(stderr, "baton generate: %s\n", err.text);
        run->exit_code = 1;
        generate_call_cancel(run->call);
    }
}

static void follow(struct run *run)
{
    while (!run->ended) {
        struct pollfd fds[2] = {{.fd = generate_call_fd(run->call), .events = POLLIN},
                                {.fd = run->signal_fd, .events = POLLIN}};
        poll(fds, 2, -1);
        struct signalfd_siginfo info;
        if (fds[1].revents && read(run->signal_fd, &info, sizeof info) == sizeof info) {
            run->interrupted = true;
            generate_call_cancel(run->call);
        }
        struct generate_event *event = fds[0].revents ? generate_call_next(run->call) : NULL;
        if (event)
            take_event(run, event);
        free(event);
    }
}

int cmd_generate(int argc, char **argv)
{
    struct run run = {.signal_fd = -1};
    config_load_or_exit(&generate_program, argc, argv, &run.settings, &run.result);
    log_init("generate", LOG_WARN);
    arena_init(&run.arena, MAX_REQUEST_BYTES);
    generate_answer_init(&run.answer);
    struct error err;
    enum status status = start(&run, &err);
    if (status == STATUS_OK) {
        follow(&run);
        generate_call_close(run.call);
    } else {
        fprintf(stderr, "baton generate: %s\n", err.text);
        run.exit_code = status == STATUS_INVALID ? 2 : 1;
    }
    call_credentials_close(&run.credentials);
    if (run.signal_fd >= 0)
        close(run.signal_fd);
    generate_answer_deinit(&run.answer);
    arena_deinit(&run.arena);
    return run.exit_code;
}
