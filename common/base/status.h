/* The outcome of an operation that can fail for reasons outside the program, and a sentence that
 * explains the failure to a person. A programmer's error is an ASSERT (assert.h), never a status.
 *
 * The function that decides an error logs it once, or fills `struct error`. Callers pass the status
 * on. */
#ifndef BATON_BASE_STATUS_H
#define BATON_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

enum status {
    STATUS_OK = 0,
    STATUS_INVALID,     /* the input is wrong; trying again won't help */
    STATUS_NOT_FOUND,   /* the thing named does not exist */
    STATUS_LIMIT,       /* a bound was reached (queue, pool, message size); later may work */
    STATUS_TIMEOUT,     /* a deadline passed */
    STATUS_CANCELLED,   /* the caller no longer wants it */
    STATUS_UNAVAILABLE, /* a peer or device is gone or not ready */
    STATUS_CORRUPT,     /* bytes are not what their checksum or fence says */
    STATUS_UNSUPPORTED, /* valid, but not built or not ours */
    STATUS_IO,          /* the operating system refused (errno text in the sentence) */
    STATUS_INTERNAL,    /* an invariant across processes did not hold */
};

#define WARN_UNUSED __attribute__((warn_unused_result))

/* "ok", "invalid", ... : stable, lower case, for logs and metrics. */
const char *status_name(enum status status);

/* One sentence for a person: what, where, why, what to do. Always NUL-terminated, cut with "...",
 * valid UTF-8 on one line, whatever it quotes. */
struct error {
    char text[512];
};

/* Formats the sentence (err may be NULL) and returns `status`, so that `return error_set(...)`
 * reads well. */
enum status error_set(struct error *err, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum status error_vset(struct error *err, enum status status, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/* Puts "prefix: " in front of the sentence already there (err may be NULL) and returns `status`. */
enum status error_prefix(struct error *err, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* For functions that hold no resource: passes a failure on to the caller. */
#define TRY(expression)                                                                            \
    do {                                                                                           \
        enum status try_status_ = (expression);                                                    \
        if (try_status_ != STATUS_OK)                                                              \
            return try_status_;                                                                    \
    } while (0)

#endif
