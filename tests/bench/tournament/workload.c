#include "tests/bench/tournament/workload.h"

#include "common/base/assert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SEGMENTS 512
#define PREFIXES      60
#define DOCUMENTS     (1ull << 63) /* their words' names, beside those of conversations */

/* -------------------------------------------------------------------------------------- traces */

/* Opens a trace for load_plan_read_*, which read a path: that of a pipe from gzip. */
static FILE *unpack(const char *folder, const char *name, char path[32], struct error *err)
{
    char command[600];
    snprintf(command, sizeof command, "gzip -dc '%s/%s.gz'", folder, name);
    FILE *pipe = popen(command, "r");
    if (pipe)
        snprintf(path, 32, "/dev/fd/%d", fileno(pipe));
    else
        error_set(err, STATUS_IO, "cannot run %s", command);
    return pipe;
}

/* Adds a copy of a request without a parent, due at that time. `mark`: bits of its words' names. */
static enum status add_copy(struct load_plan *plan, const struct load_plan *from, uint32_t i,
                            uint64_t at_ns, uint64_t mark, struct error *err)
{
    struct load_request request = from->requests[i];
    struct load_segment segments[MOST_SEGMENTS];
    ASSERT(request.segment_count <= MOST_SEGMENTS);
    for (uint32_t s = 0; s < request.segment_count; s++) {
        segments[s] = from->segments[request.first_segment + s];
        segments[s].name |= mark;
    }
    request.at_ns = at_ns;
    request.input_tokens = 0; /* load_plan_add counts its segments */
    return load_plan_add(plan, request, segments, request.segment_count, err);
}

/* Adds `count` requests of a trace in a row, from a place that depends on the seed, at the rate
 * that was asked for: all its gaps are stretched alike. */
static enum status add_window(struct load_plan *plan, const struct load_plan *trace,
                              const struct workload_ask *ask, struct error *err)
{
    uint32_t count = ask->count < trace->request_count ? ask->count : trace->request_count;
    struct rng rng = rng_seeded(ask->seed);
    uint32_t first = (uint32_t)rng_below(&rng, trace->request_count - count + 1);
    uint64_t begun_ns = trace->requests[first].at_ns,
             span_ns = trace->requests[first + count - 1].at_ns - begun_ns;
    double stretch = count / ask->rate * 1e9 / (double)(span_ns ? span_ns : 1);
    for (uint32_t i = first; i < first + count; i++) {
        double later_ns = (double)(trace->requests[i].at_ns - begun_ns);
        TRY(add_copy(plan, trace, i, (uint64_t)(later_ns * stretch), 0, err));
    }
    return STATUS_OK;
}

typedef enum status trace_reader(struct load_plan *, const struct load_file *, struct error *);

static enum status read_trace(struct load_plan *plan, const struct workload_ask *ask,
                              const char *name, trace_reader *reader, uint32_t shrink,
                              struct error *err)
{
    char path[32];
    struct load_plan trace;
    FILE *pipe = unpack(ask->data, name, path, err);
    if (!pipe)
        return STATUS_IO;
    const struct load_file file = {.path = path,
                                   .count = LOAD_MAX_REQUESTS,
                                   .max_tokens = (WORKLOAD_CONTEXT - 2048) * shrink,
                                   .second = shrink > 1 ? 1e-3 : 1};
    load_plan_init(&trace);
    enum status status = reader(&trace, &file, err);
    pclose(pipe);
    for (uint32_t i = 0; i < trace.segment_count; i++)
        trace.segments[i].tokens = (trace.segments[i].tokens + shrink - 1) / shrink;
    if (status == STATUS_OK)
        status = add_window(plan, &trace, ask, err);
    load_plan_deinit(&trace);
    return status;
}

static enum status build_conversation(struct load_plan *plan, const struct workload_ask *ask,
                                      struct error *err)
{
    return read_trace(plan, ask, "azure_conversation_2023.csv", load_plan_read_azure, 1, err);
}

static enum status build_code(struct load_plan *plan, const struct workload_ask *ask,
                              struct error *err)
{
    return read_trace(plan, ask, "azure_code_2023.csv", load_plan_read_azure, 1, err);
}

static enum status build_mooncake(struct load_plan *plan, const struct workload_ask *ask,
                                  struct error *err)
{
    return read_trace(plan, ask, "mooncake_conversation.jsonl", load_plan_read_mooncake, 8, err);
}

/* ----------------------------------------------------------------------------------- synthetic */

static enum status build_turns(struct load_plan *plan, const struct workload_ask *ask,
                               struct error *err)
{
    const struct load_turns turns = {
        .system = 480, .input = 260, .output = 140, .turns = 5, .branches = 1, .think_s = 3};
    const struct load_arrivals arrivals = {.rate = ask->rate / turns.turns, .burstiness = 1};
    TRY(load_plan_add_turns(plan, &turns, ask->count, ask->seed, err));
    load_plan_set_arrivals(plan, &arrivals, ask->seed + 1);
    return STATUS_OK;
}

/* Bursts: eight questions about one new document, within 40 ms on average. */
static enum status build_siblings(struct load_plan *plan, const struct workload_ask *ask,
                                  struct error *err)
{
    enum { SIBLINGS = 8, DOCUMENT = 2400, QUESTION = 60, ANSWER = 120 };
    struct rng rng = rng_seeded(ask->seed);
    double at_s = 0;
    for (uint32_t i = 0; i < ask->count; i++) {
        if (i % SIBLINGS == 0) {
            at_s -= log(1 - rng_unit(&rng)) * SIBLINGS / ask->rate;
            plan->next_name++;
        }
        uint32_t answer = ANSWER / 2 + (uint32_t)rng_below(&rng, ANSWER);
        const struct load_segment segments[] = {{plan->next_name << 16, DOCUMENT},
                                                {plan->next_name << 16 | (i + 1), QUESTION}};
        double later_s = -log(1 - rng_unit(&rng)) * 0.04;
        TRY(load_plan_add(plan,
                          (struct load_request){.text = LOAD_NONE,
                                                .output_tokens = answer,
                                                .parent = LOAD_NONE,
                                                .at_ns = (uint64_t)((at_s + later_s) * 1e9)},
                          segments, 2, err));
    }
    return STATUS_OK;
}

static enum status build_prefixes(struct load_plan *plan, const struct workload_ask *ask,
                                  struct error *err)
{
    const struct load_prefixes prefixes = {
        .prefix = 1600, .suffix = 100, .output = 80, .prefixes = PREFIXES};
    const struct load_arrivals arrivals = {.rate = ask->rate, .burstiness = 1};
    TRY(load_plan_add_prefixes(plan, &prefixes, ask->count, ask->seed, err));
    load_plan_set_arrivals(plan, &arrivals, ask->seed + 1);
    return STATUS_OK;
}

/* Conversations and questions about documents in turns: every second request's class is `other`. */
static enum status build_mixed(struct load_plan *plan, const struct workload_ask *ask,
                               struct error *err)
{
    struct workload_ask half = *ask;
    struct load_plan parts[2];
    half.count = (ask->count + 1) / 2;
    half.rate = ask->rate / 2;
    load_plan_init(&parts[0]), load_plan_init(&parts[1]);
    enum status status = build_conversation(&parts[0], &half, err);
    half.count += PREFIXES; /* it makes as many for each */
    if (status == STATUS_OK)
        status = build_prefixes(&parts[1], &half, err);
    for (uint32_t i = 0; status == STATUS_OK && i < ask->count; i++) {
        const struct load_plan *from = &parts[i % 2];
        status = i / 2 < from->request_count
                     ? add_copy(plan, from, i / 2, from->requests[i / 2].at_ns,
                                i % 2 ? DOCUMENTS : 0, err)
                     : error_set(err, STATUS_INVALID, "the trace has too few requests");
    }
    load_plan_deinit(&parts[0]), load_plan_deinit(&parts[1]);
    return status;
}

enum status workload_build_equal(struct load_plan *plan, const struct workload_ask *ask,
                                 struct error *err)
{
    const struct load_arrivals arrivals = {.rate = ask->rate, .burstiness = 1};
    TRY(load_plan_add_random(plan, &ask->lengths, ask->count, ask->seed, err));
    load_plan_set_arrivals(plan, &arrivals, ask->seed + 1);
    return STATUS_OK;
}

const struct workload workloads[] = {
    {.name = "conversation",
     .help = "Azure's conversations of 2023",
     .objective = {.ttft_us = 1000000, .tpot_us = 100000},
     .max_tokens = 1024,
     .needs_data = true,
     .build = build_conversation},
    {.name = "code",
     .help = "Azure's code completion of 2023",
     .objective = {.ttft_us = 2000000, .tpot_us = 100000},
     .max_tokens = 1024,
     .needs_data = true,
     .build = build_code},
    {.name = "mooncake",
     .help = "Mooncake's conversations, an eighth as long",
     .objective = {.ttft_us = 2000000, .tpot_us = 100000},
     .max_tokens = 2048,
     .needs_data = true,
     .build = build_mooncake},
    {.name = "turns",
     .help = "5 turns with 3 s of thought",
     .objective = {.ttft_us = 600000, .tpot_us = 80000},
     .max_tokens = 512,
     .build = build_turns},
    {.name = "siblings",
     .help = "bursts of 8 questions about one document",
     .objective = {.ttft_us = 1000000, .tpot_us = 80000},
     .max_tokens = 512,
     .build = build_siblings},
    {.name = "prefixes",
     .help = "60 documents of 1,600 tokens, questions at random",
     .objective = {.ttft_us = 800000, .tpot_us = 80000},
     .max_tokens = 80,
     .build = build_prefixes},
    {.name = "mixed",
     .help = "conversations, and questions about documents: two classes",
     .objective = {.ttft_us = 1000000, .tpot_us = 100000},
     .other = {.ttft_us = 800000, .tpot_us = 80000},
     .max_tokens = 1024,
     .other_max_tokens = 80,
     .needs_data = true,
     .build = build_mixed},
    {.name = "fixed",
     .help = "512 tokens, answers of 64, Poisson",
     .objective = {.ttft_us = 400000, .tpot_us = 40000},
     .max_tokens = 64,
     .build = workload_build_equal,
     .lengths = {.input = 512, .output = 64}},
};
const size_t workload_count = sizeof workloads / sizeof *workloads;

const struct workload *workload_find(const char *name)
{
    for (size_t i = 0; i < workload_count; i++)
        if (!strcmp(workloads[i].name, name))
            return &workloads[i];
    return NULL;
}

/* ------------------------------------------------------------------------------------- clients */

uint32_t audience_class(const struct audience *audience, uint32_t request)
{
    const struct slo_objective *other = &audience->workload->other;
    return other->ttft_us || other->tpot_us ? request % 2 : 0;
}

static uint64_t next_us(void *context)
{
    const struct audience *audience = context;
    uint64_t when_ns = load_order_when(&audience->order);
    return when_ns == UINT64_MAX ? UINT64_MAX : (when_ns + 999) / 1000;
}

static void take(void *context, uint64_t id, struct virtual_request *request)
{
    struct audience *audience = context;
    uint64_t ready_ns;
    uint32_t at = load_order_next(&audience->order, next_us(context) * 1000, &ready_ns);
    ASSERT(at != LOAD_NONE && id == audience->taken);
    const struct load_request *asked = &audience->plan->requests[at];
    uint32_t parent = asked->parent, answer = asked->output_tokens;
    if (audience->longer > 0 && id >= audience->longer_from)
        answer = (uint32_t)(audience->longer * answer);
    uint32_t before =
        parent == LOAD_NONE ? 0 : audience->prompts[parent] + audience->answers[parent];
    uint32_t prompt = before + asked->input_tokens;
    ASSERT(prompt < WORKLOAD_CONTEXT);
    if (prompt + answer > WORKLOAD_CONTEXT)
        answer = WORKLOAD_CONTEXT - prompt;
    audience->request_of[id] = at;
    audience->id_of[at] = (uint32_t)id;
    audience->prompts[at] = prompt;
    audience->answers[at] = answer;
    audience->taken++;
    const struct workload *workload = audience->workload;
    bool is_other = audience_class(audience, at);
    uint32_t most =
        is_other && workload->other_max_tokens ? workload->other_max_tokens : workload->max_tokens;
    if (prompt + most > WORKLOAD_CONTEXT)
        most = WORKLOAD_CONTEXT - prompt;
    *request =
        (struct virtual_request){.prompt_tokens = prompt,
                                 .answer_tokens = answer,
                                 .max_tokens = answer > most ? answer : most,
                                 .timeout_us = audience->timeout_us,
                                 .priority = PRIORITY_NORMAL,
                                 .slo_class = audience->classless ? SLO_NONE : is_other,
                                 .objective = is_other ? workload->other : workload->objective,
                                 .percentile = SLO_USUAL_PERCENTILE};
}

/* The prompt of an earlier turn, its answer, and the new words. */
static void prompt(void *context, uint64_t id, uint32_t *tokens)
{
    const struct audience *audience = context;
    for (uint32_t at = audience->request_of[id]; at != LOAD_NONE;) {
        const struct load_request *request = &audience->plan->requests[at];
        uint32_t place = audience->prompts[at] - request->input_tokens;
        for (uint32_t s = 0; s < request->segment_count; s++) {
            const struct load_segment *segment =
                &audience->plan->segments[request->first_segment + s];
            for (uint32_t i = 0; i < segment->tokens; i++)
                tokens[place++] = virtual_answer_token(~audience->seed, segment->name, i);
        }
        at = request->parent;
        for (uint32_t i = 0; at != LOAD_NONE && i < audience->answers[at]; i++)
            tokens[audience->prompts[at] + i] =
                virtual_answer_token(audience->seed, audience->id_of[at], i);
    }
}

static void lost(void *context, uint32_t request)
{
    (void)context;
    (void)request;
    ASSERT(false); /* a client goes on after a failure, too */
}

static void ended(void *context, const struct virtual_outcome *outcome)
{
    struct audience *audience = context;
    audience->outcomes[outcome->id] = *outcome;
    audience->ended++;
    load_order_ended(&audience->order, audience->request_of[outcome->id], true,
                     (outcome->arrived_us + outcome->e2e_us) * 1000, lost, NULL);
}

void audience_open(struct audience *audience)
{
    uint32_t count = audience->plan->request_count;
    load_order_init(&audience->order, audience->plan, 0);
    audience->request_of = calloc(count, sizeof *audience->request_of);
    audience->id_of = calloc(count, sizeof *audience->id_of);
    audience->prompts = calloc(count, sizeof *audience->prompts);
    audience->answers = calloc(count, sizeof *audience->answers);
    audience->outcomes = calloc(count, sizeof *audience->outcomes);
    ASSERT(audience->request_of && audience->id_of && audience->prompts && audience->answers &&
           audience->outcomes);
    audience->taken = audience->ended = 0;
}

void audience_close(struct audience *audience)
{
    load_order_deinit(&audience->order);
    free(audience->request_of);
    free(audience->id_of);
    free(audience->prompts);
    free(audience->answers);
    free(audience->outcomes);
}

struct virtual_clients audience_clients(struct audience *audience)
{
    return (struct virtual_clients){audience, next_us, take, prompt, ended};
}
