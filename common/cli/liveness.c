#include "common/cli/liveness.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- the decision --- */

/* Shortens an interval for a small limit. */
static uint64_t within(uint64_t interval_us, uint64_t limit_us)
{
    return limit_us && limit_us / 4 < interval_us ? limit_us / 4 : interval_us;
}

void liveness_begin(struct liveness *liveness, uint64_t limit_us, uint64_t now_us)
{
    *liveness = (struct liveness){.heard_us = now_us,
                                  .ask_us = now_us + within(LIVENESS_EVERY_US, limit_us)};
}

bool liveness_heard(struct liveness *liveness, uint64_t limit_us, uint64_t now_us)
{
    bool said = liveness->said;
    liveness_begin(liveness, limit_us, now_us);
    return said;
}

void liveness_failed(struct liveness *liveness, uint64_t limit_us, uint64_t now_us)
{
    liveness->ask_us = now_us + within(LIVENESS_EVERY_US, limit_us);
}

bool liveness_postponed(struct liveness *liveness, uint64_t limit_us, uint64_t now_us)
{
    uint64_t wait_us = within(LIVENESS_EVERY_US, limit_us);
    bool first = !liveness->postponed;
    liveness->postponed = true;
    liveness->ask_us = now_us + wait_us;
    liveness->heard_us += wait_us;
    liveness->unanswered_us =
        liveness->unanswered_us == now_us ? 0 : liveness->unanswered_us + wait_us;
    return first;
}

uint64_t liveness_next_us(const struct liveness *liveness, uint64_t limit_us)
{
    if (!liveness->heard_us)
        return UINT64_MAX;
    uint64_t next_us = liveness->ask_us;
    if (!liveness->unanswered_us)
        return next_us;
    uint64_t say_us = liveness->unanswered_us + within(LIVENESS_SAY_US, limit_us);
    if (!liveness->said && say_us < next_us)
        next_us = say_us;
    if (limit_us && liveness->heard_us + limit_us < next_us)
        next_us = liveness->heard_us + limit_us;
    return next_us;
}

enum liveness_act liveness_turn(struct liveness *liveness, uint64_t limit_us, uint64_t now_us)
{
    uint64_t next_us = liveness_next_us(liveness, limit_us);
    if (now_us < next_us)
        return LIVENESS_WAIT;
    if (now_us - next_us >= LIVENESS_LATE_US) {
        uint64_t late_us = now_us - next_us;
        liveness->heard_us += late_us;
        liveness->ask_us += liveness->ask_us == UINT64_MAX ? 0 : late_us;
        liveness->unanswered_us += liveness->unanswered_us ? late_us : 0;
    }
    if (liveness->unanswered_us && limit_us && now_us - liveness->heard_us >= limit_us) {
        *liveness = (struct liveness){0};
        return LIVENESS_END;
    }
    if (liveness->unanswered_us && !liveness->said &&
        now_us - liveness->unanswered_us >= within(LIVENESS_SAY_US, limit_us)) {
        liveness->said = true;
        return LIVENESS_SAY;
    }
    if (!liveness->unanswered_us)
        liveness->unanswered_us = now_us;
    liveness->ask_us = UINT64_MAX;
    return LIVENESS_ASK;
}

/* --- the question --- */

/* Writes the address of a socket of this machine. A name needs a look-up that may take long, so
 * only localhost is one. */
static bool parse(const char *text, struct sockaddr_storage *address, socklen_t *length)
{
    char host[128];
    const char *colon = strrchr(text, ':');
    size_t bytes = colon ? (size_t)(colon - text) : sizeof host;
    if (bytes >= sizeof host)
        return false;
    bool bracketed = bytes >= 2 && text[0] == '[' && text[bytes - 1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)bytes - 2 * bracketed, text + bracketed);
    if (!*host || !strcmp(host, "localhost"))
        snprintf(host, sizeof host, "127.0.0.1");
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found;
    if (getaddrinfo(host, colon + 1, &hints, &found))
        return false;
    memcpy(address, found->ai_addr, found->ai_addrlen);
    *length = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

enum liveness_asked liveness_ask(struct liveness_question *question, const char *address)
{
    struct sockaddr_storage at = {0};
    socklen_t length;
    liveness_drop(question);
    if (!parse(address, &at, &length))
        return LIVENESS_CANNOT;
    int fd = socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return LIVENESS_CANNOT;
    int failure = connect(fd, (struct sockaddr *)&at, length) ? errno : 0;
    socklen_t size = sizeof failure;
    if (failure == EINPROGRESS)
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size);
    question->fd = fd;
    if (failure) {
        liveness_drop(question);
        return failure == ECONNREFUSED ? LIVENESS_REFUSED : LIVENESS_CANNOT;
    }
    if (!getpeername(fd, (struct sockaddr *)&at, &length)) /* else its queue is full */
        (void)shutdown(fd, SHUT_WR);
    return LIVENESS_OUT;
}

bool liveness_answered(struct liveness_question *question)
{
    char bytes[256];
    ssize_t count = recv(question->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    bool answered = count >= 0 || errno == ECONNRESET;
    liveness_drop(question);
    return answered;
}

void liveness_drop(struct liveness_question *question)
{
    if (question->fd >= 0)
        close(question->fd);
    question->fd = -1;
}
