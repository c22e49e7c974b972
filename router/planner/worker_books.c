#include "router/planner/worker_books.h"

#include <math.h>

#define LEAST_US 500.0

uint8_t books_time_bucket(double us)
{
    if (!(us > LEAST_US))
        return 0;
    double bucket = 1 + floor(log2(us / LEAST_US) * BOOKS_AN_OCTAVE);
    return bucket < BOOKS_TIMES - 1 ? (uint8_t)bucket : BOOKS_TIMES - 1;
}

double books_time_us(unsigned bucket)
{
    return LEAST_US * exp2((bucket - 0.5) / BOOKS_AN_OCTAVE);
}

unsigned books_next(const uint64_t set[BOOKS_WORDS], unsigned bucket)
{
    for (unsigned word = bucket / 64; word < BOOKS_WORDS; word++) {
        uint64_t rest = set[word];
        if (word == bucket / 64)
            rest &= UINT64_MAX << bucket % 64;
        if (rest)
            return word * 64 + (unsigned)__builtin_ctzll(rest);
    }
    return BOOKS_TIMES;
}

static void note(uint64_t set[BOOKS_WORDS], unsigned bucket, uint32_t weight)
{
    uint64_t bit = UINT64_C(1) << bucket % 64;
    set[bucket / 64] = weight ? set[bucket / 64] | bit : set[bucket / 64] & ~bit;
}

uint8_t books_length_bucket(uint64_t tokens)
{
    uint8_t bucket = 0;
    while (bucket + 1 < BOOKS_LENGTHS && tokens >> (bucket + 1))
        bucket++;
    return bucket;
}

bool books_parts_equal(const struct books_part *a, const struct books_part *b)
{
    return a->priority == b->priority && a->prefill == b->prefill && a->drawing == b->drawing &&
           a->coming == b->coming && a->slack == b->slack && a->tolerance == b->tolerance &&
           a->left == b->left && a->slack_weight == b->slack_weight &&
           a->tolerance_weight == b->tolerance_weight && a->rows == b->rows &&
           a->positions == b->positions && a->context == b->context &&
           a->held_tokens == b->held_tokens && a->promised_tokens == b->promised_tokens &&
           a->variance == b->variance && a->moving_tokens == b->moving_tokens;
}

void worker_books_add(struct worker_books *books, const struct books_part *part)
{
    struct books_prefill *prefill = &books->prefill[part->priority];
    prefill->requests += part->prefill;
    books->prompts += part->prefill;
    prefill->rows += part->rows;
    prefill->positions += part->positions;
    prefill->slack[part->slack] += part->slack_weight;
    note(prefill->slack_set, part->slack, prefill->slack[part->slack]);
    books->tolerance[part->tolerance] += part->tolerance_weight;
    note(books->tolerance_set, part->tolerance, books->tolerance[part->tolerance]);
    if (part->drawing) {
        books->drawing.rows++;
        books->drawing.context += part->context;
        books->left[part->left].rows++;
        books->left_set |= UINT32_C(1) << part->left;
        books->left[part->left].context += part->context;
    } else if (part->coming) {
        books->coming.rows++;
        books->coming.context += part->context;
    }
    books->held_tokens += part->held_tokens;
    books->promised_tokens += part->promised_tokens;
    books->variance += part->variance;
    books->moving_tokens += part->moving_tokens;
}

void worker_books_take(struct worker_books *books, const struct books_part *part)
{
    struct books_prefill *prefill = &books->prefill[part->priority];
    prefill->requests -= part->prefill;
    books->prompts -= part->prefill;
    prefill->rows -= part->rows;
    prefill->positions -= part->positions;
    prefill->slack[part->slack] -= part->slack_weight;
    note(prefill->slack_set, part->slack, prefill->slack[part->slack]);
    books->tolerance[part->tolerance] -= part->tolerance_weight;
    note(books->tolerance_set, part->tolerance, books->tolerance[part->tolerance]);
    if (part->drawing) {
        books->drawing.rows--;
        books->drawing.context -= part->context;
        books->left[part->left].rows--;
        books->left[part->left].context -= part->context;
        if (!books->left[part->left].rows)
            books->left_set &= ~(UINT32_C(1) << part->left);
    } else if (part->coming) {
        books->coming.rows--;
        books->coming.context -= part->context;
    }
    books->held_tokens -= part->held_tokens;
    books->promised_tokens -= part->promised_tokens;
    books->variance -= part->variance;
    books->moving_tokens -= part->moving_tokens;
}

/* Returns the limits of a bucket of lengths. */
static void length_limits(int bucket, double *low, double *high)
{
    *low = bucket ? exp2(bucket) : 0;
    *high = exp2(bucket + 1);
}

void worker_books_after(const struct worker_books *books, double steps, double *rows,
                        double *context)
{
    *rows = *context = 0;
    for (uint32_t set = books->left_set; set; set &= set - 1) {
        int i = __builtin_ctz(set);
        const struct books_rows *here = &books->left[i];
        double low, high;
        length_limits(i, &low, &high);
        double stays = steps <= low ? 1 : steps >= high ? 0 : (high - steps) / (high - low);
        *rows += stays * here->rows;
        *context += stays * ((double)here->context + steps * here->rows);
    }
}

double worker_books_mean_left(const struct worker_books *books)
{
    double tokens = 0;
    for (uint32_t set = books->left_set; set; set &= set - 1) {
        int i = __builtin_ctz(set);
        double low, high;
        length_limits(i, &low, &high);
        tokens += (low + high) / 2 * books->left[i].rows;
    }
    return books->drawing.rows ? tokens / books->drawing.rows : 0;
}
