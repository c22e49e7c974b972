/* Replaces getaddrinfo as if name servers were silent: libcurl calls this one. Addresses are found
 * at once. HUNG_NAME waits while hung_lookup_set(true) is in force; then it is 127.0.0.1. */
#ifndef BATON_TESTS_UNIT_HUNG_LOOKUP_H
#define BATON_TESTS_UNIT_HUNG_LOOKUP_H

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define HUNG_NAME "silent.test"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool hangs;
} hung_lookup = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};

static inline void hung_lookup_set(bool hangs)
{
    pthread_mutex_lock(&hung_lookup.lock);
    hung_lookup.hangs = hangs;
    pthread_cond_broadcast(&hung_lookup.changed);
    pthread_mutex_unlock(&hung_lookup.lock);
}

__attribute__((visibility("default"))) int getaddrinfo(const char *host, const char *port,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **found)
{
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&next = dlsym(RTLD_NEXT, "getaddrinfo");
    if (!host || strcmp(host, HUNG_NAME) != 0)
        return next(host, port, hints, found);
    pthread_mutex_lock(&hung_lookup.lock);
    while (hung_lookup.hangs)
        pthread_cond_wait(&hung_lookup.changed, &hung_lookup.lock);
    pthread_mutex_unlock(&hung_lookup.lock);
    return next("127.0.0.1", port, hints, found);
}

#endif
