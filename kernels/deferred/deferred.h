/* Inside kernels/deferred: its queues (queues.c), its memory (memory.c), and the items that
 * deferred.c makes of calls.
 *
 * Device memory is an address range without access rights, so that any touch by the host is a
 * SIGSEGV. Each range stands for memory of the wrapped backend, which queued work alone is given.
 * Adopted memory stays the host's own.
 *
 * Each stream is a bounded queue and a thread that takes its items one by one. An item holds the
 * call's structs, with real addresses. With `late` a stream stands still until the host asks for an
 * event, or the queue is full. Every second event of KERNELS_MOVES is an exception: it passes at
 * once, before steps that nothing orders it behind. KERNELS_STEPS alone calls the wrapped backend:
 * transfers are copies and need none. Sums of blocks use no state of it. */
#ifndef BATON_KERNELS_DEFERRED_DEFERRED_H
#define BATON_KERNELS_DEFERRED_DEFERRED_H

#include "kernels/backend.h"

#include <pthread.h>

#define QUEUE_ITEMS 1024

/* --- items --- */

struct transfer {
    char *target;
    const char *source;
    size_t bytes;
};

struct summing {
    struct kv_sum_job job;
    struct buffer pool, sums;
    uint32_t blocks[KV_SUMS_AT_ONCE]; /* the job's */
};

struct load {
    struct linear linear;
    uint32_t first_row, row_count;
    const void *rows;
    const float *scales;
};

struct host_work {
    uint32_t count, grain;
    kernels_work *work;
    void *context;
};

/* A measurement of the wrapped backend. */
struct measurement {
    enum weight_type type;
    struct buffer memory;
    double *peak; /* NULL: a read is measured */
    uint64_t *read_ns;
    const char **instruction;
};

struct embed {
    struct step_batch batch;
    struct linear embedding;
    struct buffer x;
};

struct rmsnorm {
    struct buffer x, weight, rows, out;
    double eps;
    uint32_t row_count, hidden;
};

struct product {
    struct linear linear;
    struct buffer in, out;
    uint32_t rows;
    bool accumulate;
};

struct attend {
    struct step_batch batch;
    struct attention_shape shape;
    struct head_parameters parameters; /* rope_append has them */
    struct kv_layout layout;
    uint32_t layer;
    struct buffer qkv, pool, out;
};

struct swiglu {
    struct buffer gate_up, out;
    uint32_t rows, ffn;
};

struct sample {
    struct buffer logits, draws, scratch, drawn;
    uint32_t rows, vocab;
};

struct feed {
    struct buffer from, drawn, tokens;
    uint32_t rows;
};

struct item;
typedef enum status run_item(struct kernels *inner, struct item *item);

struct item {
    /* MARK and ORDER are of the queue itself. CALL runs even if its stream has failed. */
    enum kind { OPERATION, TRANSFER, CALL, MARK, ORDER } kind;
    run_item *run;
    enum kernels_stream before; /* ORDER */
    kernels_event event;        /* MARK, ORDER */
    union {
        struct transfer transfer;
        struct summing summing;
        struct load load;
        struct host_work host_work;
        struct measurement measurement;
        struct embed embed;
        struct rmsnorm rmsnorm;
        struct product product;
        struct attend attend;
        struct swiglu swiglu;
        struct sample sample;
        struct feed feed;
    };
};

/* --- state --- */

/* Fields are guarded by deferred.mutex. The thread reads its next item without it. */
struct stream {
    struct deferred *owner;
    pthread_t thread;
    bool started;
    pthread_cond_t wake;
    struct item *items;    /* [QUEUE_ITEMS] */
    uint64_t queued, done; /* items, counted up */
    /* `late`: runs up to this item and this event. */
    uint64_t wanted;
    kernels_event wanted_event;
    kernels_event passed;
    uint64_t passed_us[KERNELS_TIMED_EVENTS];
    enum status failed;
    int signal; /* the eventfd plus 1 that a passed event writes to; 0: none */
};

/* Addresses from `seen` on stand for those from `real` on; equal in adopted memory. */
struct range {
    char *seen, *real;
    size_t bytes, reserved; /* reserved: bytes of the address range without rights; 0: adopted */
};

struct deferred {
    struct kernels_backend table; /* the wrapped backend's description, our functions */
    struct kernels *inner;
    bool late, closing;
    pthread_mutex_t mutex;
    pthread_cond_t progress; /* an item is done */
    struct stream streams[KERNELS_STREAMS];
    struct range *ranges; /* in the order of `seen` */
    size_t range_count, range_room;
};

/* --- queues.c --- */

extern const struct kernels_queues deferred_queues;
enum status deferred_sync(struct kernels *kernels) WARN_UNUSED;

/* Starts both threads; the caller has set `inner` and `late`. false: no memory or thread, and
 * deferred_stop is due. */
bool deferred_start(struct deferred *self);
/* Ends what is queued, and the threads. */
void deferred_stop(struct deferred *self);

/* Queues an item; waits for room. */
enum status deferred_push(struct kernels *kernels, enum kernels_stream stream,
                          const struct item *item) WARN_UNUSED;
/* Runs an item behind all that KERNELS_STEPS has queued, and returns when it is done. */
void deferred_call(struct kernels *kernels, const struct item *item);

/* --- memory.c --- */

enum status deferred_alloc(struct kernels *kernels, size_t bytes,
                           struct buffer *buffer) WARN_UNUSED;
void deferred_free(struct kernels *kernels, struct buffer *buffer);
enum status deferred_adopt(struct kernels *kernels, void *address, size_t bytes,
                           struct buffer *buffer) WARN_UNUSED;
/* Gives a buffer with the real address. Without an address it stays as it is. A buffer beside the
 * device's memory is a programmer's error. */
struct buffer deferred_real(struct kernels *kernels, const struct buffer *buffer);

#endif
