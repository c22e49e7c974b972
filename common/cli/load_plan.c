#include "common/cli/load_plan.h"

#include "common/base/assert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHARED_NAME 0 /* the segment that all prompts begin with */

void load_plan_init(struct load_plan *plan)
{
    *plan = (struct load_plan){.next_name = SHARED_NAME + 1};
}

void load_plan_deinit(struct load_plan *plan)
{
    for (uint32_t i = 0; i < plan->text_count; i++)
        free(plan->texts[i]);
    free(plan->texts);
    free(plan->segments);
    free(plan->requests);
}

enum status load_plan_reserve(void **items, size_t size, uint32_t *capacity, uint32_t need,
                              struct error *err)
{
    if (need <= *capacity)
        return STATUS_OK;
    uint32_t wanted = *capacity ? *capacity : 256;
    while (wanted < need)
        wanted *= 2;
    void *grown = realloc(*items, wanted * size);
    if (!grown)
        return error_set(err, STATUS_LIMIT, "out of memory for %u requests", wanted);
    *items = grown;
    *capacity = wanted;
    return STATUS_OK;
}

enum status load_plan_add(struct load_plan *plan, struct load_request request,
                          const struct load_segment *segments, uint32_t count, struct error *err)
{
    if (plan->request_count == LOAD_MAX_REQUESTS || plan->segment_count > UINT32_MAX / 4)
        return error_set(err, STATUS_LIMIT, "more than %u requests", LOAD_MAX_REQUESTS);
    TRY(load_plan_reserve((void **)&plan->requests, sizeof *plan->requests, &plan->request_capacity,
                          plan->request_count + 1, err));
    TRY(load_plan_reserve((void **)&plan->segments, sizeof *plan->segments, &plan->segment_capacity,
                          plan->segment_count + count, err));
    request.first_segment = plan->segment_count;
    request.segment_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!segments[i].tokens)
            continue;
        plan->segments[plan->segment_count++] = segments[i];
        request.input_tokens += segments[i].tokens;
        request.segment_count++;
    }
    plan->requests[plan->request_count++] = request;
    return STATUS_OK;
}

/* --- datasets --- */

static uint32_t draw_length(struct rng *rng, uint32_t length, double ratio)
{
    double low = floor(length * (1 - ratio)), high = ceil(length * (1 + ratio));
    return (uint32_t)low + (uint32_t)rng_below(rng, (uint64_t)(high - low) + 1);
}

enum status load_plan_add_random(struct load_plan *plan, const struct load_lengths *lengths,
                                 uint32_t count, uint64_t seed, struct error *err)
{
    struct rng rng = rng_seeded(seed);
    if (!(lengths->range_ratio >= 0 && lengths->range_ratio < 1))
        return error_set(err, STATUS_INVALID, "--random-range-ratio %g: must be from 0 to below 1",
                         lengths->range_ratio);
    if (lengths->prefix + floor(lengths->input * (1 - lengths->range_ratio)) < 1)
        return error_set(err, STATUS_INVALID,
                         "--random-input-len %u with --random-range-ratio %g can be an empty "
                         "prompt: give more tokens, or --random-prefix-len",
                         lengths->input, lengths->range_ratio);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t input = draw_length(&rng, lengths->input, lengths->range_ratio);
        uint32_t output = draw_length(&rng, lengths->output, lengths->range_ratio);
        const struct load_segment segments[] = {{SHARED_NAME, lengths->prefix},
                                                {plan->next_name++, input}};
        TRY(load_plan_add(plan,
                          (struct load_request){.text = LOAD_NONE,
                                                .output_tokens = output ? output : 1,
                                                .parent = LOAD_NONE},
                          segments, 2, err));
    }
    return STATUS_OK;
}

static double normal(struct rng *rng)
{
    double u = 1 - rng_unit(rng); /* in (0, 1] */
    return sqrt(-2 * log(u)) * cos(2 * M_PI * rng_unit(rng));
}

enum status load_plan_add_chats(struct load_plan *plan, uint32_t count, uint64_t seed,
                                struct error *err)
{
    static const double means[] = {161, 338}; /* exp(mu + sigma^2 / 2) */
    struct rng rng = rng_seeded(seed);
    for (uint32_t i = 0; i < count; i++) {
        double length[2];
        do
            for (int k = 0; k < 2; k++)
                length[k] = rint(means[k] * exp(normal(&rng) - 0.5));
        while (length[0] < 4 || length[1] < 4 || length[0] > 1024 || length[0] + length[1] > 2048);
        const struct load_segment segment = {plan->next_name++, (uint32_t)length[0]};
        TRY(load_plan_add(plan,
                          (struct load_request){.text = LOAD_NONE,
                                                .output_tokens = (uint32_t)length[1],
                                                .parent = LOAD_NONE},
                          &segment, 1, err));
    }
    return STATUS_OK;
}

enum status load_plan_add_prefixes(struct load_plan *plan, const struct load_prefixes *prefixes,
                                   uint32_t count, uint64_t seed, struct error *err)
{
    struct rng rng = rng_seeded(seed);
    uint32_t first = plan->request_count;
    if (!prefixes->prefixes || prefixes->prefixes > count)
        return error_set(err, STATUS_INVALID,
                         "--num-prompts %u must be at least --prefix-repetition-num-prefixes %u, "
                         "which is at least 1",
                         count, prefixes->prefixes);
    if (!prefixes->prefix && !prefixes->suffix)
        return error_set(err, STATUS_INVALID,
                         "--prefix-repetition-prefix-len and --prefix-repetition-suffix-len are 0: "
                         "prompts would be empty");
    uint64_t names = plan->next_name;
    plan->next_name += prefixes->prefixes;
    for (uint32_t i = 0; i < count / prefixes->prefixes * prefixes->prefixes; i++) {
        const struct load_segment segments[] = {{names + i % prefixes->prefixes, prefixes->prefix},
                                                {plan->next_name++, prefixes->suffix}};
        TRY(load_plan_add(plan,
                          (struct load_request){.text = LOAD_NONE,
                                                .output_tokens = prefixes->output,
                                                .parent = LOAD_NONE},
                          segments, 2, err));
    }
    for (uint32_t left = plan->request_count - first; left > 1; left--) {
        uint32_t other = first + (uint32_t)rng_below(&rng, left), last = first + left - 1;
        struct load_request request = plan->requests[last];
        plan->requests[last] = plan->requests[other];
        plan->requests[other] = request;
    }
    return STATUS_OK;
}

enum status load_plan_add_turns(struct load_plan *plan, const struct load_turns *turns,
                                uint32_t count, uint64_t seed, struct error *err)
{
    struct rng rng = rng_seeded(seed);
    uint32_t size = 1 + turns->branches * (turns->turns - 1), first = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i % size; /* 0: the first turn; then turn by turn, branch by branch */
        if (!at)
            first = plan->request_count;
        const struct load_segment segments[] = {{SHARED_NAME, at ? 0 : turns->system},
                                                {plan->next_name++, turns->input}};
        uint32_t parent = !at                     ? LOAD_NONE
                          : at <= turns->branches ? first
                                                  : first + at - turns->branches;
        double think_s = -log(1 - rng_unit(&rng)) * turns->think_s;
        TRY(load_plan_add(plan,
                          (struct load_request){.text = LOAD_NONE,
                                                .output_tokens = turns->output,
                                                .parent = parent,
                                                .think_ns = at ? (uint64_t)(think_s * 1e9) : 0},
                          segments, 2, err));
    }
    return STATUS_OK;
}

enum status load_plan_repeat(struct load_plan *plan, uint32_t count, struct error *err)
{
    uint32_t whole = plan->request_count;
    while (plan->request_count < count) {
        struct load_request request = plan->requests[plan->request_count - whole];
        uint32_t first = request.first_segment;
        ASSERT(request.parent == LOAD_NONE && !request.segment_count);
        TRY(load_plan_add(plan, request, NULL, 0, err));
        plan->requests[plan->request_count - 1].first_segment = first;
    }
    return STATUS_OK;
}

/* --- arrivals --- */

double load_gamma(struct rng *rng, double shape)
{
    if (shape < 1) /* G(a) is G(a + 1) U^(1 / a) */
        return load_gamma(rng, shape + 1) * (shape + 1) / shape * pow(1 - rng_unit(rng), 1 / shape);
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = normal(rng), v = 1 + c * x;
        v = v * v * v;
        if (v > 0 && log(1 - rng_unit(rng)) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v / shape;
    }
}

void load_plan_set_arrivals(struct load_plan *plan, const struct load_arrivals *arrivals,
                            uint64_t seed)
{
    struct rng rng = rng_seeded(seed);
    uint32_t roots = 0, at = 0;
    for (uint32_t i = 0; i < plan->request_count; i++)
        roots += plan->requests[i].parent == LOAD_NONE;
    double *due_s = calloc(roots + 1, sizeof *due_s);
    ASSERT(due_s);
    for (uint32_t i = 0; i < roots; i++) {
        double progress = roots > 1 ? (double)i / (roots - 1) : 0, rate = arrivals->rate;
        if (arrivals->ramp == LOAD_RAMP_LINEAR)
            rate = arrivals->start + (arrivals->end - arrivals->start) * progress;
        else if (arrivals->ramp == LOAD_RAMP_EXPONENTIAL)
            rate = arrivals->start * pow(arrivals->end / arrivals->start, progress);
        double gap = isinf(arrivals->burstiness) ? 1 : load_gamma(&rng, arrivals->burstiness);
        due_s[i] = (i ? due_s[i - 1] : 0) + (isinf(rate) ? 0 : gap / rate);
    }
    double last = roots ? due_s[roots - 1] : 0, scale = 1;
    if (arrivals->ramp == LOAD_RAMP_NONE && last > 0)
        scale = roots / arrivals->rate / last;
    for (uint32_t i = 0; i < plan->request_count; i++)
        if (plan->requests[i].parent == LOAD_NONE)
            plan->requests[i].at_ns = (uint64_t)(due_s[at++] * scale * 1e9);
    free(due_s);
}

/* --- order --- */

static bool earlier(const struct load_order *order, uint32_t a, uint32_t b)
{
    uint64_t at_a = order->due_ns[a], at_b = order->due_ns[b];
    return at_a < at_b || (at_a == at_b && a < b);
}

static void push_due(struct load_order *order, uint32_t request, uint64_t due_ns)
{
    uint32_t at = order->due_count++;
    order->due_ns[request] = due_ns;
    for (; at && earlier(order, request, order->due[(at - 1) / 2]); at = (at - 1) / 2)
        order->due[at] = order->due[(at - 1) / 2];
    order->due[at] = request;
}

static uint32_t pop_due(struct load_order *order)
{
    uint32_t first = order->due[0], moved = order->due[--order->due_count], at = 0;
    for (uint32_t child; (child = 2 * at + 1) < order->due_count; at = child) {
        if (child + 1 < order->due_count &&
            earlier(order, order->due[child + 1], order->due[child]))
            child++;
        if (!earlier(order, order->due[child], moved))
            break;
        order->due[at] = order->due[child];
    }
    order->due[at] = moved;
    return first;
}

void load_order_init(struct load_order *order, const struct load_plan *plan, uint32_t limit)
{
    uint32_t count = plan->request_count;
    *order = (struct load_order){.plan = plan,
                                 .limit = limit,
                                 .left = count,
                                 .due = calloc(count + 1, sizeof *order->due),
                                 .due_ns = calloc(count + 1, sizeof *order->due_ns),
                                 .child = calloc(count + 1, sizeof *order->child),
                                 .next = calloc(count + 1, sizeof *order->next)};
    ASSERT(order->due && order->due_ns && order->child && order->next);
    for (uint32_t i = 0; i < count; i++)
        order->child[i] = order->next[i] = LOAD_NONE;
    for (uint32_t i = count; i-- > 0;) { /* backwards: children stay in order */
        uint32_t parent = plan->requests[i].parent;
        if (parent == LOAD_NONE)
            continue;
        order->next[i] = order->child[parent];
        order->child[parent] = i;
    }
    for (uint32_t i = 0; i < count; i++)
        if (plan->requests[i].parent == LOAD_NONE)
            push_due(order, i, plan->requests[i].at_ns);
}

void load_order_deinit(struct load_order *order)
{
    free(order->due);
    free(order->due_ns);
    free(order->child);
    free(order->next);
}

uint32_t load_order_peek(const struct load_order *order)
{
    return order->due_count ? order->due[0] : LOAD_NONE;
}

uint64_t load_order_when(const struct load_order *order)
{
    if (!order->due_count || (order->limit && order->running >= order->limit))
        return UINT64_MAX;
    return order->due_ns[order->due[0]];
}

uint32_t load_order_next(struct load_order *order, uint64_t now_ns, uint64_t *ready_ns)
{
    if (load_order_when(order) > now_ns)
        return LOAD_NONE;
    uint32_t request = pop_due(order);
    uint64_t due_ns = order->due_ns[request];
    *ready_ns = due_ns > order->slot_ns ? due_ns : order->slot_ns;
    order->running++;
    return request;
}

uint32_t load_order_ended(struct load_order *order, uint32_t request, bool success, uint64_t now_ns,
                          void (*lost)(void *context, uint32_t request), void *context)
{
    if (order->limit && order->running == order->limit)
        order->slot_ns = now_ns;
    order->running--;
    order->left--;
    uint32_t count = 0;
    /* A lost request's children are appended to the list that is walked. */
    for (uint32_t child = order->child[request]; child != LOAD_NONE; child = order->next[child]) {
        if (success) {
            push_due(order, child, now_ns + order->plan->requests[child].think_ns);
            continue;
        }
        uint32_t last = child;
        while (order->next[last] != LOAD_NONE)
            last = order->next[last];
        order->next[last] = order->child[child];
        order->child[child] = LOAD_NONE;
        order->left--;
        count++;
        lost(context, child);
    }
    return count;
}
