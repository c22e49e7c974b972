/* Liveness of a process that runs: decides when `baton up` asks it, when it says that the process
 * is silent, and when it ends it; and the question itself. Owner: one thread.
 *
 * A question is a connection to the process's gRPC address, closed for sending at once. Any byte
 * back, or an end in order, is a sign of life: a door that is full closes, and one with TLS does
 * so, too. A process that is stopped (SIGSTOP), or a listening thread that hangs, does neither: the
 * kernel alone answers only that the connection is made. */
#ifndef BATON_CLI_LIVENESS_H
#define BATON_CLI_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* --- the decision ---
 *
 * PURE: one struct a process, the caller passes the time. `limit_us` is the silence that ends a
 * process; 0: none does. A small limit shortens the intervals: a quarter of it at most. */
#define LIVENESS_EVERY_US 5000000u /* from a sign of life to the next question */
#define LIVENESS_SAY_US   3000000u /* from a question to the line that it has no answer */
#define LIVENESS_LATE_US  1000000u /* a turn that is so late follows a stop of our own */

struct liveness {           /* zero: it isn't watched */
    uint64_t heard_us;      /* its last sign of life */
    uint64_t ask_us;        /* the next question is due; UINT64_MAX: one is out */
    uint64_t unanswered_us; /* the first question since then; 0: none */
    bool said;              /* LIVENESS_SAY was decided */
    bool postponed;         /* a question since then could not be put */
};

enum liveness_act {
    LIVENESS_WAIT, /* nothing until liveness_next_us */
    LIVENESS_ASK,  /* then call liveness_heard, liveness_failed or liveness_postponed */
    LIVENESS_SAY,  /* it doesn't answer */
    LIVENESS_END,  /* it hasn't answered for limit_us; it isn't watched any more */
};

/* The process serves: watches it from now on. */
void liveness_begin(struct liveness *liveness, uint64_t limit_us, uint64_t now_us);
/* An answer came. Returns whether LIVENESS_SAY was said before. */
bool liveness_heard(struct liveness *liveness, uint64_t limit_us, uint64_t now_us);
/* Nothing listens, or the connection ended without an answer: the process is silent, as before. */
void liveness_failed(struct liveness *liveness, uint64_t limit_us, uint64_t now_us);
/* The question of this turn could not be put, through no fault of the process: it is put later, and
 * the time until then counts for no silence. Returns whether that is new since the last sign of
 * life. */
bool liveness_postponed(struct liveness *liveness, uint64_t limit_us, uint64_t now_us);
/* Decides one act. A turn that comes LIVENESS_LATE_US after liveness_next_us follows a stop of our
 * own, which counts for no silence. Take answers before: they may have come meanwhile. */
enum liveness_act liveness_turn(struct liveness *liveness, uint64_t limit_us, uint64_t now_us);
/* UINT64_MAX: never. */
uint64_t liveness_next_us(const struct liveness *liveness, uint64_t limit_us);

/* --- the question --- */

struct liveness_question {
    int fd; /* -1: none is out */
};

enum liveness_asked {
    LIVENESS_OUT,     /* the question is out */
    LIVENESS_REFUSED, /* nothing listens there */
    LIVENESS_CANNOT,  /* this process can't ask: it has no descriptor, say, or no port */
};

/* Puts a question to "host:port", a numeric address or localhost; a former one is taken back. */
enum liveness_asked liveness_ask(struct liveness_question *question, const char *address);
/* Once the descriptor is readable. Returns whether it was answered; it is over in any case. */
bool liveness_answered(struct liveness_question *question);
/* Takes it back. */
void liveness_drop(struct liveness_question *question);

#endif
