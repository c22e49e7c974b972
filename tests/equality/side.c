#include "tests/equality/side.h"

#include "common/base/clock.h"
#include "tests/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WAIT_US   120000000
#define MAX_READS 4

/* BATON_EQUALITY_ISA names another instruction set than the best one here. */
static enum isa chosen_isa(void)
{
    const char *name = getenv("BATON_EQUALITY_ISA");
    for (int i = 0; name && isa_names[i]; i++)
        if (strcmp(name, isa_names[i]) == 0)
            return (enum isa)i;
    if (name)
        fail_msg("BATON_EQUALITY_ISA is %s, which is no instruction set", name);
    return ISA_AUTO;
}

static void open_engine(struct side *side, const struct side_config *config)
{
    struct error err = {""};
    struct engine_config engine = {
        .model_dir = config->model,
        .weights = config->weights,
        .kv = config->kv,
        .kernels = {.device = test_device(), .threads = config->threads, .isa = chosen_isa()},
        .block_tokens = SIDE_BLOCK_TOKENS,
        .block_count = config->blocks,
        .swap_blocks = config->swap_blocks,
        .max_rows = config->chunk + config->sequences,
        .max_sequences = config->sequences,
        .draft_tokens = config->draft_tokens,
        .context_limit = config->context};
    if (engine_open(&engine, &side->engine, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    struct kv_transport_config transport = {.kind = KV_TRANSPORT_LOCAL,
                                            .pool_bytes = engine_pool_bytes(side->engine),
                                            .max_reads = MAX_READS};
    if (kv_transport_open(&transport, &side->transport, &err) != STATUS_OK ||
        engine_attach_pool(side->engine, kv_transport_pool(side->transport), &err) != STATUS_OK)
        fail_msg("%s", err.text);
    memset(kv_transport_pool(side->transport), 0xff, transport.pool_bytes);
}

/* Swapping looks cheap to it, whatever this machine takes for a row. */
static struct cost_model swap_if_possible(void)
{
    struct cost_model cost = cost_model_default();
    cost.prefill_row_us = 1e6;
    cost.swap_bytes_per_us = 1e9;
    return cost;
}

void side_open(struct side *side, const struct side_config *config)
{
    *side = (struct side){.blocks = config->blocks};
    open_engine(side, config);
    struct step_loop_config loop = {.engine = side->engine,
                                    .chunk_tokens = config->chunk,
                                    .max_sequences = config->sequences,
                                    .block_count = config->blocks,
                                    .swap_blocks = config->swap_blocks,
                                    .grow = true,
                                    .prefix_cache = config->prefix_cache,
                                    .draft_tokens = config->draft_tokens,
                                    .drafter = config->drafter,
                                    .drafter_context = config->drafter_context,
                                    .cost = swap_if_possible(),
                                    .cpu = -1};
    watch_begin(&side->watch, side->engine, config->threads);
    struct error err = {""};
    if (step_loop_start(&loop, &side->loop, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < STEP_LOOP_EVENTS - SIDE_LEAD; i++) {
        step_loop_remove(side->loop, (struct sequence_key){UINT64_MAX, i});
        side->kept[i] = side_next(side);
        assert_int_equal(side->kept[i]->kind, STEP_REMOVED);
    }
}

void side_close(struct side *side)
{
    if (!side->loop)
        return;
    for (uint32_t i = 0; i < STEP_LOOP_EVENTS - SIDE_LEAD; i++)
        step_loop_recycle(side->loop, side->kept[i]);
    step_loop_stop(side->loop);
    watch_end(&side->watch);
    engine_close(side->engine);
    kv_transport_close(side->transport);
}

void side_add(struct side *side, const struct sequence_spec *spec)
{
    assert_int_equal(step_loop_add(side->loop, spec), STATUS_OK);
}

struct step_event *side_next(struct side *side)
{
    struct step_event *event = ring_wait(step_loop_events(side->loop), WAIT_US);
    assert_non_null(event);
    return event;
}

size_t side_block_bytes(const struct side *side)
{
    return kv_layout_block_bytes(engine_layout(side->engine));
}

void *side_block(const struct side *side, uint32_t id)
{
    return (char *)kv_transport_pool(side->transport) + id * side_block_bytes(side);
}

uint32_t side_blocks(const struct side *side, enum kv_block_state state)
{
    return atomic_load(&step_loop_load(side->loop)->blocks[state]);
}

void side_read(struct side *side, struct side *source, const uint32_t *to, const uint32_t *from,
               uint32_t count)
{
    static struct kv_admission admission;
    static struct kv_read_run runs[KV_TRANSPORT_MAX_RUNS];
    struct kv_peer *peer;
    struct error err = {""};
    size_t bytes = side_block_bytes(side);
    if (kv_transport_admit(source->transport, &admission, &err) != STATUS_OK ||
        kv_transport_pair(side->transport, admission.address, admission.bytes, &peer, &err) !=
            STATUS_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < count; i++)
        runs[i] = (struct kv_read_run){from[i] * bytes, to[i] * bytes, bytes, 0};
    assert_int_equal(kv_transport_read(side->transport, peer, runs, count, UINT64_MAX, 1),
                     STATUS_OK);
    struct kv_event event = {0};
    while (kv_transport_poll(side->transport, clock_now_us(), &event, 1) == 0)
        ;
    assert_int_equal(event.kind, KV_EVENT_READ_DONE);
    assert_int_equal(event.status, STATUS_OK);
    kv_transport_unpair(side->transport, peer);
    while (kv_transport_poll(side->transport, clock_now_us(), &event, 1) == 0)
        ;
    assert_int_equal(event.kind, KV_EVENT_PEER_CLOSED);
    kv_transport_revoke(source->transport, admission.id);
}
