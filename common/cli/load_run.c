#include "common/cli/load_run.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/json/json.h"
#include "common/base/json/json_quote.h"
#include "common/base/progress_line.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define MAX_BODY_BYTES   (64u << 20)
#define MAX_TURNS        1024
#define SENDS_A_TURN     16 /* before answers are looked at */
#define SECOND_NS        1000000000u
#define RETRY_NS         (SECOND_NS / 2)
#define TERMINAL_TELL_NS SECOND_NS
#define TELL_NS          (10ull * SECOND_NS)

static void on_lost(void *context, uint32_t request)
{
    struct load_run *run = context;
    load_answer_init(&run->answers[request], false);
    load_answer_fail(&run->answers[request], "earlier turn failed",
                     "the request that it goes on from failed");
    run->answers[request].due_ns = clock_now_ns(); /* its place among the others by arrival */
    run->failed++;
}

static void on_ended(void *context, uint32_t id)
{
    struct load_run *run = context;
    if (id == LOAD_PROBE) {
        run->probes--;
        return;
    }
    const struct load_answer *answer = &run->answers[id];
    bool success = !*answer->reason;
    run->failed += !success;
    run->chunks_before += answer->chunks;
    load_order_ended(&run->order, id, success, clock_now_ns() - run->start_ns, on_lost, run);
}

enum status load_run_open(struct load_run *run, struct error *err)
{
    run->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (run->timer < 0)
        return error_set(err, STATUS_IO, "no timer: %s", strerror(errno));
    str_init(&run->body, MAX_BODY_BYTES);
    load_answer_init(&run->probe, false);
    return load_client_open(run->target, on_ended, run, &run->client, err);
}

void load_run_close(struct load_run *run)
{
    load_client_close(run->client);
    for (uint32_t i = 0; run->answers && i < run->plan->request_count; i++)
        if (run->answers[i].text.data)
            load_answer_deinit(&run->answers[i]);
    free(run->answers);
    if (run->order.due)
        load_order_deinit(&run->order);
    if (!run->body.data)
        return;
    load_answer_deinit(&run->probe);
    str_deinit(&run->body);
    close(run->timer);
}

/* Waits until an answer has news, a signal comes, or it is `until_ns`, and deals with both. */
static void wait_until(struct load_run *run, uint64_t until_ns)
{
    struct itimerspec at = {{0, 0}, {0, 0}};
    if (until_ns != UINT64_MAX)
        at.it_value = (struct timespec){(time_t)(until_ns / SECOND_NS),
                                        (long)(until_ns % SECOND_NS) + !until_ns};
    timerfd_settime(run->timer, TFD_TIMER_ABSTIME, &at, NULL);
    struct pollfd fds[] = {{.fd = load_client_fd(run->client), .events = POLLIN},
                           {.fd = run->signals->fd, .events = POLLIN},
                           {.fd = run->timer, .events = POLLIN}};
    poll(fds, 3, -1);
    if (fds[1].revents)
        run->stopped |= stop_signals_take(run->signals, clock_now_us());
    load_client_run(run->client);
}

/* --- before the run --- */

/* Asks with `words` words of their own. False: a signal came. */
static bool probe(struct load_run *run, uint64_t name, uint32_t words)
{
    struct str prompt;
    str_init(&prompt, MAX_BODY_BYTES);
    load_words_append(run->words, name, words, &prompt);
    const struct text turn = {prompt.data, prompt.length};
    load_answer_deinit(&run->probe);
    load_answer_init(&run->probe, false);
    load_client_prepare(run->client, LOAD_PROBE, &turn, 1, 1, &run->body);
    str_deinit(&prompt);
    run->prepared = LOAD_NONE;
    run->probes = 1;
    load_client_send(run->client, LOAD_PROBE, &run->body, &run->probe);
    load_client_run(run->client); /* a request that can't be sent ends here, without news */
    while (run->probes && !run->stopped)
        wait_until(run, UINT64_MAX);
    return !run->stopped;
}

/* Asks the server for the tokens of a text of `words` words. False: it doesn't say. */
static bool ask_tokens(struct load_run *run, uint32_t words, double *tokens)
{
    struct load_reply reply = {0};
    struct str text;
    struct json *json;
    struct error ignored;
    int64_t count = -1;
    str_init(&reply.body, MAX_BODY_BYTES);
    str_init(&text, MAX_BODY_BYTES);
    load_words_append(run->words, LOAD_NONE, words, &text);
    str_clear(&run->body);
    str_add(&run->body, "{\"model\": ");
    json_quote(&run->body, run->target->model, strlen(run->target->model));
    str_add(&run->body, ", \"prompt\": ");
    json_quote(&run->body, text.data, text.length);
    str_add(&run->body, "}");
    run->probes = 1;
    load_client_fetch(run->client, LOAD_PROBE, "/tokenize", &run->body, &reply);
    load_client_run(run->client);
    while (run->probes && !run->stopped)
        wait_until(run, UINT64_MAX);
    if (!run->probes && reply.status == 200 &&
        json_parse(reply.body.data, reply.body.length,
                   (struct json_limits){.max_bytes = MAX_BODY_BYTES, .max_depth = 8}, &json,
                   &ignored) == STATUS_OK) {
        if (json_get_i64(json_root(json), "count", 1, INT32_MAX, &count, &ignored) != STATUS_OK)
            count = (int64_t)json_count(json_find(json_root(json), "tokens"));
        json_destroy(json);
    }
    str_deinit(&text);
    if (run->probes) { /* a signal: the client still writes to the reply */
        load_client_close(run->client);
        run->client = NULL;
    }
    str_deinit(&reply.body);
    *tokens = (double)count;
    return count > 0;
}

enum status load_run_measure_words(struct load_run *run, double ready_s, bool *told,
                                   struct error *err)
{
    enum { FEW = 16, MORE = 48, MANY = 1000 };
    struct load_words *words = run->words;
    uint64_t until_ns = clock_now_ns() + (uint64_t)(ready_s * SECOND_NS);
    double few, more;
    while (probe(run, LOAD_NONE, FEW) && *run->probe.reason && clock_now_ns() < until_ns)
        wait_until(run, clock_now_ns() + RETRY_NS);
    if (run->stopped)
        return error_set(err, STATUS_CANCELLED, "stopped");
    if (*run->probe.reason)
        return error_set(err, STATUS_UNAVAILABLE,
                         "the first request, to see that the server answers, failed: %s: %s",
                         run->probe.reason, run->probe.message);
    *told = run->probe.has_usage && run->probe.input_tokens;
    few = run->probe.input_tokens;
    bool known = words->tokenizer != NULL;
    if (!known && run->target->backend != LOAD_BATON && ask_tokens(run, MANY, &few) &&
        ask_tokens(run, 2 * MANY, &more) && more > few) {
        words->tokens_per_word = (more - few) / MANY;
        known = true;
    }
    if (run->stopped)
        return error_set(err, STATUS_CANCELLED, "stopped");
    few = run->probe.input_tokens;
    if (!known && *told && probe(run, LOAD_NONE, MORE) && run->probe.input_tokens > few)
        words->tokens_per_word = (run->probe.input_tokens - few) / (MORE - FEW);
    if (*told)
        words->overhead = rint(few - FEW * words->tokens_per_word);
    return STATUS_OK;
}

/* --- a request of the plan --- */

/* Writes the request into run->body: the texts of its turns, from the first one on. */
static void prepare(struct load_run *run, uint32_t index)
{
    uint32_t path[MAX_TURNS], depth = 0;
    struct text turns[2 * MAX_TURNS];
    struct str texts;
    size_t ends[2 * MAX_TURNS], count = 0;
    str_init(&texts, MAX_BODY_BYTES);
    for (uint32_t at = index; at != LOAD_NONE && depth < MAX_TURNS;
         at = run->plan->requests[at].parent)
        path[depth++] = at;
    while (depth) {
        struct str own; /* the first word has no blank in front in a chat */
        uint32_t at = path[--depth];
        str_init(&own, MAX_BODY_BYTES);
        load_words_render(run->words, run->plan, at, &own);
        if (count && run->target->backend != LOAD_OPENAI_CHAT)
            str_add(&texts, " ");
        str_append(&texts, own.data, own.length);
        ends[count++] = texts.length;
        str_deinit(&own);
        if (!depth)
            break;
        str_append(&texts, run->answers[at].text.data, run->answers[at].text.length);
        ends[count++] = texts.length;
    }
    for (size_t i = 0; i < count; i++) {
        size_t from = i ? ends[i - 1] : 0;
        turns[i] = (struct text){texts.data + from, ends[i] - from};
    }
    load_client_prepare(run->client, index, turns, count, run->plan->requests[index].output_tokens,
                        &run->body);
    run->prepared = index;
    str_deinit(&texts);
}

/* Sends what is due, up to SENDS_A_TURN of them. */
static void send_due(struct load_run *run)
{
    for (int sent = 0; sent < SENDS_A_TURN; sent++) {
        uint64_t ready_ns;
        uint32_t index = load_order_next(&run->order, clock_now_ns() - run->start_ns, &ready_ns);
        if (index == LOAD_NONE)
            return;
        if (run->prepared != index)
            prepare(run, index);
        struct load_answer *answer = &run->answers[index];
        bool is_quoted = run->order.child[index] != LOAD_NONE;
        load_answer_init(answer, run->keeps_text || is_quoted);
        answer->due_ns = run->start_ns + run->order.due_ns[index];
        answer->ready_ns = run->start_ns + ready_ns;
        load_client_send(run->client, index, &run->body, answer);
    }
}

void load_run_warm_up(struct load_run *run, uint32_t count)
{
    struct load_answer *answers = calloc(count, sizeof *answers);
    uint32_t limit = run->max_concurrency ? run->max_concurrency : count;
    ASSERT(answers || !count);
    if (count)
        prepare(run, 0);
    for (uint32_t sent = 0; (sent < count || run->probes) && !run->stopped;) {
        for (; sent < count && run->probes < limit; sent++) {
            load_answer_init(&answers[sent], false);
            run->probes++;
            load_client_send(run->client, LOAD_PROBE, &run->body, &answers[sent]);
        }
        load_client_run(run->client);
        if (run->probes)
            wait_until(run, UINT64_MAX);
    }
    if (run->probes) { /* a signal: the client still writes to the answers */
        load_client_close(run->client);
        run->client = NULL;
    }
    for (uint32_t i = 0; i < count; i++)
        if (answers[i].text.data)
            load_answer_deinit(&answers[i]);
    free(answers);
}

void load_run_all(struct load_run *run)
{
    FILE *terminal = progress_line_terminal();
    uint64_t tell_ns = terminal ? TERMINAL_TELL_NS : TELL_NS;
    run->answers = calloc(run->plan->request_count + 1, sizeof *run->answers);
    ASSERT(run->answers);
    load_order_init(&run->order, run->plan, run->max_concurrency);
    if (load_order_peek(&run->order) != LOAD_NONE)
        prepare(run, load_order_peek(&run->order));
    struct progress_line line = progress_line_begin(terminal, clock_now_us());
    uint64_t cpu_ns = clock_process_ran_ns();
    run->start_ns = clock_now_ns();
    uint64_t told_ns = run->start_ns;
    while (run->order.left && !run->stopped) {
        send_due(run);
        load_client_run(run->client);
        uint32_t next = load_order_peek(&run->order);
        if (next != LOAD_NONE && next != run->prepared)
            prepare(run, next);
        if (clock_now_ns() >= told_ns + tell_ns) {
            told_ns = clock_now_ns();
            double seconds = (double)(told_ns - run->start_ns) * 1e-9;
            uint32_t all = run->plan->request_count, done = all - run->order.left;
            if (!run->quiet)
                progress_line_tell(&line,
                                   "%.0f s: %u of %u requests done, %u failed, %u running; %.2f "
                                   "requests and %.0f chunks a second",
                                   seconds, done, all, run->failed, run->order.running,
                                   done / seconds, (double)run->chunks_before / seconds);
        }
        uint64_t when_ns = load_order_when(&run->order), wake_ns = told_ns + tell_ns;
        if (when_ns != UINT64_MAX && run->start_ns + when_ns < wake_ns)
            wake_ns = run->start_ns + when_ns;
        if (run->order.left)
            wait_until(run, wake_ns);
    }
    run->end_ns = clock_now_ns();
    run->client_cpu =
        (double)(clock_process_ran_ns() - cpu_ns) / (double)(run->end_ns - run->start_ns);
    progress_line_end(&line);
    if (!run->stopped)
        return;
    load_client_close(run->client);
    run->client = NULL;
    for (uint32_t i = 0; i < run->plan->request_count; i++)
        if (run->answers[i].sent_ns && !run->answers[i].end_ns)
            load_answer_fail(&run->answers[i], "interrupted", "the run was ended by a signal");
}
