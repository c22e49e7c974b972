/* Makes the plan of a failing life smaller: leaves out faults, requests, workers, and has each
 * thing take the least time it can, as long as the same invariant breaks. Greedy, in the order in
 * which a reader profits, until nothing more can go. */
#include "tests/sim/sim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LUCK 40 /* draws that are tried for a smaller plan */

struct shrink {
    struct sim_plan *best, *trial;
    struct sim_result result; /* result of the best plan */
    uint32_t runs_left;
    bool progress;
};

/* Whether the trial still fails in the same way: it is the best one then. */
static bool holds(struct shrink *shrink)
{
    if (!shrink->runs_left)
        return false;
    shrink->runs_left--;
    struct sim_totals totals = {0};
    struct sim_result result;
    sim_run(shrink->trial, false, &totals, &result);
    if (result.broken != shrink->result.broken)
        return false;
    *shrink->best = *shrink->trial;
    shrink->result = result;
    shrink->progress = true;
    return true;
}

/* A left-out fault, request or worker takes its draws with it, and the rest may need a little luck
 * to meet in the same way again. */
static bool holds_with_luck(struct shrink *shrink)
{
    for (uint32_t i = 0; i < LUCK; i++) {
        if (holds(shrink))
            return true;
        shrink->trial->draws = rng_at(shrink->best->draws, i, shrink->runs_left);
    }
    return false;
}

static struct sim_plan *begin(struct shrink *shrink)
{
    *shrink->trial = *shrink->best;
    return shrink->trial;
}

/* Fixes each fault's time and victim as they were; faults without a victim are removed. */
static void fix_faults(struct shrink *shrink)
{
    struct sim_plan *plan = begin(shrink);
    plan->fault_count = 0;
    for (uint32_t i = 0; i < shrink->best->fault_count; i++) {
        struct sim_fault fault = shrink->result.faults[i];
        if (!fault.happened)
            continue;
        fault.fixed = true;
        plan->faults[plan->fault_count++] = fault;
    }
    holds(shrink);
}

static void leave_out_faults(struct shrink *shrink)
{
    for (uint32_t i = shrink->best->fault_count; i-- > 0;) {
        struct sim_plan *plan = begin(shrink);
        memmove(&plan->faults[i], &plan->faults[i + 1],
                (plan->fault_count - i - 1) * sizeof *plan->faults);
        plan->fault_count--;
        holds_with_luck(shrink);
    }
    for (uint32_t i = 0; i < shrink->best->fault_count; i++)
        for (;;) {
            struct sim_plan *plan = begin(shrink);
            if (plan->faults[i].length_us < 1000)
                break;
            plan->faults[i].length_us /= 2;
            if (!holds(shrink))
                break;
        }
}

static void leave_out_requests(struct shrink *shrink)
{
    for (uint32_t i = 0; i < shrink->best->request_count; i++) {
        if (shrink->best->requests[i].left_out)
            continue;
        begin(shrink)->requests[i].left_out = true;
        if (holds_with_luck(shrink))
            continue;
        if (shrink->best->requests[i].cancel_us || shrink->best->requests[i].deadline_us) {
            begin(shrink)->requests[i].cancel_us = shrink->trial->requests[i].deadline_us = 0;
            holds(shrink);
        }
    }
}

static void leave_out_rest(struct shrink *shrink)
{
    if (shrink->best->decodes > 1) {
        begin(shrink)->decodes--;
        holds_with_luck(shrink);
    }
    if (shrink->best->slow) {
        begin(shrink)->slow = false;
        holds(shrink);
    }
    if (shrink->best->tiny) {
        begin(shrink)->tiny = false;
        holds(shrink);
    }
}

/* The smallest of a few smaller values that still does it. */
static void lessen(struct shrink *shrink, uint32_t request,
                   uint32_t *(*part)(struct sim_plan *, uint32_t))
{
    uint32_t now = *part(shrink->best, request);
    const uint32_t less[] = {1, SIM_BLOCK_TOKENS, now / 2, now - 1};
    for (uint32_t i = 0; i < 4; i++) {
        if (less[i] == 0 || less[i] >= now)
            continue;
        *part(begin(shrink), request) = less[i];
        if (holds(shrink))
            return;
    }
}

static uint32_t *prompt_of(struct sim_plan *plan, uint32_t request)
{
    return &plan->requests[request].prompt_count;
}

static uint32_t *length_of(struct sim_plan *plan, uint32_t request)
{
    return &plan->requests[request].length;
}

static void shorten_requests(struct shrink *shrink)
{
    for (uint32_t i = 0; i < shrink->best->request_count; i++) {
        if (shrink->best->requests[i].left_out)
            continue;
        lessen(shrink, i, prompt_of);
        lessen(shrink, i, length_of);
        for (uint64_t less = 0; shrink->best->requests[i].arrival_us > less; less += 1000) {
            begin(shrink)->requests[i].arrival_us = less;
            if (less > 2000 || holds(shrink))
                break;
        }
    }
}

static void make_plain(struct shrink *shrink, uint32_t draw, uint32_t process, uint32_t from,
                       uint32_t to)
{
    const uint8_t *plain = shrink->best->plain[draw][process];
    while (from < to && plain[from])
        from++;
    while (from < to && plain[to - 1])
        to--;
    if (from >= to || !shrink->runs_left)
        return;
    memset(begin(shrink)->plain[draw][process] + from, 1, to - from);
    if (holds(shrink) || to - from == 1)
        return;
    uint32_t middle = from + (to - from) / 2;
    make_plain(shrink, draw, process, from, middle);
    make_plain(shrink, draw, process, middle, to);
}

static void make_all_plain(struct shrink *shrink)
{
    for (uint32_t draw = 0; draw < DRAW_COUNT; draw++) {
        for (uint32_t i = 0; i <= SIM_MAX_WORKERS; i++)
            memset(begin(shrink)->plain[draw][i], 1, SIM_MAX_DRAWS);
        if (holds(shrink))
            continue;
        for (uint32_t i = 0; i <= SIM_MAX_WORKERS; i++) {
            uint32_t drawn = shrink->result.drawn[draw][i];
            make_plain(shrink, draw, i, 0, drawn < SIM_MAX_DRAWS ? drawn : SIM_MAX_DRAWS);
        }
    }
}

/* Hides the assertion messages of the code under test, which would come at every try. */
static int hush(void)
{
    int kept = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY);
    if (nowhere >= 0) {
        dup2(nowhere, STDERR_FILENO);
        close(nowhere);
    }
    return kept;
}

void sim_shrink(struct sim_plan *plan, const struct sim_result *failed, uint32_t runs)
{
    struct sim_plan *trial = malloc(sizeof *trial);
    if (!trial)
        return;
    struct shrink shrink = {.best = plan, .trial = trial, .result = *failed, .runs_left = runs};
    int kept = hush();
    fix_faults(&shrink);
    do {
        shrink.progress = false;
        leave_out_faults(&shrink);
        leave_out_requests(&shrink);
        leave_out_rest(&shrink);
        shorten_requests(&shrink);
        make_all_plain(&shrink);
    } while (shrink.progress && shrink.runs_left);
    if (kept >= 0) {
        dup2(kept, STDERR_FILENO);
        close(kept);
    }
    free(trial);
}
