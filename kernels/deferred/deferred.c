/* The calls of a backend as items of its queues. Host memory is read when an item runs, not when it
 * is queued. Memory of a read-back holds READ_BACK_PENDING until then. */
#include "kernels/deferred/deferred.h"

#include <stdlib.h>
#include <string.h>

#define READ_BACK_PENDING 0xa5

/* --- structs of a call, with real addresses --- */

static struct linear real_linear(struct kernels *kernels, const struct linear *linear)
{
    struct linear found = *linear;
    found.packed = deferred_real(kernels, &linear->packed);
    return found;
}

static struct step_batch real_batch(struct kernels *kernels, const struct step_batch *batch)
{
    struct step_batch found = *batch;
    found.tokens = deferred_real(kernels, &batch->tokens);
    found.positions = deferred_real(kernels, &batch->positions);
    found.row_sequence = deferred_real(kernels, &batch->row_sequence);
    found.sequence_rows = deferred_real(kernels, &batch->sequence_rows);
    found.block_tables = deferred_real(kernels, &batch->block_tables);
    return found;
}

/* --- set-up --- */

static size_t deferred_available_bytes(const struct kernels *kernels)
{
    const struct deferred *self = kernels->state;
    return self->inner->backend->available_bytes(self->inner);
}

static size_t deferred_whole_bytes(const struct kernels *kernels)
{
    const struct deferred *self = kernels->state;
    return self->inner->backend->whole_bytes(self->inner);
}

static const char *deferred_isa(const struct kernels *kernels)
{
    const struct deferred *self = kernels->state;
    return self->inner->backend->isa(self->inner);
}

static uint32_t deferred_pass_rows(const struct kernels *kernels)
{
    const struct deferred *self = kernels->state;
    return self->inner->backend->pass_rows(self->inner);
}

static enum status run_load(struct kernels *inner, struct item *item)
{
    struct load *load = &item->load;
    return inner->backend->linear_load(inner, &load->linear, load->first_row, load->row_count,
                                       load->rows, load->scales);
}

static enum status deferred_linear_load(struct kernels *kernels, struct linear *linear,
                                        uint32_t first_row, uint32_t row_count, const void *rows,
                                        const float *scales)
{
    struct load load = {real_linear(kernels, linear), first_row, row_count, rows, scales};
    return deferred_push(kernels, KERNELS_STEPS,
                         &(struct item){.kind = TRANSFER, .run = run_load, .load = load});
}

static enum status run_host_work(struct kernels *inner, struct item *item)
{
    struct host_work *job = &item->host_work;
    inner->backend->work(inner, job->count, job->grain, job->work, job->context);
    return STATUS_OK;
}

static void deferred_work(struct kernels *kernels, uint32_t count, uint32_t grain,
                          kernels_work *work, void *context)
{
    deferred_call(kernels, &(struct item){.kind = CALL,
                                          .run = run_host_work,
                                          .host_work = {count, grain, work, context}});
}

static enum status run_measurement(struct kernels *inner, struct item *item)
{
    struct measurement *m = &item->measurement;
    if (m->peak)
        *m->peak = inner->backend->measure_peak(inner, m->type, m->instruction);
    else
        *m->read_ns = inner->backend->measure_read(inner, &m->memory);
    return STATUS_OK;
}

static double deferred_measure_peak(struct kernels *kernels, enum weight_type type,
                                    const char **instruction)
{
    double peak = 0;
    struct measurement measurement = {.type = type, .peak = &peak, .instruction = instruction};
    deferred_call(kernels,
                  &(struct item){.kind = CALL, .run = run_measurement, .measurement = measurement});
    return peak;
}

static uint64_t deferred_measure_read(struct kernels *kernels, const struct buffer *memory)
{
    uint64_t read_ns = 0;
    struct measurement measurement = {.memory = deferred_real(kernels, memory),
                                      .read_ns = &read_ns};
    deferred_call(kernels,
                  &(struct item){.kind = CALL, .run = run_measurement, .measurement = measurement});
    return read_ns;
}

/* --- transfers --- */

static enum status run_transfer(struct kernels *inner, struct item *item)
{
    (void)inner;
    memcpy(item->transfer.target, item->transfer.source, item->transfer.bytes);
    return STATUS_OK;
}

static enum status push_transfer(struct kernels *kernels, enum kernels_stream stream, void *target,
                                 const void *source, size_t bytes)
{
    return deferred_push(
        kernels, stream,
        &(struct item){.kind = TRANSFER, .run = run_transfer, .transfer = {target, source, bytes}});
}

static enum status deferred_upload(struct kernels *kernels, enum kernels_stream stream,
                                   struct buffer *target, size_t offset, const void *host,
                                   size_t bytes)
{
    struct buffer to = deferred_real(kernels, target);
    return push_transfer(kernels, stream, (char *)to.address + offset, host, bytes);
}

static enum status deferred_read_back(struct kernels *kernels, enum kernels_stream stream,
                                      const struct buffer *source, size_t offset, void *host,
                                      size_t bytes)
{
    struct buffer from = deferred_real(kernels, source);
    memset(host, READ_BACK_PENDING, bytes);
    return push_transfer(kernels, stream, host, (const char *)from.address + offset, bytes);
}

static enum status deferred_copy(struct kernels *kernels, enum kernels_stream stream,
                                 const struct buffer *source, size_t source_offset,
                                 struct buffer *target, size_t target_offset, size_t bytes)
{
    struct buffer from = deferred_real(kernels, source), to = deferred_real(kernels, target);
    return push_transfer(kernels, stream, (char *)to.address + target_offset,
                         (const char *)from.address + source_offset, bytes);
}

static enum status run_block_sums(struct kernels *inner, struct item *item)
{
    struct summing *summing = &item->summing;
    summing->job.blocks = summing->blocks;
    return inner->backend->block_sums(inner, &summing->pool, &summing->job, &summing->sums);
}

static enum status deferred_block_sums(struct kernels *kernels, const struct buffer *pool,
                                       const struct kv_sum_job *job, struct buffer *sums)
{
    struct item item = {.kind = TRANSFER,
                        .run = run_block_sums,
                        .summing = {.job = *job,
                                    .pool = deferred_real(kernels, pool),
                                    .sums = deferred_real(kernels, sums)}};
    memcpy(item.summing.blocks, job->blocks, job->count * sizeof *job->blocks);
    return deferred_push(kernels, KERNELS_TRANSFERS, &item);
}

/* --- operations --- */

static enum status push_operation(struct kernels *kernels, run_item *run, struct item item)
{
    item.kind = OPERATION;
    item.run = run;
    return deferred_push(kernels, KERNELS_STEPS, &item);
}

static enum status run_embed(struct kernels *inner, struct item *item)
{
    struct embed *op = &item->embed;
    return inner->backend->embed(inner, &op->batch, &op->embedding, &op->x);
}

static enum status deferred_embed(struct kernels *kernels, const struct step_batch *batch,
                                  const struct linear *embedding, struct buffer *x)
{
    struct embed op = {real_batch(kernels, batch), real_linear(kernels, embedding),
                       deferred_real(kernels, x)};
    return push_operation(kernels, run_embed, (struct item){.embed = op});
}

static enum status run_rmsnorm(struct kernels *inner, struct item *item)
{
    struct rmsnorm *op = &item->rmsnorm;
    return inner->backend->rmsnorm(inner, &op->x, &op->weight, op->eps,
                                   op->rows.address ? &op->rows : NULL, op->row_count, op->hidden,
                                   &op->out);
}

static enum status deferred_rmsnorm(struct kernels *kernels, const struct buffer *x,
                                    const struct buffer *weight, double eps,
                                    const struct buffer *rows, uint32_t row_count, uint32_t hidden,
                                    struct buffer *out)
{
    struct rmsnorm op = {.x = deferred_real(kernels, x),
                         .weight = deferred_real(kernels, weight),
                         .rows = rows ? deferred_real(kernels, rows) : (struct buffer){0},
                         .out = deferred_real(kernels, out),
                         .eps = eps,
                         .row_count = row_count,
                         .hidden = hidden};
    return push_operation(kernels, run_rmsnorm, (struct item){.rmsnorm = op});
}

static enum status run_linear(struct kernels *inner, struct item *item)
{
    struct product *op = &item->product;
    return inner->backend->linear(inner, &op->linear, &op->in, op->rows, op->accumulate, &op->out);
}

static enum status deferred_linear(struct kernels *kernels, const struct linear *linear,
                                   const struct buffer *in, uint32_t rows, bool accumulate,
                                   struct buffer *out)
{
    struct product op = {real_linear(kernels, linear), deferred_real(kernels, in),
                         deferred_real(kernels, out), rows, accumulate};
    return push_operation(kernels, run_linear, (struct item){.product = op});
}

static enum status run_rope_append(struct kernels *inner, struct item *item)
{
    struct attend *op = &item->attend;
    return inner->backend->rope_append(inner, &op->batch, &op->shape, &op->parameters, &op->layout,
                                       op->layer, &op->qkv, &op->pool);
}

static enum status deferred_rope_append(struct kernels *kernels, const struct step_batch *batch,
                                        const struct attention_shape *shape,
                                        const struct head_parameters *parameters,
                                        const struct kv_layout *layout, uint32_t layer,
                                        struct buffer *qkv, struct buffer *pool)
{
    const struct head_parameters *p = parameters;
    struct attend op = {.batch = real_batch(kernels, batch),
                        .shape = *shape,
                        .parameters = {deferred_real(kernels, &p->bias),
                                       deferred_real(kernels, &p->q_norm),
                                       deferred_real(kernels, &p->k_norm), p->norm_eps,
                                       deferred_real(kernels, &p->rope)},
                        .layout = *layout,
                        .layer = layer,
                        .qkv = deferred_real(kernels, qkv),
                        .pool = deferred_real(kernels, pool)};
    return push_operation(kernels, run_rope_append, (struct item){.attend = op});
}

static enum status run_attention(struct kernels *inner, struct item *item)
{
    struct attend *op = &item->attend;
    return inner->backend->attention(inner, &op->batch, &op->shape, &op->layout, op->layer,
                                     &op->qkv, &op->pool, &op->out);
}

static enum status deferred_attention(struct kernels *kernels, const struct step_batch *batch,
                                      const struct attention_shape *shape,
                                      const struct kv_layout *layout, uint32_t layer,
                                      const struct buffer *qkv, const struct buffer *pool,
                                      struct buffer *out)
{
    struct attend op = {.batch = real_batch(kernels, batch),
                        .shape = *shape,
                        .layout = *layout,
                        .layer = layer,
                        .qkv = deferred_real(kernels, qkv),
                        .pool = deferred_real(kernels, pool),
                        .out = deferred_real(kernels, out)};
    return push_operation(kernels, run_attention, (struct item){.attend = op});
}

static enum status run_swiglu(struct kernels *inner, struct item *item)
{
    struct swiglu *op = &item->swiglu;
    return inner->backend->swiglu(inner, &op->gate_up, op->rows, op->ffn, &op->out);
}

static enum status deferred_swiglu(struct kernels *kernels, const struct buffer *gate_up,
                                   uint32_t rows, uint32_t ffn, struct buffer *out)
{
    struct swiglu op = {deferred_real(kernels, gate_up), deferred_real(kernels, out), rows, ffn};
    return push_operation(kernels, run_swiglu, (struct item){.swiglu = op});
}

static enum status run_sample(struct kernels *inner, struct item *item)
{
    struct sample *op = &item->sample;
    return inner->backend->sample(inner, &op->logits, op->rows, op->vocab, &op->draws, &op->scratch,
                                  &op->drawn);
}

static enum status deferred_sample(struct kernels *kernels, const struct buffer *logits,
                                   uint32_t rows, uint32_t vocab, const struct buffer *draws,
                                   struct buffer *scratch, struct buffer *drawn)
{
    struct sample op = {.logits = deferred_real(kernels, logits),
                        .draws = deferred_real(kernels, draws),
                        .scratch = deferred_real(kernels, scratch),
                        .drawn = deferred_real(kernels, drawn),
                        .rows = rows,
                        .vocab = vocab};
    return push_operation(kernels, run_sample, (struct item){.sample = op});
}

static enum status run_take_tokens(struct kernels *inner, struct item *item)
{
    struct feed *op = &item->feed;
    return inner->backend->take_tokens(inner, &op->from, op->rows, &op->drawn, &op->tokens);
}

static enum status deferred_take_tokens(struct kernels *kernels, const struct buffer *from,
                                        uint32_t rows, const struct buffer *drawn,
                                        struct buffer *tokens)
{
    struct feed op = {deferred_real(kernels, from), deferred_real(kernels, drawn),
                      deferred_real(kernels, tokens), rows};
    return push_operation(kernels, run_take_tokens, (struct item){.feed = op});
}

/* --- opening and closing --- */

static void deferred_close(struct kernels *kernels)
{
    struct deferred *self = kernels->state;
    struct kernels *inner = self->inner;
    deferred_stop(self);
    free(self->ranges);
    free(self);
    kernels_close(inner);
}

static struct kernels_backend table_around(const struct kernels_backend *inner)
{
    struct kernels_backend table = *inner;
    table.device_is_host = false;
    table.queues = &deferred_queues;
    table.close = deferred_close;
    table.isa = deferred_isa;
    table.pass_rows = deferred_pass_rows;
    table.available_bytes = deferred_available_bytes;
    table.whole_bytes = deferred_whole_bytes;
    table.alloc = deferred_alloc;
    table.free = deferred_free;
    table.adopt = deferred_adopt;
    table.linear_load = deferred_linear_load;
    table.work = deferred_work;
    table.upload = deferred_upload;
    table.read_back = deferred_read_back;
    table.copy = deferred_copy;
    table.block_sums = deferred_block_sums;
    table.sync = deferred_sync;
    table.embed = deferred_embed;
    table.rmsnorm = deferred_rmsnorm;
    table.linear = deferred_linear;
    table.rope_append = deferred_rope_append;
    table.attention = deferred_attention;
    table.swiglu = deferred_swiglu;
    table.sample = deferred_sample;
    table.take_tokens = deferred_take_tokens;
    table.measure_peak = deferred_measure_peak;
    table.measure_read = deferred_measure_read;
    return table;
}

enum status kernels_defer(struct kernels *inner, bool late, struct kernels **out, struct error *err)
{
    struct kernels *kernels = calloc(1, sizeof *kernels);
    struct deferred *self = calloc(1, sizeof *self);
    if (!kernels || !self) {
        free(self);
        goto fail;
    }
    *self = (struct deferred){.table = table_around(inner->backend), .inner = inner, .late = late};
    if (deferred_start(self)) {
        kernels->backend = &self->table;
        kernels->device = late ? DEVICE_DEFERRED_LATE : DEVICE_DEFERRED;
        kernels->threads = inner->threads;
        kernels->state = self;
        *out = kernels;
        return STATUS_OK;
    }
    deferred_stop(self);
    free(self);
fail:
    free(kernels);
    return error_set(err, STATUS_LIMIT, "no memory or threads for the queues of a device");
}
