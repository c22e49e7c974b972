/* Passes as CUDA graphs. The stream of KERNELS_STEPS is captured while operations launch into it: a
 * graph has the same launches, parameters and attributes as steps without one, so that both give
 * the same bits. The capture makes a programmatic edge of each launch that may start early. */
#include "kernels/cuda/cuda.h"

#include "common/base/assert.h"

static struct cuda_stream_handle *steps_of(const struct cuda *self)
{
    return self->streams[KERNELS_STEPS].handle;
}

static enum status begin_pass(struct kernels *kernels)
{
    struct cuda *self = kernels->state;
    TRY(cuda_enter(self));
    return cuda_check(self, self->driver.capture_begin(steps_of(self), CUDA_CAPTURE_RELAXED),
                      "cuStreamBeginCapture");
}

/* Makes the graph ready to run. An upload now saves the first launch from it. */
static enum status make_ready(struct cuda *self, struct cuda_graph *graph,
                              struct cuda_graph_exec **made)
{
    struct cuda_graph_exec *exec = NULL;
    TRY(cuda_check(self, self->driver.graph_instantiate(&exec, graph, 0),
                   "cuGraphInstantiateWithFlags"));
    int result = self->driver.graph_upload(exec, steps_of(self));
    if (result == CUDA_OK)
        result = self->driver.stream_sync(steps_of(self));
    enum status status = cuda_check(self, result, "cuGraphUpload");
    if (status != STATUS_OK)
        (void)self->driver.graph_exec_destroy(exec);
    else
        *made = exec;
    return status;
}

/* All free bytes of the device: a graph may take of those that cuda_available_bytes holds back. */
static size_t free_bytes(struct cuda *self)
{
    size_t free = 0, total;
    return cuda_check(self, self->driver.memory_info(&free, &total), "cuMemGetInfo") == STATUS_OK
               ? free
               : 0;
}

static enum status end_pass(struct kernels *kernels, uint32_t pass, size_t most_bytes,
                            size_t *bytes)
{
    struct cuda *self = kernels->state;
    struct cuda_graph *graph = NULL;
    TRY(cuda_enter(self));
    TRY(cuda_check(self, self->driver.capture_end(steps_of(self), &graph), "cuStreamEndCapture"));
    enum status status = STATUS_OK;
    if (pass != KERNELS_NO_PASS) {
        ASSERT(!self->passes[pass]);
        size_t before = free_bytes(self);
        status = make_ready(self, graph, &self->passes[pass]);
        size_t after = free_bytes(self);
        size_t took = after < before ? before - after : 0; /* others may free memory meanwhile */
        if (status == STATUS_OK && took > most_bytes) {
            (void)self->driver.graph_exec_destroy(self->passes[pass]);
            self->passes[pass] = NULL;
            status = STATUS_LIMIT;
        }
        if (status == STATUS_OK)
            *bytes = took;
    }
    (void)self->driver.graph_destroy(graph);
    return status;
}

static enum status run_pass(struct kernels *kernels, uint32_t pass)
{
    struct cuda *self = kernels->state;
    ASSERT(self->passes[pass]);
    TRY(cuda_enter(self));
    return cuda_check(self, self->driver.graph_launch(self->passes[pass], steps_of(self)),
                      "cuGraphLaunch");
}

void cuda_passes_deinit(struct cuda *self)
{
    for (uint32_t i = 0; i < KERNELS_MAX_PASSES; i++)
        if (self->passes[i])
            (void)self->driver.graph_exec_destroy(self->passes[i]);
}

const struct kernels_passes cuda_passes = {.begin = begin_pass, .end = end_pass, .run = run_pass};
