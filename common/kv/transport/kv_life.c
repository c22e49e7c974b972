#include "common/kv/transport/kv_life.h"

#include "common/base/failpoint.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleep after a wake-up for nothing. */
#define PAUSE_MS 10

static_assert(KV_LIFE_MAX_WATCHED + 1 == FUTEX_WAITV_MAX, "the kernel's limit");
/* The kernel goes from entry to entry of a list, and finds each word at the same distance from its
 * entry. */
static_assert(sizeof(struct kv_life_word) == sizeof(struct robust_list), "one word an entry");

enum watch_state { WATCH_FREE, WATCH_ALIVE, WATCH_DIED, WATCH_REPORTED };

struct watch {
    enum watch_state state;
    uint32_t sign;
    const void *word;
    void *peer;
};

struct kv_life {
    pthread_t thread;
    struct kv_life_word *words;
    struct robust_list_head
        list; /* the thread's list; not behind the pool, so that no other process can write it */
    struct robust_list entries[KV_LIFE_WORDS];
    sem_t announced;
    uint32_t sign; /* 0: the system has no robust futexes */
    int deaths_fd;
    /* counts changes of the fields below; a futex that the thread waits for, too */
    _Atomic uint32_t changes;
    pthread_mutex_t lock; /* never held while waiting */
    bool stopping;
    struct watch watches[KV_LIFE_MAX_WATCHED];
};

static long futex(const void *word, int operation, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

/* -- the own sign -- */

static void leave_sign(struct kv_life *life)
{
    for (int i = 0; i < KV_LIFE_WORDS; i++)
        life->entries[i].next = i + 1 < KV_LIFE_WORDS ? &life->entries[i + 1] : &life->list.list;
    life->list.list.next = life->entries;
    life->list.futex_offset = (char *)life->words - (char *)life->entries;
    /* Replaces the C library's list, which is for mutexes that this thread does not take. */
    if (syscall(SYS_set_robust_list, &life->list, sizeof life->list) != 0)
        return;
    /* asks the kernel to wake a waiter */
    life->sign = (uint32_t)syscall(SYS_gettid) | FUTEX_WAITERS;
    for (int i = 0; i < KV_LIFE_WORDS; i++)
        atomic_store(&life->words[i].sign, life->sign);
}

/* -- the signs of others -- */

/* Compares in the kernel, which survives a page that is gone, and does nothing else: it wakes and
 * moves no waiter. Returns 0 or an error; EAGAIN: the word has another value. */
static int compare(const void *word, uint32_t value)
{
    return syscall(SYS_futex, word, FUTEX_CMP_REQUEUE, 0, NULL, word, value) < 0 ? errno : 0;
}

/* Called under the lock, so that the word is mapped. Returns true for a new death. */
static bool find_death(struct watch *watch)
{
    if (watch->state != WATCH_ALIVE)
        return false;
    int failure = compare(watch->word, watch->sign);
    if (failure != EAGAIN && failure != EFAULT)
        return false; /* alive; any other error is about the kernel itself */
    watch->state = WATCH_DIED;
    futex(watch->word, FUTEX_WAKE, INT_MAX, NULL); /* the kernel has woken only one waiter */
    return true;
}

static struct futex_waitv wait_for(const void *word, uint32_t value, uint32_t flags)
{
    return (struct futex_waitv){.val = value, .uaddr = (uintptr_t)word, .flags = FUTEX_32 | flags};
}

/* A word may be unwatched, and its memory unmapped, during the wait. Then `changes` has another
 * value, and all words are looked at anew. */
static void *life_main(void *argument)
{
    struct kv_life *life = argument;
    leave_sign(life);
    sem_post(&life->announced);
    for (uint32_t seen = 0; life->sign;) {
        pthread_mutex_lock(&life->lock);
        bool stopping = life->stopping, found = false;
        for (int i = 0; i < KV_LIFE_MAX_WATCHED; i++)
            found |= find_death(&life->watches[i]);
        if (found)
            eventfd_write(life->deaths_fd, 1);
        uint32_t changes = life->changes, count = 0;
        struct futex_waitv waits[FUTEX_WAITV_MAX];
        waits[count++] = wait_for(&life->changes, changes, FUTEX_PRIVATE_FLAG);
        for (int i = 0; i < KV_LIFE_MAX_WATCHED; i++)
            if (life->watches[i].state == WATCH_ALIVE)
                waits[count++] = wait_for(life->watches[i].word, life->watches[i].sign, 0);
        pthread_mutex_unlock(&life->lock);
        if (stopping)
            break;
        if (!found && changes == seen)
            futex(&life->changes, FUTEX_WAIT_PRIVATE, changes,
                  &(struct timespec){.tv_nsec = PAUSE_MS * 1000000});
        seen = changes;
        syscall(SYS_futex_waitv, waits, count, 0, NULL, 0);
    }
    return NULL;
}

/* Called under the lock. */
static void changed(struct kv_life *life)
{
    life->changes++;
    futex(&life->changes, FUTEX_WAKE_PRIVATE, 1, NULL);
}

bool kv_life_watch(struct kv_life *life, const struct kv_life_word *words, uint64_t admission,
                   uint32_t sign, void *peer)
{
    pthread_mutex_lock(&life->lock);
    struct watch *slot = life->watches, *end = slot + KV_LIFE_MAX_WATCHED;
    while (slot < end && slot->state != WATCH_FREE)
        slot++;
    if (slot < end) {
        *slot = (struct watch){WATCH_ALIVE, sign, &words[admission % KV_LIFE_WORDS].sign, peer};
        changed(life);
    }
    pthread_mutex_unlock(&life->lock);
    return slot < end;
}

void kv_life_unwatch(struct kv_life *life, const void *peer)
{
    pthread_mutex_lock(&life->lock);
    for (struct watch *slot = life->watches; slot < life->watches + KV_LIFE_MAX_WATCHED; slot++)
        if (slot->state != WATCH_FREE && slot->peer == peer) {
            find_death(slot); /* this waiter may be the one that the kernel woke: wake the others */
            *slot = (struct watch){WATCH_FREE};
            changed(life);
        }
    pthread_mutex_unlock(&life->lock);
}

void *kv_life_next_death(struct kv_life *life)
{
    void *peer = NULL;
    pthread_mutex_lock(&life->lock);
    for (int i = 0; i < KV_LIFE_MAX_WATCHED && !peer; i++)
        if (life->watches[i].state == WATCH_DIED) {
            life->watches[i].state = WATCH_REPORTED;
            peer = life->watches[i].peer;
        }
    eventfd_t ignored;
    if (!peer)
        eventfd_read(life->deaths_fd, &ignored);
    pthread_mutex_unlock(&life->lock);
    return peer;
}

/* -- start, stop -- */

static void life_free(struct kv_life *life)
{
    if (life->deaths_fd >= 0)
        close(life->deaths_fd);
    pthread_mutex_destroy(&life->lock);
    sem_destroy(&life->announced);
    free(life);
}

/* Starts the thread with all signals blocked: other threads handle them. */
static int thread_start(struct kv_life *life)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&life->thread, NULL, life_main, life);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failure)
        pthread_setname_np(life->thread, "baton-life");
    return failure;
}

enum status kv_life_start(struct kv_life_word words[KV_LIFE_WORDS], struct kv_life **out,
                          struct error *err)
{
    /* A kernel with futex_waitv refuses a wait for nothing with EINVAL. */
    if (FAILPOINT_FAILS("transport.sign_of_life") ||
        (syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0) != 0 && errno != EINVAL))
        return error_set(err, STATUS_UNSUPPORTED,
                         "the system has no futex_waitv (Linux 5.16), or forbids it");
    if (compare(words, 0) != 0 || compare(words, 1) != EAGAIN)
        return error_set(err, STATUS_UNSUPPORTED, "the system forbids FUTEX_CMP_REQUEUE");
    struct kv_life *life = calloc(1, sizeof *life);
    if (!life)
        return error_set(err, STATUS_LIMIT, "no memory for a sign of life");
    life->words = words;
    life->changes = 1;
    pthread_mutex_init(&life->lock, NULL);
    sem_init(&life->announced, 0, 0);
    life->deaths_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int failure = life->deaths_fd < 0 ? errno : thread_start(life);
    if (failure) {
        life_free(life);
        return error_set(err, STATUS_LIMIT, "no descriptor or thread for a sign of life: %s",
                         strerror(failure));
    }
    while (sem_wait(&life->announced) != 0)
        ;
    if (!life->sign) {
        kv_life_stop(life);
        return error_set(err, STATUS_UNSUPPORTED, "the system has no robust futexes");
    }
    *out = life;
    return STATUS_OK;
}

void kv_life_stop(struct kv_life *life)
{
    if (!life)
        return;
    pthread_mutex_lock(&life->lock);
    life->stopping = true;
    changed(life);
    pthread_mutex_unlock(&life->lock);
    pthread_join(life->thread, NULL); /* the kernel walks the list before the join returns */
    life_free(life);
}

uint32_t kv_life_sign(const struct kv_life *life)
{
    return life->sign;
}

int kv_life_fd(const struct kv_life *life)
{
    return life->deaths_fd;
}
