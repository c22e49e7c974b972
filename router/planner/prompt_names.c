#include "router/planner/prompt_names.h"

#include <stdlib.h>

static bool is_for(const struct prefix_names *names, uint64_t model_hash, uint64_t numerics_id,
                   uint32_t block_tokens)
{
    return names->model_hash == model_hash && names->numerics_id == numerics_id &&
           names->block_tokens == block_tokens;
}

/* Writes the names of the blocks. Returns false without memory. */
static bool name_blocks(struct prefix_names *names, const struct prompt_text *prompt)
{
    uint32_t block_tokens = names->block_tokens, count = prompt->count / block_tokens;
    names->count = count < PREFIX_MAX_NAMES ? count : PREFIX_MAX_NAMES;
    names->match_count = (prompt->count - 1) / block_tokens;
    if (names->match_count > names->count)
        names->match_count = names->count;
    struct prefix_hash *items = malloc((names->count + 1) * sizeof *items);
    if (!items)
        return false;
    struct prefix_hash hash =
        prefix_hash_root(names->model_hash, names->numerics_id, prompt->salt, prompt->salt_bytes);
    for (uint32_t i = 0; i < names->count; i++) {
        hash = prefix_hash_block(hash, prompt->tokens + (size_t)i * block_tokens, block_tokens);
        items[i] = hash;
    }
    names->names = items;
    return true;
}

/* Adds the names that one kind's workers of these numerics have. */
static void add_names(struct prompt_names *names, const struct prompt_text *prompt,
                      const struct candidate_kind *kind, uint64_t numerics_id)
{
    size_t at = 0;
    while (at < names->count &&
           !is_for(&names->kinds[at], kind->model_hash, numerics_id, kind->block_tokens))
        at++;
    if (at < names->count || at == PREFIX_MAX_KINDS || !kind->block_tokens)
        return;
    names->kinds[at] = (struct prefix_names){.model_hash = kind->model_hash,
                                             .numerics_id = numerics_id,
                                             .block_tokens = kind->block_tokens};
    names->count += name_blocks(&names->kinds[at], prompt);
}

void prompt_names_update(struct prompt_names *names, const struct prompt_text *prompt,
                         const struct candidate_pool *pool)
{
    for (size_t i = 0; i < pool->kind_count && prompt->count; i++)
        for (uint32_t own = 0; own < pool->kinds[i]->own_count; own++)
            add_names(names, prompt, pool->kinds[i], pool->kinds[i]->own_numerics[own]);
}

void prompt_names_deinit(struct prompt_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free((void *)names->kinds[i].names);
    names->count = 0;
}

const struct prefix_names *prefix_names_for(const struct prefix_names *kinds, size_t kind_count,
                                            const struct route_worker *worker)
{
    for (size_t i = 0; i < kind_count; i++)
        if (is_for(&kinds[i], worker->model_hash, route_worker_names(worker), worker->block_tokens))
            return &kinds[i];
    return NULL;
}
