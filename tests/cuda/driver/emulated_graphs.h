/* Inside libcuda-emulated.so: queues, which emulated_driver.c runs under its lock, and graphs, made
 * of launches that are captured (emulated_graphs.c). */
#ifndef BATON_TESTS_CUDA_DRIVER_EMULATED_GRAPHS_H
#define BATON_TESTS_CUDA_DRIVER_EMULATED_GRAPHS_H

#include "kernels/cuda/driver.h"
#include "kernels/cuda/launch.h"
#include "tests/cuda/driver/emulated_driver.h"

struct item {
    enum { COPY, FILL, LAUNCH, GRAPH, MARK, WAIT, CALL } kind;
    void *target;
    const void *source;
    size_t bytes;
    unsigned char byte;
    struct cuda_event *event;          /* MARK */
    void (*call)(void *);              /* CALL */
    void *context;                     /* CALL */
    struct cuda_stream_handle *before; /* WAIT: until it has done `number` items */
    uint64_t number;
    struct cuda_launch launch;
    struct emulated_start *start;  /* LAUNCH: it has begun */
    struct cuda_graph_exec *graph; /* GRAPH */
};

struct cuda_graph {
    struct item *nodes; /* launches, one behind the other */
    size_t count, room;
};

struct cuda_graph_exec {
    struct cuda_graph graph;
    size_t bytes;
    uint64_t queued; /* launches that haven't run */
};

struct cuda_stream_handle {
    struct item *items; /* [QUEUE_ITEMS] */
    uint64_t queued, done, marks;
    int index;
    bool yields;                 /* its priority is the least */
    struct cuda_graph *captured; /* NULL: no capture is under way */
    bool capture_ends;           /* a call that can't be captured has come */
};

/* Settings of graphs: so many can be made, then `result`. kib: memory of each launch. */
struct graph_limits {
    long most, result, kib;
};
extern struct graph_limits graph_limits;
extern struct emulated_calls calls;
__attribute__((visibility("default"))) struct emulated_calls emulated_calls(void);

/* emulated_driver.c. enter_queue: emulated_enter for a call that no capture takes. pushed: runs the
 * item, except in a late queue, and leaves. */
int emulated_enter_queue(struct cuda_stream_handle *stream);
struct item *emulated_push(struct cuda_stream_handle *stream);
int emulated_pushed(struct cuda_stream_handle *stream);
/* Runs the first of `count` launches that lie side by side; none once the context has failed. */
void emulated_launch(struct item *const *items, uint32_t count);

/* emulated_graphs.c */
struct item *graph_add(struct cuda_graph *graph); /* NULL: no memory */
void graph_run(struct cuda_graph_exec *exec);

#endif
