#include "common/cli/top_view.h"

#include "common/cli/terminal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HEAD_LINES  7 /* and the last one, of those that have no room */
#define BAR_COLUMNS 10

/* A second of what was counted between two looks; "-": not known (the counter began anew). */
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

static const struct worker_status *same_worker(const struct top_look *before,
                                               const struct worker_status *worker)
{
    for (size_t i = 0; before && i < before->status.count; i++) {
        const struct worker_status *other = &before->status.workers[i];
        if (!strcmp(other->name, worker->name) && !strcmp(other->incarnation, worker->incarnation))
            return other;
    }
    return NULL;
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

static void print_window(const struct cluster_status *status, struct str *out)
{
    str_addf(out, "last %" PRId64 " s   %" PRId64 " answers   (ms, p50 / p99)\n", status->window_s,
             status->e2e.count);
    add_figure(out, "TTFT", &status->ttft);
    add_figure(out, "TPOT", &status->tpot);
    add_figure(out, "queue", &status->queue_time);
    add_figure(out, "total", &status->e2e);
    str_add(out, "\n\n");
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
    const struct worker_status *was = same_worker(before, worker);
    char name[64], state[16], lane[32], in[24], generated[24];
    terminal_word(worker->name, name, sizeof name);
    terminal_word(worker->state, state, sizeof state);
    terminal_word(*worker->lane ? worker->lane : "-", lane, sizeof lane);
    bool up = !strcmp(worker->state, "up");
    str_addf(out, "%-14.14s %-7.7s ", name, worker->role);
    str_addf(out, "%s%-8.8s%s ", color && !up ? "\033[31m" : "", state,
             color && !up ? "\033[0m" : "");
    if (!strcmp(worker->state, "down")) { /* then it says nothing of itself */
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

/* A line for each of several, above its workers and in their columns. */
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

/* The workers of one model, or all. Shown ones are counted, to `room` at most. */
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
    print_window(status, out);
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
