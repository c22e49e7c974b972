#include "tests/equality/cells.h"

#include "common/base/rng.h"
#include "common/engine/engine_choices.h"
#include "common/engine/model/weight_types.h"

#include <stdio.h>
#include <string.h>

#define TRIES 100 /* tries for each cell of a covering array */

struct value {
    const char *name;
    uint32_t number;
};

static const struct {
    const char *name;
    uint32_t count;
    struct value values[AXIS_MAX_VALUES];
} axes[AXES] = {
    [AXIS_BATCH] = {"batch", 4, {{"1", 1}, {"3", 3}, {"16", 16}, {"64", 64}}},
    [AXIS_CHUNK] = {"chunk", 4, {{"16", 16}, {"64", 64}, {"512", 512}, {"whole", 2048}}},
    [AXIS_PREFIX] = {"prefix", 2, {{"miss", 0}, {"hit", 1}}},
    [AXIS_PREEMPTED] = {"preempted",
                        3,
                        {{"never", PREEMPTED_NEVER},
                         {"swap", PREEMPTED_SWAP},
                         {"recompute", PREEMPTED_RECOMPUTE}}},
    [AXIS_PREFILL] = {"prefill", 2, {{"local", 0}, {"remote", 1}}},
    [AXIS_THREADS] = {"threads", 2, {{"1", 1}, {"2", 2}}},
    [AXIS_WEIGHTS] = {"weights", 2, {{"bf16", WEIGHTS_AUTO}, {"int8", WEIGHTS_INT8}}},
    [AXIS_KV] = {"kv", 2, {{"bf16", KV_CHOICE_AUTO}, {"int8", KV_CHOICE_INT8}}},
    [AXIS_DRAFTS] = {"drafts", 2, {{"none", 0}, {"4", 4}}},
};

uint32_t cell_number(const struct cell *cell, enum axis axis)
{
    return axes[axis].values[cell->value[axis]].number;
}

void cell_name(const struct cell *cell, char *text, size_t size)
{
    size_t used = 0;
    for (int a = 0; a < AXES && used < size; a++)
        used += (size_t)snprintf(text + used, size - used, "%s%s %s", a ? ", " : "", axes[a].name,
                                 axes[a].values[cell->value[a]].name);
}

uint32_t cells_whole(struct cell *cells)
{
    uint32_t count = 1;
    cells[0] = (struct cell){0};
    for (int a = 0; a < AXES; a++) {
        uint32_t before = count;
        for (uint32_t value = 1; value < axes[a].count; value++)
            for (uint32_t i = 0; i < before; i++) {
                cells[count] = cells[i];
                cells[count++].value[a] = (uint8_t)value;
            }
    }
    return count;
}

/* Pairs that have met; the lower axis first. */
struct pairs {
    bool met[AXES][AXIS_MAX_VALUES][AXES][AXIS_MAX_VALUES];
};

static void meet(struct pairs *pairs, const struct cell *cell)
{
    for (int a = 0; a < AXES; a++)
        for (int b = a + 1; b < AXES; b++)
            pairs->met[a][cell->value[a]][b][cell->value[b]] = true;
}

struct pair {
    int a, b;
    uint8_t a_value, b_value;
};

/* All that have not met; `missing`: room for each pair of values. Returns how many. */
static uint32_t list_missing(const struct pairs *pairs, struct pair *missing)
{
    uint32_t count = 0;
    for (int a = 0; a < AXES; a++)
        for (int b = a + 1; b < AXES; b++)
            for (uint8_t i = 0; i < axes[a].count; i++)
                for (uint8_t j = 0; j < axes[b].count; j++)
                    if (!pairs->met[a][i][b][j])
                        missing[count++] = (struct pair){a, b, i, j};
    return count;
}

/* New pairs that the value would make with the axes that are chosen already. */
static uint32_t gain_of(const struct pairs *pairs, const struct cell *cell, const bool *chosen,
                        int axis, uint8_t value)
{
    uint32_t gain = 0;
    for (int other = 0; other < AXES; other++) {
        if (other == axis || !chosen[other])
            continue;
        gain += other < axis ? !pairs->met[other][cell->value[other]][axis][value]
                             : !pairs->met[axis][value][other][cell->value[other]];
    }
    return gain;
}

/* A cell with this pair, the other axes in random order, each with the value that gains most.
 * Returns the gain of all. */
static uint32_t complete(const struct pairs *pairs, const struct pair *pair, struct rng *rng,
                         struct cell *cell)
{
    bool chosen[AXES] = {false};
    cell->value[pair->a] = pair->a_value;
    cell->value[pair->b] = pair->b_value;
    chosen[pair->a] = chosen[pair->b] = true;
    uint32_t gain = 1;
    for (int left = AXES - 2; left > 0; left--) {
        int axis = -1;
        for (int skip = (int)rng_below(rng, (uint32_t)left); skip >= 0; skip--)
            while (chosen[++axis])
                ;
        uint32_t best = 0, first = (uint32_t)rng_below(rng, axes[axis].count);
        for (uint32_t i = 0; i < axes[axis].count; i++) {
            uint8_t value = (uint8_t)((first + i) % axes[axis].count);
            uint32_t here = gain_of(pairs, cell, chosen, axis, value);
            if (i == 0 || here > best) {
                best = here;
                cell->value[axis] = value;
            }
        }
        gain += best;
        chosen[axis] = true;
    }
    return gain;
}

enum { PAIRS_MAX = AXES * AXES * AXIS_MAX_VALUES * AXIS_MAX_VALUES };

uint32_t cells_pairwise(uint64_t seed, struct cell *cells)
{
    static struct pair missing[PAIRS_MAX];
    struct pairs pairs = {0};
    struct rng rng = rng_seeded(seed);
    uint32_t count = 0;
    for (uint32_t left; (left = list_missing(&pairs, missing)); count++) {
        uint32_t best = 0;
        for (int i = 0; i < TRIES; i++) {
            struct cell cell = {0};
            uint32_t gain = complete(&pairs, &missing[rng_below(&rng, left)], &rng, &cell);
            if (gain > best) {
                best = gain;
                cells[count] = cell;
            }
        }
        meet(&pairs, &cells[count]);
    }
    return count;
}

bool cells_miss_a_pair(const struct cell *cells, uint32_t count, char *text, size_t size)
{
    for (int a = 0; a < AXES; a++)
        for (int b = a + 1; b < AXES; b++)
            for (uint32_t i = 0; i < axes[a].count; i++)
                for (uint32_t j = 0; j < axes[b].count; j++) {
                    uint32_t c = 0;
                    while (c < count && (cells[c].value[a] != i || cells[c].value[b] != j))
                        c++;
                    if (c < count)
                        continue;
                    snprintf(text, size, "%s %s with %s %s", axes[a].name, axes[a].values[i].name,
                             axes[b].name, axes[b].values[j].name);
                    return true;
                }
    return false;
}
