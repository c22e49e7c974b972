/* Reads large requests beside the threads of the doors: to parse, render and tokenize megabytes
 * takes as long as thousands of small requests take, and a door's thread has other clients.
 *
 * Threads of their own take the requests that wait in turns of their owners (a key's tenant, or an
 * address where there are no keys): one owner's large requests delay another's by one of them at
 * most. Requests of up to BODY_READERS_SMALL_BYTES don't come here.
 *
 * Memory: a job is embedded in the struct of its door, which owns it, except between its pop and
 * the end of `read`. The doors bound the number of jobs; `most_bytes` bounds the bytes of those
 * that no door counts, and an owner with several has a share of them (fair_share_holds). Any thread
 * may call these functions. */
#ifndef BATON_ROUTER_DOORS_BODY_READERS_H
#define BATON_ROUTER_DOORS_BODY_READERS_H

#include "common/base/fair_queue.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

#define BODY_READERS_SMALL_BYTES (256u << 10)

struct body_readers;

/* {0} except `read` and `bytes`. */
struct body_job {
    void (*read)(struct body_job *job); /* on a reader's thread; may block, and may free the job */
    size_t bytes;                       /* a copy that no door counts; 0: none */

    /* The readers'. */
    struct fair_item item;
    struct body_copy *copy; /* its bytes, while it is read */
    bool waiting;
};

/* Returns the part of the memory of incoming requests that copies may take: a quarter, or what one
 * of the largest messages needs. */
size_t body_readers_share(size_t receive_memory_bytes, size_t most_message_bytes);

/* STATUS_LIMIT: no thread, or no memory. */
enum status body_readers_start(unsigned threads, size_t most_bytes, struct body_readers **readers,
                               struct error *err) WARN_UNUSED;
/* Waits for the job in work on each thread. No other job may wait: their doors have ended them.
 * NULL is fine. */
void body_readers_stop(struct body_readers *readers);

/* Returns whether a request of so many bytes is to be read by the readers, which may be NULL. */
bool body_readers_wanted(const struct body_readers *readers, size_t bytes);
/* False: too many bytes wait, of all owners or of this one, and the job stays the caller's. A job
 * without bytes is always taken. */
bool body_readers_give(struct body_readers *readers, struct body_job *job,
                       uint64_t owner) WARN_UNUSED;
/* Gives back the room of the job's copy, which is freed before the answer is sent: a client that
 * has its answer finds room for its next message. On the reader's thread, within `read`. A second
 * call does nothing. */
void body_readers_give_room(struct body_readers *readers, struct body_job *job);
/* Returns true if the job was waiting: it is the caller's again, and won't be read. */
bool body_readers_take_back(struct body_readers *readers, struct body_job *job);

#endif
