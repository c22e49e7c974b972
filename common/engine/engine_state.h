/* The part of an engine that every kind has, and the operations that each kind fills in. A kind
 * embeds struct engine as the first member of its own struct. Internal to this folder and its
 * sub-folders: engine.c and engine_step.c check what comes in, then call the kind. */
#ifndef BATON_ENGINE_ENGINE_STATE_H
#define BATON_ENGINE_ENGINE_STATE_H

#include "common/engine/engine.h"
#include "common/language/model_config/model_config.h"

struct engine_ops {
    void (*close)(struct engine *engine); /* frees it; it may be half open */
    /* config.max_rows is fewer now; no pool is attached. NULL: rows take no memory. */
    enum status (*keep_rows)(struct engine *engine, struct error *err);
    /* `pool`: config.block_count blocks of `layout`; NULL: the engine allocates them. Sets
     * pool_address if the host can read them. */
    enum status (*attach_pool)(struct engine *engine, void *pool);
    /* The sequences keep all limits that engine.h names, and a pool is attached. submit: NULL in a
     * kind that doesn't run ahead and does all in `wait`. */
    enum status (*submit)(struct engine *engine, struct engine_sequence *sequences, uint32_t count,
                          engine_ticket ticket, struct error *err);
    enum status (*wait)(struct engine *engine, engine_ticket ticket,
                        struct engine_sequence *sequences, uint32_t count, struct error *err);
    /* The ids are in range, and a pool is attached. */
    enum status (*move_block)(struct engine *engine, enum engine_move move, uint32_t from,
                              uint32_t to);
    enum status (*moves_done)(struct engine *engine);
    void (*interrupt)(struct engine *engine); /* NULL: no step sleeps */
    struct engine_limits (*measure_limits)(struct engine *engine);
    enum status (*watch_device)(struct engine *engine, uint32_t timeout_ms,
                                struct device_health *health); /* NULL: it has none */
    void (*profile_to)(struct engine *engine, struct kernels_profile *profile); /* NULL: can't */
};

struct engine {
    const struct engine_ops *ops;
    struct engine_config config; /* without its pointers, except `smaller` */
    struct model_config model;
    struct kv_layout layout;
    uint32_t context;
    size_t pool_bytes, slot_bytes, weight_bytes;
    bool has_pool;
    bool runs_ahead, feeds;  /* set by the kind when it opens; feeds: its device draws tokens */
    uint32_t in_flight;      /* steps */
    engine_ticket next;      /* the next step's */
    uint32_t samples;        /* the last submitted step's */
    uint64_t step_us;        /* the last ended step's time on the device; 0: not known */
    void *pool_address;      /* NULL: none yet, or not on the host */
    bool has_device_memory;  /* set by the kind when it opens */
    enum device device;      /* the same; AUTO: the kind has none */
    struct kv_copier copier; /* set by attach_pool if it makes a pool on a device, else zeroed */
    char *slots;             /* [swap_blocks] blocks on the host, the kind's own */
    struct engine_counters counters;
    uint64_t model_hash, numerics_id;
    char numerics_name[128];
    const char *isa;
};

/* Returns the most rows of a step that draw tokens. */
static inline uint32_t engine_most_samples(const struct engine_config *config)
{
    uint64_t samples = (uint64_t)config->max_sequences * (1 + (uint64_t)config->draft_tokens);
    return samples < config->max_rows ? (uint32_t)samples : config->max_rows;
}

/* For a kind that opens itself. `engine` is zeroed, with its ops and config. engine_read_model
 * reads the model's configuration and settles the context; engine_set_layout sets the layout and
 * the bytes of the pool and the slots. */
enum status engine_read_model(struct engine *engine, const char *model_dir,
                              struct error *err) WARN_UNUSED;
enum status engine_set_layout(struct engine *engine, const struct kv_layout *layout,
                              struct error *err) WARN_UNUSED;
/* Hashes the numbers of the model's configuration. */
uint64_t engine_hash_shape(const struct model_shape *shape, uint64_t hash);

#endif
