#include "router/doors/body_readers.h"

#include "common/base/assert.h"
#include "common/base/failpoint.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MAX_READERS 16

struct body_readers {
    pthread_mutex_t lock; /* for all below, except the threads */
    pthread_cond_t given;
    struct fair_queue turns;
    size_t bytes, most_bytes; /* the copies that wait or are read */
    struct body_copy {
        uint64_t owner;
        size_t bytes;
    } read[MAX_READERS]; /* in each thread's work */
    unsigned thread_count, begun_count;
    bool stopping;
    pthread_t threads[MAX_READERS];
};

static struct body_job *job_of(const struct fair_item *item)
{
    return (struct body_job *)((char *)item - offsetof(struct body_job, item));
}

/* Waits for the next job. NULL: the end. Under the lock. */
static struct body_job *next_job(struct body_readers *readers)
{
    struct fair_item *item;
    while (!(item = fair_queue_pop(&readers->turns))) {
        if (readers->stopping)
            return NULL;
        pthread_cond_wait(&readers->given, &readers->lock);
    }
    return job_of(item);
}

/* Under the lock. */
static void give_room(struct body_readers *readers, struct body_copy *copy)
{
    readers->bytes -= copy->bytes;
    copy->bytes = 0;
}

static void *read_jobs(void *argument)
{
    struct body_readers *readers = argument;
    struct body_job *job;
    pthread_mutex_lock(&readers->lock);
    struct body_copy *mine = &readers->read[readers->begun_count++];
    while ((job = next_job(readers))) {
        *mine = (struct body_copy){job->item.owner, job->bytes};
        job->copy = mine;
        job->waiting = false;
        pthread_mutex_unlock(&readers->lock);
        FAILPOINT("doors.body");
        job->read(job);
        pthread_mutex_lock(&readers->lock);
        give_room(readers, mine);
    }
    pthread_mutex_unlock(&readers->lock);
    return NULL;
}

size_t body_readers_share(size_t receive_memory_bytes, size_t most_message_bytes)
{
    size_t quarter = receive_memory_bytes / 4;
    return quarter > most_message_bytes ? quarter : most_message_bytes;
}

enum status body_readers_start(unsigned threads, size_t most_bytes, struct body_readers **out,
                               struct error *err)
{
    ASSERT(threads > 0 && threads <= MAX_READERS);
    struct body_readers *readers = calloc(1, sizeof *readers);
    if (!readers)
        return error_set(err, STATUS_LIMIT, "out of memory for the readers of large requests");
    pthread_mutex_init(&readers->lock, NULL);
    pthread_cond_init(&readers->given, NULL);
    fair_queue_init(&readers->turns);
    readers->most_bytes = most_bytes;
    for (; readers->thread_count < threads; readers->thread_count++) {
        pthread_t *thread = &readers->threads[readers->thread_count];
        int failed = pthread_create(thread, NULL, read_jobs, readers);
        if (failed) {
            body_readers_stop(readers);
            return error_set(err, STATUS_LIMIT, "cannot start a reader of large requests: %s",
                             strerror(failed));
        }
        pthread_setname_np(*thread, "body");
    }
    *out = readers;
    return STATUS_OK;
}

void body_readers_stop(struct body_readers *readers)
{
    if (!readers)
        return;
    pthread_mutex_lock(&readers->lock);
    ASSERT(readers->turns.count == 0);
    readers->stopping = true;
    pthread_cond_broadcast(&readers->given);
    pthread_mutex_unlock(&readers->lock);
    for (unsigned i = 0; i < readers->thread_count; i++)
        pthread_join(readers->threads[i], NULL);
    pthread_mutex_destroy(&readers->lock);
    pthread_cond_destroy(&readers->given);
    free(readers);
}

bool body_readers_wanted(const struct body_readers *readers, size_t bytes)
{
    return readers && bytes > BODY_READERS_SMALL_BYTES;
}

/* Returns whether a copy has room: an owner's only one if it fits, further ones within its share.
 * Under the lock. */
static bool has_room(const struct body_readers *readers, size_t bytes, uint64_t owner)
{
    const struct fair_item *item;
    size_t own = 0;
    for (unsigned i = 0; i < readers->begun_count; i++)
        own += readers->read[i].owner == owner ? readers->read[i].bytes : 0;
    TAILQ_FOREACH(item, &readers->turns.items, link)
    own += item->owner == owner ? job_of(item)->bytes : 0;
    return bytes <= readers->most_bytes - readers->bytes &&
           (!own || fair_share_holds(own + bytes, readers->bytes + bytes, readers->most_bytes));
}

bool body_readers_give(struct body_readers *readers, struct body_job *job, uint64_t owner)
{
    pthread_mutex_lock(&readers->lock);
    bool fits = !job->bytes || has_room(readers, job->bytes, owner);
    if (fits) {
        readers->bytes += job->bytes;
        job->waiting = true;
        fair_queue_push(&readers->turns, &job->item, owner);
        pthread_cond_signal(&readers->given);
    }
    pthread_mutex_unlock(&readers->lock);
    return fits;
}

void body_readers_give_room(struct body_readers *readers, struct body_job *job)
{
    pthread_mutex_lock(&readers->lock);
    give_room(readers, job->copy);
    pthread_mutex_unlock(&readers->lock);
}

bool body_readers_take_back(struct body_readers *readers, struct body_job *job)
{
    pthread_mutex_lock(&readers->lock);
    bool waited = job->waiting;
    if (waited) {
        job->waiting = false;
        fair_queue_remove(&readers->turns, &job->item);
        readers->bytes -= job->bytes;
    }
    pthread_mutex_unlock(&readers->lock);
    return waited;
}
