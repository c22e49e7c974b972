#include "tests/cuda/driver/emulated_graphs.h"
#include "tests/cuda/driver/emulated_memory.h"
#include "tests/cuda/emulate/emulate.h"

#include <stdlib.h>
#include <string.h>

struct graph_limits graph_limits;

struct item *graph_add(struct cuda_graph *graph)
{
    if (graph->count == graph->room) {
        size_t room = 2 * graph->room + 64;
        struct item *more = realloc(graph->nodes, room * sizeof *more);
        if (!more)
            return NULL;
        graph->nodes = more;
        graph->room = room;
    }
    return &graph->nodes[graph->count++];
}

void graph_run(struct cuda_graph_exec *exec)
{
    for (size_t i = 0; i < exec->graph.count; i++) {
        struct item *side[EMULATE_AT_ONCE];
        uint32_t count = 0;
        for (; count < EMULATE_AT_ONCE && i + count < exec->graph.count; count++)
            side[count] = &exec->graph.nodes[i + count];
        emulated_launch(side, count);
        side[0]->start = NULL;
    }
    exec->queued--;
}

int cuStreamBeginCapture_v2(struct cuda_stream_handle *stream, int mode)
{
    int result = emulated_enter_queue(stream);
    if (result != CUDA_OK)
        return result;
    if (mode != CUDA_CAPTURE_RELAXED)
        return emulated_leave(CUDA_INVALID_VALUE);
    stream->captured = calloc(1, sizeof *stream->captured);
    stream->capture_ends = false;
    return emulated_leave(stream->captured ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

int cuStreamEndCapture(struct cuda_stream_handle *stream, struct cuda_graph **graph)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    if (!stream->captured)
        return emulated_leave(CUDA_INVALID_VALUE);
    *graph = stream->captured;
    stream->captured = NULL;
    if (!stream->capture_ends)
        return emulated_leave(CUDA_OK);
    free((*graph)->nodes);
    free(*graph);
    *graph = NULL;
    return emulated_leave(CUDA_CAPTURE_INVALIDATED);
}

int cuGraphInstantiateWithFlags(struct cuda_graph_exec **made, struct cuda_graph *graph,
                                unsigned long long flags)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    size_t bytes = graph->count * (size_t)graph_limits.kib << 10;
    struct cuda_graph_exec *exec = calloc(1, sizeof *exec);
    struct item *nodes = malloc((graph->count + 1) * sizeof *nodes);
    bool refused = flags || calls.graphs_now >= (uint64_t)graph_limits.most;
    if (!exec || !nodes || refused || !memory_hold(bytes)) {
        free(nodes);
        free(exec);
        return emulated_leave(flags     ? CUDA_INVALID_VALUE
                              : refused ? (int)graph_limits.result
                                        : CUDA_OUT_OF_MEMORY);
    }
    memcpy(nodes, graph->nodes, graph->count * sizeof *nodes);
    *exec =
        (struct cuda_graph_exec){.graph = {.nodes = nodes, .count = graph->count}, .bytes = bytes};
    calls.graphs_now++;
    calls.graph_bytes += bytes;
    calls.graphs++;
    *made = exec;
    return emulated_leave(CUDA_OK);
}

int cuGraphUpload(struct cuda_graph_exec *exec, struct cuda_stream_handle *stream)
{
    int result = emulated_enter_queue(stream);
    return result == CUDA_OK ? emulated_leave(exec ? CUDA_OK : CUDA_INVALID_VALUE) : result;
}

int cuGraphLaunch(struct cuda_graph_exec *exec, struct cuda_stream_handle *stream)
{
    int result = emulated_enter_queue(stream);
    if (result != CUDA_OK)
        return result;
    calls.graph_launches++;
    exec->queued++;
    struct item *item = emulated_push(stream);
    item->kind = GRAPH;
    item->graph = exec;
    return emulated_pushed(stream);
}

int cuGraphDestroy(struct cuda_graph *graph)
{
    free(graph->nodes);
    free(graph);
    return CUDA_OK;
}

/* Nothing of it may be queued: stricter than a device. */
int cuGraphExecDestroy(struct cuda_graph_exec *exec)
{
    int result = emulated_enter();
    if (result == CUDA_OK && exec->queued)
        return emulated_leave(CUDA_INVALID_VALUE);
    if (result == CUDA_OK) {
        memory_let_go(exec->bytes);
        calls.graph_bytes -= exec->bytes;
        calls.graphs_now--;
        result = emulated_leave(CUDA_OK);
    }
    free(exec->graph.nodes);
    free(exec);
    return result;
}
