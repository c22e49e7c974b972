#include "common/cli/views.h"

#include "common/base/json/json.h"
#include "common/cli/terminal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The top view. */
#define HEAD_LINES  7 /* with the last line, for workers without room */
#define BAR_COLUMNS 10
/* The trace view. */
#define MAX_TRACE_BYTES (1u << 20)
#define MAX_MS          1e15
#define MAX_SCORE       1e30 /* a number of a decision */
#define LEFT_OUT_MS     1e9  /* in a total by time: LEFT_OUT_US of the router's policy */
#define FIXED_COLUMNS   48   /* label, worker, two times and the edges */
#define NOTE_COLUMNS    11   /* fixed columns, behind the first time, that notes may use */

/* Writes a counter's growth a second between two looks. "-": not known (the counter began anew). */
static void describe_rate(const struct top_look *before, const struct top_look *now, int64_t was,
                          int64_t is, char *text, size_t size)
{
    if (!before || is < was || now->at_us <= before->at_us) {
        snprintf(text, size, "-");
        return;
    }
    double rate = (double)(is - was) * 1e6 / (double)(now->at_us - before->at_us);
    if (rate >= 99999.5)
        snprintf(text, size, "%.1fk", rate / 1000);
    else
        snprintf(text, size, "%.*f", rate < 100 ? 1 : 0, rate);
}

static void print_head(const struct top_look *before, const struct top_look *now, struct str *out)
{
    const struct cluster_status *status = &now->status;
    char model[128] = "", in[24], generated[24];
    describe_rate(before, now, before ? before->status.prompt_tokens : 0, status->prompt_tokens, in,
                  sizeof in);
    describe_rate(before, now, before ? before->status.tokens : 0, status->tokens, generated,
                  sizeof generated);
    if (status->model_count == 1)
        terminal_word(status->models[0].name, model, sizeof model);
    if (status->model_count > 1)
        str_addf(out, "models %zu", status->model_count);
    else
        str_addf(out, "model %.28s", *model ? model : "-");
    str_addf(out, "   workers %zu of %zu up   queue %" PRId64 "   running %" PRId64 "\n",
             cluster_status_up(status), status->count, status->queue, status->running);
    str_addf(out, "tokens/s   prompt %s   generated %s\n", in, generated);
}

static void add_figure(struct str *out, const char *name, const struct status_figure *figure)
{
    if (figure->count)
        str_addf(out, "  %s %.*f / %.*f", name, figure->p50_ms < 100 ? 1 : 0, figure->p50_ms,
                 figure->p99_ms < 100 ? 1 : 0, figure->p99_ms);
    else
        str_addf(out, "  %s - / -", name);
}

static void add_usage(struct str *out, const struct worker_status *worker, bool color)
{
    int64_t idle = worker->blocks_free + worker->blocks_cached;
    int64_t held = worker->blocks > idle ? worker->blocks - idle : 0;
    if (!worker->blocks) {
        str_addf(out, "%*s  -", BAR_COLUMNS + 2, "");
        return;
    }
    int64_t percent = held * 100 / worker->blocks;
    int filled = (int)((held * BAR_COLUMNS + worker->blocks - 1) / worker->blocks);
    if (color)
        str_addf(out, "\033[%sm", percent >= 90 ? "31" : percent >= 70 ? "33" : "32");
    for (int i = 0; i < BAR_COLUMNS; i++)
        str_add(out, i < filled ? "#" : ".");
    str_addf(out, "%s %3" PRId64 "%%", color ? "\033[0m" : "", percent);
}

static void print_worker(const struct top_look *before, const struct top_look *now,
                         const struct worker_status *worker, bool color, struct str *out)
{
    const struct worker_status *was = NULL; /* the same worker in the look before */
    for (size_t i = 0; before && !was && i < before->status.count; i++) {
        const struct worker_status *other = &before->status.workers[i];
        if (!strcmp(other->name, worker->name) && !strcmp(other->incarnation, worker->incarnation))
            was = other;
    }
    char name[64], state[16], lane[32], in[24], generated[24];
    terminal_word(worker->name, name, sizeof name);
    terminal_word(worker->state, state, sizeof state);
    terminal_word(*worker->lane ? worker->lane : "-", lane, sizeof lane);
    bool up = !strcmp(worker->state, "up");
    str_addf(out, "%-14.14s %-7.7s ", name, worker->role);
    str_addf(out, "%s%-8.8s%s ", color && !up ? "\033[31m" : "", state,
             color && !up ? "\033[0m" : "");
    if (!worker_status_known(worker)) {
        str_addf(out, "%5s %4s %*s\n", "-", "-", BAR_COLUMNS + 5, "-");
        return;
    }
    describe_rate(was ? before : NULL, now, was ? was->prompt_tokens : 0, worker->prompt_tokens, in,
                  sizeof in);
    describe_rate(was ? before : NULL, now, was ? was->tokens : 0, worker->tokens, generated,
                  sizeof generated);
    str_addf(out, "%5" PRId64 " %4" PRId64 " ", worker->queue, worker->running);
    add_usage(out, worker, color);
    str_addf(out, " %7.7s %7.7s %.5s\n", in, generated, lane);
}

/* Appends the line of one of several models, above its workers and in their columns. */
static void print_model(const struct top_look *before, const struct top_look *now, size_t index,
                        struct str *out)
{
    const struct model_status *model = &now->status.models[index];
    const struct model_status *was = before ? &before->status.models[index] : NULL;
    char name[128], in[24], generated[24];
    bool same = was && !strcmp(was->name, model->name);
    terminal_word(model->name, name, sizeof name);
    describe_rate(same ? before : NULL, now, same ? was->prompt_tokens : 0, model->prompt_tokens,
                  in, sizeof in);
    describe_rate(same ? before : NULL, now, same ? was->tokens : 0, model->tokens, generated,
                  sizeof generated);
    str_addf(out, "%-31.31s %5" PRId64 " %4" PRId64 " %*s %7.7s %7.7s\n", name, model->queue,
             model->running, BAR_COLUMNS + 5, "", in, generated);
}

/* Appends the workers of one model (NULL: all), until *shown is `room`. */
static void print_workers(const struct top_look *before, const struct top_look *now,
                          const char *model, size_t room, size_t *shown, bool color,
                          struct str *out)
{
    for (size_t i = 0; i < now->status.count && *shown < room; i++) {
        const struct worker_status *worker = &now->status.workers[i];
        if (model && strcmp(worker->model, model))
            continue;
        print_worker(before, now, worker, color, out);
        ++*shown;
    }
}

void top_view_print(const struct top_look *before, const struct top_look *now, unsigned lines,
                    bool color, struct str *out)
{
    const struct cluster_status *status = &now->status;
    size_t several = status->model_count > 1 ? status->model_count : 0, shown = 0;
    size_t taken = HEAD_LINES + several, room = !lines          ? SIZE_MAX
                                                : lines > taken ? lines - taken
                                                                : 1;
    print_head(before, now, out);
    str_addf(out, "last %" PRId64 " s   %" PRId64 " answers   (ms, p50 / p99)\n", status->window_s,
             status->e2e.count);
    add_figure(out, "TTFT", &status->ttft);
    add_figure(out, "TPOT", &status->tpot);
    add_figure(out, "queue", &status->queue_time);
    add_figure(out, "total", &status->e2e);
    str_add(out, "\n\n");
    str_addf(out, "%s%-14s %-7s %-8s %5s %4s %-15s %7s %7s %s%s\n", color ? "\033[1m" : "",
             "WORKER", "ROLE", "STATE", "QUEUE", "RUN", "KV BLOCKS HELD", "IN/S", "OUT/S", "LANE",
             color ? "\033[0m" : "");
    for (size_t i = 0; i < several; i++) {
        print_model(before, now, i, out);
        print_workers(before, now, status->models[i].name, room, &shown, color, out);
    }
    if (!several)
        print_workers(before, now, NULL, room, &shown, color, out);
    if (shown < status->count)
        str_addf(out, "and %zu more\n", status->count - shown);
}

/* --- a trace: reading --- */

static enum status read_text(const struct json_value *object, const char *key, char *target,
                             size_t size, struct error *err)
{
    const char *text;
    if (!json_find(object, key))
        return STATUS_OK;
    TRY(json_get_string(object, key, &text, NULL, err));
    terminal_word(text, target, size);
    return STATUS_OK;
}

/* Reads a time; -1: it is missing. */
static enum status read_ms(const struct json_value *object, const char *key, double *ms,
                           struct error *err)
{
    *ms = -1;
    return json_find(object, key) ? json_get_double(object, key, 0, MAX_MS, ms, err) : STATUS_OK;
}

static enum status read_count(const struct json_value *object, const char *key, int64_t *count,
                              struct error *err)
{
    *count = 0;
    return json_find(object, key) ? json_get_i64(object, key, 0, INT64_MAX, count, err) : STATUS_OK;
}

/* Adds a line and returns it. NULL: its begin or end is not known, or there is no room. */
static struct trace_bar *add_bar(struct trace_view *view, const char *label, const char *worker,
                                 double begin_ms, double end_ms)
{
    if (begin_ms < 0 || end_ms < 0 || view->bar_count == TRACE_VIEW_MAX_BARS)
        return NULL;
    struct trace_bar *bar = &view->bars[view->bar_count++];
    *bar =
        (struct trace_bar){.begin_ms = begin_ms, .end_ms = fmax(begin_ms, end_ms), .fill = *label};
    str_copy(bar->label, sizeof bar->label, label);
    str_copy(bar->worker, sizeof bar->worker, worker);
    return bar;
}

static enum status read_chunks(struct trace_view *view, const struct json_value *prefill,
                               double begin_ms, struct error *err)
{
    const struct json_value *ends = json_find(prefill, "chunk_end_ms");
    int64_t chunks;
    TRY(read_count(prefill, "chunks", &chunks, err));
    size_t kept = json_count(ends);
    for (size_t i = 0; i < kept && kept > 1; i++) {
        double end_ms;
        char label[24];
        TRY(json_as_double(json_at(ends, i), 0, MAX_MS, &end_ms, err));
        snprintf(label, sizeof label, "  chunk %" PRId64, i + 1 == kept ? chunks : (int64_t)i + 1);
        struct trace_bar *bar = add_bar(view, label, "", begin_ms, end_ms);
        if (bar)
            bar->fill = 'p';
        begin_ms = end_ms;
    }
    return STATUS_OK;
}

/* `until_ms`: the time of its first token, of the end, or now. */
static enum status read_prefill(struct trace_view *view, const struct json_value *attempt,
                                double until_ms, struct error *err)
{
    const struct json_value *prefill = json_find(attempt, "prefill");
    char worker[64] = "";
    double sent_ms, begin_ms, end_ms;
    int64_t cached;
    TRY(read_text(prefill, "worker", worker, sizeof worker, err));
    TRY(read_ms(prefill, "sent_ms", &sent_ms, err));
    TRY(read_ms(prefill, "begin_ms", &begin_ms, err));
    TRY(read_ms(prefill, "end_ms", &end_ms, err));
    TRY(read_count(prefill, "cached_tokens", &cached, err));
    if (begin_ms < 0) { /* the worker reported nothing: the router's view */
        add_bar(view, "prefill", worker, sent_ms, until_ms);
        return STATUS_OK;
    }
    add_bar(view, "wait for KV", worker, sent_ms, begin_ms);
    struct trace_bar *bar = add_bar(view, "prefill", worker, begin_ms, end_ms);
    if (bar && cached)
        snprintf(bar->note, sizeof bar->note, "%" PRId64 " tokens cached", cached);
    return read_chunks(view, prefill, begin_ms, err);
}

static enum status read_handoff(struct trace_view *view, const struct json_value *attempt,
                                const char *worker, struct error *err)
{
    const struct json_value *handoff = json_find(attempt, "handoff");
    double sent_ms, begin_ms, end_ms;
    int64_t bytes, early;
    char lane[24] = "";
    TRY(read_ms(handoff, "sent_ms", &sent_ms, err));
    TRY(read_ms(handoff, "begin_ms", &begin_ms, err));
    TRY(read_ms(handoff, "end_ms", &end_ms, err));
    TRY(read_count(handoff, "bytes", &bytes, err));
    TRY(read_count(handoff, "bytes_before_complete", &early, err));
    TRY(read_text(handoff, "lane", lane, sizeof lane, err));
    struct trace_bar *bar =
        add_bar(view, "handoff", worker, begin_ms < 0 ? sent_ms : begin_ms, end_ms);
    if (bar)
        snprintf(bar->note, sizeof bar->note, "%.1f KiB over %s, %.0f%% during prefill",
                 (double)bytes / 1024, *lane ? lane : "-",
                 bytes ? 100 * (double)early / (double)bytes : 0);
    return STATUS_OK;
}

static enum status read_attempt(struct trace_view *view, const struct json_value *attempt,
                                double last_ms, struct error *err)
{
    char prefill[64] = "", decode[64] = "", why[48] = "";
    double placed_ms, first_ms, decode_ms, ended_ms;
    int64_t number;
    TRY(read_text(attempt, "prefill_worker", prefill, sizeof prefill, err));
    TRY(read_text(attempt, "decode_worker", decode, sizeof decode, err));
    TRY(read_text(attempt, "why", why, sizeof why, err));
    TRY(read_ms(attempt, "placed_ms", &placed_ms, err));
    TRY(read_ms(attempt, "first_token_ms", &first_ms, err));
    TRY(read_ms(attempt, "first_decode_token_ms", &decode_ms, err));
    TRY(read_ms(attempt, "ended_ms", &ended_ms, err));
    TRY(read_count(attempt, "number", &number, err));
    if (view->attempts > 1) {
        char label[24];
        snprintf(label, sizeof label, "attempt %" PRId64, number);
        struct trace_bar *bar = add_bar(view, label, "", placed_ms, placed_ms);
        if (bar) {
            bar->end_ms = -1;
            snprintf(bar->note, sizeof bar->note, "%s -> %s, ended: %s", *prefill ? prefill : "-",
                     *decode ? decode : "-", *why ? why : "not yet");
        }
    }
    if (json_find(attempt, "prefill"))
        TRY(read_prefill(view, attempt,
                         first_ms < 0 ? fmin(last_ms, ended_ms < 0 ? last_ms : ended_ms) : first_ms,
                         err));
    if (json_find(attempt, "handoff"))
        TRY(read_handoff(view, attempt, decode, err));
    double end_ms = ended_ms < 0 || ended_ms > last_ms ? last_ms : ended_ms;
    add_bar(view, "decode", decode, decode_ms < 0 ? -1 : fmin(first_ms, decode_ms), end_ms);
    return STATUS_OK;
}

static enum status read_times(struct trace_view *view, const struct json_value *root,
                              struct error *err)
{
    double dispatched_ms, last_ms;
    TRY(read_ms(root, "dispatched_ms", &dispatched_ms, err));
    TRY(read_ms(root, "first_token_ms", &view->ttft_ms, err));
    TRY(read_ms(root, "second_token_ms", &view->second_ms, err));
    TRY(read_ms(root, "last_token_ms", &last_ms, err));
    TRY(read_ms(root, "tpot_ms", &view->tpot_ms, err));
    TRY(read_ms(root, "longest_gap_ms", &view->longest_gap_ms, err));
    TRY(read_count(root, "longest_gap_token", &view->longest_gap_token, err));
    TRY(read_ms(root, "ended_ms", &view->total_ms, err));
    double age_ms, end_ms = view->total_ms;
    TRY(read_ms(root, "age_ms", &age_ms, err));
    if (end_ms < 0)
        end_ms = age_ms;
    add_bar(view, "queue", "router", 0, dispatched_ms < 0 ? end_ms : dispatched_ms);
    const struct json_value *attempts;
    TRY(json_get_array(root, "attempts", &attempts, err));
    for (size_t i = 0; i < json_count(attempts); i++)
        TRY(read_attempt(view, json_at(attempts, i),
                         last_ms < 0 || view->total_ms < 0 ? end_ms : last_ms, err));
    return STATUS_OK;
}

static enum status read_root(struct trace_view *view, const struct json_value *root,
                             struct error *err)
{
    double arrived_ms;
    TRY(read_text(root, "id", view->id, sizeof view->id, err));
    TRY(read_text(root, "model", view->model, sizeof view->model, err));
    TRY(read_text(root, "tenant", view->tenant, sizeof view->tenant, err));
    TRY(read_text(root, "key", view->key, sizeof view->key, err));
    TRY(read_text(root, "peer", view->peer, sizeof view->peer, err));
    TRY(read_text(root, "status", view->status, sizeof view->status, err));
    TRY(read_text(root, "finish", view->finish, sizeof view->finish, err));
    TRY(json_get_double(root, "arrived_unix_ms", 0, MAX_MS, &arrived_ms, err));
    view->arrived_unix_ms = (int64_t)arrived_ms;
    TRY(read_count(root, "prompt_tokens", &view->prompt_tokens, err));
    TRY(read_count(root, "tokens", &view->tokens, err));
    TRY(read_count(root, "attempt_count", &view->attempts, err));
    TRY(read_count(root, "prefills", &view->prefills, err));
    TRY(read_count(root, "choice", &view->choice, err));
    return read_times(view, root, err);
}

enum status trace_view_parse(const char *text, size_t length, struct trace_view *view,
                             struct error *err)
{
    struct json *json;
    const struct json_limits limits = {.max_bytes = MAX_TRACE_BYTES, .max_depth = 8};
    TRY(json_parse(text, length, limits, &json, err));
    *view = (struct trace_view){0};
    enum status status = read_root(view, json_root(json), err);
    json_destroy(json);
    return status;
}

/* --- a trace: its timeline --- */

static void print_request(const struct trace_view *view, struct str *out)
{
    char stamp[32];
    time_t seconds = (time_t)(view->arrived_unix_ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &utc);
    str_addf(out, "request %s", view->id);
    if (view->choice)
        str_addf(out, ", choice %" PRId64, view->choice);
    str_add(out, "\n");
    str_addf(out, "  %s%s%s   %" PRId64 " + %" PRId64 " tokens", view->status,
             *view->finish ? ", " : "", view->finish, view->prompt_tokens, view->tokens);
    str_addf(out, "   model %s\n  arrived %s.%03" PRId64 " UTC", *view->model ? view->model : "-",
             stamp, view->arrived_unix_ms % 1000);
    if (*view->peer)
        str_addf(out, "   from %s", view->peer);
    if (*view->key)
        str_addf(out, "\n  key %s of tenant %s", view->key, view->tenant);
    str_add(out, "\n\n");
}

static const char *color_of(char fill)
{
    switch (fill) {
    case 'q': return "33";
    case 'w': return "33";
    case 'p': return "34";
    case 'h': return "35";
    case 'd': return "32";
    default: return "0";
    }
}

static void print_bar(const struct trace_bar *bar, double scale_ms, unsigned width, bool color,
                      struct str *out)
{
    str_addf(out, "%-12.12s %-12.12s ", bar->label, bar->worker);
    if (bar->end_ms < bar->begin_ms) {
        str_addf(out, "%9.2f  %.*s\n", bar->begin_ms, (int)width + NOTE_COLUMNS, bar->note);
        return;
    }
    unsigned begin = (unsigned)(bar->begin_ms / scale_ms * width),
             end = (unsigned)ceil(bar->end_ms / scale_ms * width);
    begin = begin < width ? begin : width - 1;
    end = end <= begin ? begin + 1 : end > width ? width : end;
    str_addf(out, "%9.2f %9.2f |%*s", bar->begin_ms, bar->end_ms - bar->begin_ms, (int)begin, "");
    if (color)
        str_addf(out, "\033[%sm", color_of(bar->fill));
    for (unsigned i = begin; i < end; i++)
        str_add(out, bar->fill == 'q' || bar->fill == 'w' ? "." : "#");
    str_addf(out, "%s%*s|\n", color ? "\033[0m" : "", (int)(width - end), "");
    if (*bar->note)
        str_addf(out, "%37s%.*s\n", "", (int)width + NOTE_COLUMNS, bar->note);
}

static void print_figures(const struct trace_view *view, struct str *out)
{
    if (view->ttft_ms >= 0)
        str_addf(out, "\nTTFT %.2f ms", view->ttft_ms);
    if (view->second_ms >= 0)
        str_addf(out, "   token 1 to 2 %.2f ms", view->second_ms - view->ttft_ms);
    if (view->tpot_ms >= 0)
        str_addf(out, "   TPOT %.2f ms", view->tpot_ms);
    if (view->longest_gap_ms >= 0)
        str_addf(out, "\nlongest gap %.2f ms, before token %" PRId64, view->longest_gap_ms,
                 view->longest_gap_token);
    if (view->total_ms >= 0)
        str_addf(out, "%stotal %.2f ms", view->longest_gap_ms >= 0 ? "   " : "\n", view->total_ms);
    str_add(out, "\n");
}

void trace_view_print(const struct trace_view *view, unsigned columns, bool color, struct str *out)
{
    columns = columns < TRACE_VIEW_MIN_COLUMNS   ? TRACE_VIEW_MIN_COLUMNS
              : columns > TRACE_VIEW_MAX_COLUMNS ? TRACE_VIEW_MAX_COLUMNS
                                                 : columns;
    double scale_ms = view->total_ms;
    for (size_t i = 0; i < view->bar_count; i++)
        scale_ms = fmax(scale_ms, view->bars[i].end_ms);
    scale_ms = fmax(scale_ms, 0.001);
    print_request(view, out);
    unsigned width = columns - FIXED_COLUMNS;
    str_addf(out, "%-12s %-12s %9s %9s  0%*.0f ms\n", "", "", "BEGIN MS", "TOOK MS", (int)width - 4,
             scale_ms);
    for (size_t i = 0; i < view->bar_count; i++)
        print_bar(&view->bars[i], scale_ms, width, color, out);
    print_figures(view, out);
}

/* --- decisions --- */

struct explained {
    char prefill[64], decode[64];
    double ttft_ms, tpot_ms, p_miss, others, price, total;
    bool chosen, left_out; /* left_out: its total is a TTFT, and more */
};

static enum status read_choice(const struct json_value *object, struct explained *is,
                               struct error *err)
{
    TRY(read_text(object, "prefill", is->prefill, sizeof is->prefill, err));
    TRY(read_text(object, "decode", is->decode, sizeof is->decode, err));
    TRY(json_get_bool(object, "chosen", &is->chosen, err));
    TRY(json_get_double(object, "ttft_ms", -MAX_SCORE, MAX_SCORE, &is->ttft_ms, err));
    TRY(json_get_double(object, "tpot_ms", -MAX_SCORE, MAX_SCORE, &is->tpot_ms, err));
    TRY(json_get_double(object, "p_miss", -MAX_SCORE, MAX_SCORE, &is->p_miss, err));
    TRY(json_get_double(object, "others", -MAX_SCORE, MAX_SCORE, &is->others, err));
    TRY(json_get_double(object, "price", -MAX_SCORE, MAX_SCORE, &is->price, err));
    return json_get_double(object, "total", -MAX_SCORE, MAX_SCORE, &is->total, err);
}

/* Appends a cell of 9 columns. "-": not predicted. */
static void add_cell(struct str *out, bool known, const char *format, double value)
{
    char text[32] = "-";
    if (known)
        snprintf(text, sizeof text, format, value);
    str_addf(out, " %8.8s", text);
}

static void print_choice(const struct explained *is, bool color, struct str *out)
{
    str_addf(out, "%s%c %-13.13s %-13.13s", is->chosen && color ? "\033[1m" : "",
             is->chosen ? '>' : ' ', *is->prefill ? is->prefill : "-",
             *is->decode ? is->decode : "-");
    add_cell(out, is->ttft_ms > 0, "%.1f", is->ttft_ms);
    add_cell(out, is->tpot_ms > 0, "%.1f", is->tpot_ms);
    add_cell(out, is->p_miss >= 0, "%.1f%%", is->p_miss * 100);
    if (is->p_miss >= 0)
        str_addf(out, " %6.3f %6.3f", is->others, is->price);
    else
        str_addf(out, " %6s %6s", "-", "-");
    if (is->left_out)
        str_add(out, " left out");
    else
        str_addf(out, " %8.4g", is->total);
    str_addf(out, "%s\n", is->chosen && color ? "\033[0m" : "");
}

/* The words about a policy's choice (policy.h). `total`: its meaning, in front of "is the least";
 * `unit` behind the difference. `tie`: the next rules among equal totals. */
struct rule {
    const char *policy, *total, *unit, *tie, *more;
};

/* The last one is for the policies of a newer router. Without SLO classes goodput has the first. */
static const struct rule rules[] = {
    {"", "Its TTFT", " ms", "The least TPOT wins, then the least queued work", NULL},
    {"goodput", "Its total", "", "The least device time wins, then the least TTFT", NULL},
    {"least-tokens", "Its queued work", " tokens", "The worker that was unused for longest wins",
     NULL},
    {"random", "The number that was drawn for it", "", "The least queued work wins", NULL},
    {"round-robin", "The age of its workers' newest request", "", "The least queued work wins",
     NULL},
    {"prefix", "Its total", "", "The fewest requests win, then the least queued work",
     "The total is less for more cached tokens. It is the number of requests\n"
     "  where these are far apart"},
    {"kv-cost", "Its total", " tokens", "The least queued work wins",
     "The total is the tokens to compute and the tokens that are held"},
    {"predicted-latency", "Its total", "", "The least queued work wins",
     "Holders of the prompt's beginning come first, then workers that attain.\n"
     "  Among these 0 is the best TTFT and TPOT; 10 or more is left out"},
    {NULL, "Its total", "", "Further rules of the policy decide", NULL},
};

static void print_why(const struct explained *won, const struct explained *next, const char *why,
                      const char *policy, struct str *out)
{
    char name[64];
    const struct rule *rule = rules;
    double apart = next->total - won->total;
    snprintf(name, sizeof name, "%.18s%s%.18s", next->prefill,
             *next->prefill && *next->decode ? ", " : "", next->decode);
    if (won->p_miss < 0 && !strcmp(policy, "goodput"))
        policy = "";
    while (rule->policy && strcmp(rule->policy, policy) != 0)
        rule++;
    if (!strcmp(why, "only")) {
        str_add(out, "  It was the only choice.\n");
        return;
    }
    if (!strcmp(why, "explored")) {
        str_add(out, "  It went to the longest unused workers, as one of a hundred does: a worker "
                     "that\n  looks slow must be looked at again.\n");
        return;
    }
    /* Totals have six digits. */
    bool as_shown = rule != rules ||
                    fabs(apart - (next->ttft_ms - won->ttft_ms)) <= 0.01 + 1e-5 * fabs(next->total);
    const char *compared = as_shown ? "" : ", as it is compared,";
    if (won->total < next->total && !next->left_out)
        str_addf(out, "  %s%s is the least: %.4g%s below %s.\n", rule->total, compared, apart,
                 rule->unit, name);
    else if (won->total > next->total)
        str_addf(out,
                 "  The total of %s is less, but such choices come last:\n"
                 "  with a worker that has just failed the request or just joined, or with one\n"
                 "  alone where there are pairs.\n",
                 name);
    else if (!next->left_out)
        str_addf(out, "  %s%s is as good as that of %s.\n  %s.\n", rule->total, compared, name,
                 rule->tie);
    if (rule->more)
        str_addf(out, "  %s.\n", rule->more);
}

/* `considered`: more than are in the list, if it doesn't hold all. */
static enum status print_choices(const struct json_value *decision, const struct json_value *list,
                                 const char *policy, int64_t considered, bool color,
                                 struct str *out, struct error *err)
{
    int64_t count = (int64_t)json_count(list);
    struct explained won = {.total = 0}, next = {.total = MAX_SCORE}, left = won;
    size_t left_count = 0;
    char why[16] = "";
    TRY(read_text(decision, "why", why, sizeof why, err));
    str_addf(out, "  %-13s %-13s %8s %8s %8s %6s %6s %8s\n", "PREFILL", "DECODE", "TTFT MS",
             "TPOT MS", "P(MISS)", "OTHERS", "PRICE", "TOTAL");
    for (size_t i = 0; i < (size_t)count; i++) {
        struct explained is = {.total = 0};
        TRY(read_choice(json_at(list, i), &is, err));
        is.left_out = !strcmp(policy, "goodput") && is.p_miss < 0 && is.total >= LEFT_OUT_MS &&
                      is.ttft_ms < LEFT_OUT_MS;
        if (is.left_out && !is.chosen && !left_count++)
            left = is;
        print_choice(&is, color, out);
        if (is.chosen)
            won = is;
        else if (is.total < next.total)
            next = is;
    }
    if (considered > count)
        str_addf(out, "  and %" PRId64 " more choice%s, with no lower totals\n", considered - count,
                 considered - count == 1 ? "" : "s");
    print_why(&won, &next, count > 1 ? why : "only", policy, out);
    if (left_count == 1)
        str_addf(out, "  %.18s was left out: prompts took much of its answers' time lately.\n",
                 left.decode);
    else if (left_count)
        str_addf(out,
                 "  %zu choices were left out: prompts took much of their answers' time lately.\n",
                 left_count);
    return STATUS_OK;
}

static enum status print_verdict(const struct json_value *decision, struct str *out,
                                 struct error *err)
{
    char verdict[16] = "";
    double used;
    bool calibrated;
    int64_t retry_s;
    TRY(read_text(decision, "verdict", verdict, sizeof verdict, err));
    TRY(json_get_double(decision, "p_miss_used", -MAX_SCORE, MAX_SCORE, &used, err));
    TRY(json_get_bool(decision, "calibrated", &calibrated, err));
    TRY(read_count(decision, "retry_after_s", &retry_s, err));
    if (used >= 0)
        str_addf(
            out, "  P(miss) %.1f%% by what became of such predictions%s.\n", used * 100,
            calibrated
                ? ""
                : ".\n  The class isn't calibrated: fewer than 200 such outcomes, or they differ");
    if (!strcmp(verdict, "rejected"))
        str_addf(out, "  It was rejected (slo_unattainable%s): try again after %" PRId64 " s.\n",
                 calibrated ? "" : ", by the bound of held requests or its length's share",
                 retry_s);
    else if (!strcmp(verdict, "held"))
        str_add(out, "  It was held: it waits behind all requests that can attain.\n");
    else if (!strcmp(verdict, "let_through"))
        str_add(out, "  It was let through, to learn whether a rejection would have been right.\n");
    return STATUS_OK;
}

static enum status print_outcome(const struct json_value *decision, bool has_objective,
                                 struct str *out, struct error *err)
{
    const struct json_value *outcome;
    char status[40] = "";
    double ttft_ms, tpot_ms, e2e_ms;
    bool known, attained;
    TRY(json_get_object(decision, "outcome", &outcome, err));
    TRY(read_text(outcome, "status", status, sizeof status, err));
    TRY(json_get_bool(outcome, "known", &known, err));
    TRY(json_get_bool(outcome, "attained", &attained, err));
    TRY(read_ms(outcome, "ttft_ms", &ttft_ms, err));
    TRY(read_ms(outcome, "tpot_ms", &tpot_ms, err));
    TRY(read_ms(outcome, "e2e_ms", &e2e_ms, err));
    str_addf(out, "  %s", *status ? status : "not over yet");
    if (known && has_objective)
        str_add(out, attained ? ", attained" : ", missed");
    if (ttft_ms > 0)
        str_addf(out, ": TTFT %.1f ms", ttft_ms);
    if (tpot_ms > 0)
        str_addf(out, ", TPOT %.1f ms", tpot_ms);
    if (e2e_ms > 0)
        str_addf(out, ", total %.1f ms", e2e_ms);
    str_add(out, "\n");
    return STATUS_OK;
}

static enum status print_decision(const struct json_value *decision, bool color, struct str *out,
                                  struct error *err)
{
    static const char *const kinds[][2] = {
        {"ttft_ms", "TTFT"}, {"tpot_ms", "TPOT"}, {"itl_ms", "ITL"}, {"e2e_ms", "E2E"}};
    char model[128] = "", class[40] = "", policy[32] = "";
    const struct json_value *objective, *list;
    int64_t attempt, considered, prompt_tokens;
    double waited_ms;
    bool reader_only, has_objective = false;
    TRY(read_text(decision, "model", model, sizeof model, err));
    TRY(read_text(decision, "slo_class", class, sizeof class, err));
    TRY(read_text(decision, "policy", policy, sizeof policy, err));
    TRY(read_count(decision, "attempt", &attempt, err));
    TRY(read_count(decision, "considered", &considered, err));
    TRY(read_count(decision, "prompt_tokens", &prompt_tokens, err));
    TRY(read_ms(decision, "waited_ms", &waited_ms, err));
    TRY(json_get_bool(decision, "reader_only", &reader_only, err));
    TRY(json_get_object(decision, "objective", &objective, err));
    TRY(json_get_array(decision, "alternatives", &list, err));
    str_addf(out, "\nattempt %" PRId64 ", %.1f ms after its arrival: ", attempt, waited_ms);
    if (json_count(list))
        str_addf(out, "%s by %s", reader_only ? "its decode worker" : "its workers", policy);
    else
        str_add(out, "judged by the requests that wait before it");
    str_addf(out, "\n  model %.50s, %" PRId64 " prompt tokens", model, prompt_tokens);
    if (considered)
        str_addf(out, ", %" PRId64 " choice%s", considered, considered == 1 ? "" : "s");
    if (*class)
        str_addf(out, "\n  class %s", class);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        double ms;
        TRY(read_ms(objective, kinds[i][0], &ms, err));
        if (ms > 0) {
            str_addf(out, "%s%s ", has_objective ? ", " : ": ", kinds[i][1]);
            slo_add_time((uint64_t)llround(ms * 1e3), out);
        }
        has_objective |= ms > 0;
    }
    str_add(out, "\n");
    if (json_count(list))
        TRY(print_choices(decision, list, policy, considered, color, out, err));
    TRY(print_verdict(decision, out, err));
    return print_outcome(decision, has_objective, out, err);
}

static enum status print_decisions(const struct json_value *root, bool color, struct str *out,
                                   struct error *err)
{
    const struct json_value *list;
    char id[160] = "";
    int64_t percent, kept, choice;
    TRY(read_text(root, "request", id, sizeof id, err));
    TRY(read_count(root, "sample_percent", &percent, err));
    TRY(read_count(root, "kept", &kept, err));
    TRY(read_count(root, "choice", &choice, err));
    TRY(json_get_array(root, "decisions", &list, err));
    if (!json_count(list) && percent >= 100)
        return error_set(err, STATUS_NOT_FOUND,
                         "the router has no decision%s%.140s: it keeps the newest %" PRId64
                         ", since it started. --decisions, of the router and of baton up, keeps "
                         "more",
                         *id ? " about " : " yet", id, kept);
    if (!json_count(list))
        return error_set(err, STATUS_NOT_FOUND,
                         "the router has no decision%s%.140s: it samples %" PRId64
                         "%% of the requests and keeps the newest %" PRId64
                         " decisions. Start it, or baton up, with --decision-sample 100 to keep "
                         "all, and with more --decisions to keep them for longer",
                         *id ? " about " : " yet", id, percent, kept);
    str_addf(out, "request %s", id);
    if (choice)
        str_addf(out, ", choice %" PRId64, choice);
    str_add(out, "\n");
    for (size_t i = 0; i < json_count(list); i++)
        TRY(print_decision(json_at(list, i), color, out, err));
    return STATUS_OK;
}

enum status explain_view_print(const char *text, size_t length, bool color, struct str *out,
                               struct error *err)
{
    struct json *json;
    const struct json_limits limits = {.max_bytes = MAX_TRACE_BYTES, .max_depth = 8};
    TRY(json_parse(text, length, limits, &json, err));
    enum status status = print_decisions(json_root(json), color, out, err);
    json_destroy(json);
    return status;
}
