#include "router/planner/answer_length.h"

#include "common/base/assert.h"

#include <math.h>
#include <stdlib.h>

#define EXACT          8 /* lengths with buckets of their own */
#define AN_OCTAVE      4 /* buckets */
#define OCTAVES        17
#define BUCKETS        (EXACT + AN_OCTAVE * OCTAVES) /* up to 2^20 tokens; the last is open */
#define PROMPTS        10                            /* by factors of 4 */
#define CUTS           8 /* for max_tokens: open, then by factors of 4 */
#define CELLS          (1 + PROMPTS + PROMPTS * CUTS)
#define SUREST         (1 - 1e-15) /* end in a bucket: survival has a logarithm */
#define LARGEST_WEIGHT 1e12        /* a single answer: then all are divided */

/* Weights of the answers of one cell. */
struct cell {
    double total, tokens, ends;              /* sums: answers, their tokens, the ones that ended */
    double ended[BUCKETS], reached[BUCKETS]; /* reached: a part of the bucket counts as a part */
};

/* The answers' own weight grows instead of all others' falling. */
struct model {
    double unit;              /* the weight of the last one; 0: none has come */
    struct cell cells[CELLS]; /* all, by prompts, by prompts and limits */
};

struct answer_lengths {
    size_t model_count;
    struct model *models; /* [model_count] */
};

/* Survival up to each edge of a bucket: P(L > first[b]), as a logarithm. */
struct curve {
    double log_survival[BUCKETS + 1];
    uint32_t drawn, limit;
};

/* -------------------------------------------------------------------------------------- buckets */

/* Returns the tokens before the bucket: it has the lengths first(b) + 1 .. first(b + 1). */
static uint32_t first_of(uint32_t bucket)
{
    if (bucket < EXACT)
        return bucket;
    uint32_t octave = (bucket - EXACT) / AN_OCTAVE, part = (bucket - EXACT) % AN_OCTAVE;
    return (EXACT << octave) + (EXACT << octave) / AN_OCTAVE * part;
}

/* Returns the bucket of a length > 0. */
static uint32_t bucket_of(uint32_t tokens)
{
    uint32_t before = tokens - 1;
    if (before < EXACT)
        return before;
    uint32_t octave = 28 - (uint32_t)__builtin_clz(before); /* 8 .. 15: 0 */
    uint32_t part = before / ((EXACT << octave) / AN_OCTAVE) - AN_OCTAVE;
    uint32_t bucket = EXACT + octave * AN_OCTAVE + part;
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static uint32_t by_fours(uint64_t number, uint32_t count)
{
    uint32_t log = number ? (uint32_t)(63 - __builtin_clzll(number)) / 2 : 0;
    return log < count ? log : count - 1;
}

/* Writes the cells of an answer, the largest one first. Returns their model. */
static struct model *cells_of(const struct answer_lengths *lengths, const struct answer_ask *ask,
                              struct cell *cells[3])
{
    ASSERT(ask->model < lengths->model_count && ask->max_tokens > 0);
    struct model *model = &lengths->models[ask->model];
    uint32_t prompt = by_fours(ask->prompt_tokens, PROMPTS);
    uint32_t limit = ask->open ? 0 : 1 + by_fours(ask->max_tokens, CUTS - 1);
    cells[0] = model->cells;
    cells[1] = model->cells + 1 + prompt;
    cells[2] = model->cells + 1 + PROMPTS + prompt * CUTS + limit;
    return model;
}

/* ---------------------------------------------------------------------------------------- learn */

/* All earlier answers of the model weigh less from now on. */
static void forget(struct model *model)
{
    double by = model->unit > LARGEST_WEIGHT ? 1 / model->unit : 1;
    for (struct cell *cell = model->cells; cell < model->cells + CELLS && by < 1; cell++) {
        for (uint32_t b = 0; b < BUCKETS; b++) {
            cell->ended[b] *= by;
            cell->reached[b] *= by;
        }
        cell->total *= by;
        cell->tokens *= by;
        cell->ends *= by;
    }
    model->unit *= by;
    model->unit = model->unit > 0 ? model->unit * exp2(1.0 / ANSWER_HALF_LIFE) : 1;
}

/* An answer went on from `from` to `to` tokens. */
static void pass(struct cell *cell, double unit, uint32_t from, uint32_t to)
{
    for (uint32_t b = bucket_of(from + 1); b < BUCKETS && first_of(b) < to; b++) {
        uint32_t first = first_of(b), next = first_of(b + 1);
        uint32_t passed = (next < to ? next : to) - (first > from ? first : from);
        cell->reached[b] += unit * passed / (next - first);
    }
}

void answer_lengths_learn(struct answer_lengths *lengths, const struct answer_ask *ask,
                          const struct answer_course *course, uint32_t tokens, bool ended)
{
    struct cell *cells[3];
    if (!tokens || ask->exact)
        return;
    struct model *model = cells_of(lengths, ask, cells);
    forget(model);
    uint32_t bucket = bucket_of(tokens);
    for (int i = 0; i < 3; i++) {
        struct cell *cell = cells[i];
        pass(cell, model->unit, course->told_tokens, ended ? first_of(bucket + 1) : tokens);
        cell->tokens += model->unit * (tokens - course->told_tokens);
        cell->total += model->unit;
        cell->ends += ended ? model->unit : 0;
        cell->ended[bucket] += ended ? model->unit : 0;
    }
}

struct answer_length answer_lengths_follow(struct answer_lengths *lengths,
                                           const struct answer_ask *ask,
                                           struct answer_course *course, uint32_t drawn)
{
    if (drawn >= course->tell_at && drawn && !ask->exact) {
        struct cell *cells[3];
        struct model *model = cells_of(lengths, ask, cells);
        model->unit = model->unit > 0 ? model->unit : 1;
        for (int i = 0; i < 3; i++) {
            pass(cells[i], model->unit, course->told_tokens, drawn);
            cells[i]->tokens += model->unit * (drawn - course->told_tokens);
        }
        course->told_tokens = drawn;
        course->tell_at = first_of(bucket_of(drawn + 1) + 1);
    }
    if (drawn >= course->expect_at || drawn >= course->expected.mean) {
        course->expected = answer_length_predict(lengths, ask, drawn);
        course->expect_at = drawn ? 2 * drawn : 1;
    }
    return course->expected;
}

double answer_lengths_weight(const struct answer_lengths *lengths, const struct answer_ask *ask)
{
    struct cell *cells[3];
    const struct model *model = cells_of(lengths, ask, cells);
    return model->unit > 0 ? cells[2]->total / model->unit : 0;
}

/* ---------------------------------------------------------------------------------------- curve */

static double width_of(uint32_t bucket)
{
    return (double)first_of(bucket + 1) - first_of(bucket);
}

static void curve_of(const struct answer_lengths *lengths, const struct answer_ask *ask,
                     uint32_t drawn, struct curve *curve)
{
    struct cell *cells[3];
    double hazards[BUCKETS];
    const struct model *model = cells_of(lengths, ask, cells);
    double unit = model->unit > 0 ? model->unit : 1;
    double rate = (cells[0]->ends + unit) / (cells[0]->tokens + unit * ANSWER_PRIOR_TOKENS);
    for (uint32_t b = 0; b < BUCKETS; b++) /* as if geometric, with the model's mean */
        hazards[b] = -expm1(width_of(b) * log1p(-rate));
    for (int i = 0; i < 3; i++) { /* each leans on the hazards of the one before */
        const struct cell *cell = cells[i];
        for (uint32_t b = 0; b < BUCKETS; b++)
            hazards[b] = (cell->ended[b] / unit + ANSWER_PRIOR_WEIGHT * hazards[b]) /
                         (cell->reached[b] / unit + ANSWER_PRIOR_WEIGHT);
    }
    curve->log_survival[0] = 0;
    for (uint32_t b = 0; b < BUCKETS; b++)
        curve->log_survival[b + 1] = curve->log_survival[b] + log1p(-fmin(hazards[b], SUREST));
    curve->limit = ask->max_tokens;
    curve->drawn = drawn;
}

/* Returns log P(L > tokens) of answers that nothing cuts off. Within a bucket, and beyond the last
 * one, ends are evenly likely per token. */
static double log_survival(const struct curve *curve, double tokens)
{
    uint32_t b = tokens < UINT32_MAX - 1 ? bucket_of((uint32_t)tokens + 1) : BUCKETS - 1;
    double slope = (curve->log_survival[b + 1] - curve->log_survival[b]) / width_of(b);
    return curve->log_survival[b] + slope * (tokens - first_of(b));
}

/* Returns P(length > tokens), given `drawn`. */
static double exceeds(const struct curve *curve, double tokens)
{
    if (tokens < curve->drawn)
        return 1;
    if (tokens >= curve->limit)
        return 0;
    return exp(log_survival(curve, tokens) - log_survival(curve, curve->drawn));
}

/* Returns the sum of P(length > x) over x = drawn .. limit - 1: the mean of what is still to come.
 * The terms of a bucket are a geometric series. */
static double rest_of(const struct curve *curve)
{
    double sum = 0, start = log_survival(curve, curve->drawn);
    uint32_t at = curve->drawn;
    while (at < curve->limit) {
        uint32_t b = bucket_of(at + 1);
        uint32_t end = b == BUCKETS - 1 ? curve->limit : first_of(b + 1);
        end = end < curve->limit ? end : curve->limit;
        double from = log_survival(curve, at) - start;
        double slope = (curve->log_survival[b + 1] - curve->log_survival[b]) / width_of(b);
        double count = (double)end - at;
        sum += exp(from) * (slope < 0 ? expm1(slope * count) / expm1(slope) : count);
        at = end;
    }
    return sum;
}

static double quantile(const struct curve *curve, double q)
{
    uint32_t low = curve->drawn, high = curve->limit; /* exceeds(low) > 1 - q >= exceeds(high) */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (exceeds(curve, middle) > 1 - q)
            low = middle;
        else
            high = middle;
    }
    return high;
}

/* -------------------------------------------------------------------------------------- answers */

static bool is_fixed(const struct answer_ask *ask, uint32_t drawn)
{
    return ask->exact || drawn >= ask->max_tokens;
}

struct answer_length answer_length_predict(const struct answer_lengths *lengths,
                                           const struct answer_ask *ask, uint32_t drawn)
{
    struct curve curve;
    if (is_fixed(ask, drawn))
        return (struct answer_length){ask->max_tokens, ask->max_tokens, ask->max_tokens};
    curve_of(lengths, ask, drawn, &curve);
    return (struct answer_length){drawn + rest_of(&curve), quantile(&curve, 0.5),
                                  quantile(&curve, 0.9)};
}

double answer_length_exceeds(const struct answer_lengths *lengths, const struct answer_ask *ask,
                             uint32_t drawn, double tokens)
{
    struct curve curve;
    if (is_fixed(ask, drawn))
        return tokens < ask->max_tokens;
    curve_of(lengths, ask, drawn, &curve);
    return exceeds(&curve, tokens);
}

double answer_length_quantile(const struct answer_lengths *lengths, const struct answer_ask *ask,
                              uint32_t drawn, double q)
{
    struct curve curve;
    if (is_fixed(ask, drawn))
        return ask->max_tokens;
    curve_of(lengths, ask, drawn, &curve);
    return quantile(&curve, q);
}

double answer_length_rest(const struct answer_lengths *lengths, const struct answer_ask *ask,
                          uint32_t drawn)
{
    struct curve curve;
    if (is_fixed(ask, drawn))
        return drawn < ask->max_tokens ? ask->max_tokens - drawn : 0;
    curve_of(lengths, ask, drawn, &curve);
    return rest_of(&curve);
}

double answer_length_likely(const struct answer_lengths *lengths, const struct answer_ask *ask,
                            uint32_t drawn, double least)
{
    bool known = is_fixed(ask, drawn) || answer_lengths_weight(lengths, ask) >= ANSWER_KNOWN;
    return known ? answer_length_rest(lengths, ask, drawn) : least;
}

enum status answer_lengths_create(size_t model_count, struct answer_lengths **out)
{
    struct answer_lengths *lengths = calloc(1, sizeof *lengths);
    if (!lengths)
        return STATUS_LIMIT;
    lengths->model_count = model_count;
    lengths->models = calloc(model_count, sizeof *lengths->models);
    if (!lengths->models) {
        free(lengths);
        return STATUS_LIMIT;
    }
    *out = lengths;
    return STATUS_OK;
}

void answer_lengths_destroy(struct answer_lengths *lengths)
{
    if (lengths)
        free(lengths->models);
    free(lengths);
}
