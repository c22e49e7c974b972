/* API keys and their quotas, for both doors (gRPC, HTTP).
 *
 *     reason = access_check(access, token, now_us, &grant, &refusal);      a call comes
 *     reason = access_run(grant, choices, &refusal);                       it is read
 *     reason = access_use_class(grant, class, &refusal);                   its class is known
 *     reason = access_reserve(grant, tokens, priority, now_us, &refusal);  its prompt is counted
 *     access_choice_ended(grant, now_us);                                  one of its choices ends
 *     access_settle(grant, used_tokens, now_us);                           it ends
 *
 * Without a file of keys (`access` is NULL) every client may call: the grant is NULL, which all
 * functions accept. The file is watched. If the changed file is invalid, it is refused with a log
 * line, and the old keys stay. A key that a change keeps also keeps its use. A key that a change
 * removes is refused from then on, but its running requests go on. Any thread. Times are
 * clock_now_us(). Logs have the ids of keys and tenants, never the keys. */
#ifndef BATON_ROUTER_OPS_ACCESS_H
#define BATON_ROUTER_OPS_ACCESS_H

#include "common/base/domain/api_key.h"
#include "common/base/domain/slo.h"
#include "router/reasons.h"

#define ACCESS_MAX_TOKEN_BYTES 512 /* a client's key; longer ones are unknown */
#define ACCESS_SALT_BYTES      16

struct access;
struct access_grant; /* one call, from access_check to the last access_settle */

struct access_refusal {
    struct error why;                                         /* for the client */
    uint32_t retry_after_s;                                   /* 0: waiting doesn't help */
    char key[API_KEY_NAME_BYTES], tenant[API_KEY_NAME_BYTES]; /* their ids; "": unknown key */
};

/* `path`: a file of keys (access_keys.h); "": *access is NULL. watch_interval_us 0: the default of
 * reload.h. `classes`: the router's, which outlive it. STATUS_INVALID, STATUS_IO, STATUS_LIMIT:
 * *err says what is wrong with the file. */
enum status access_open(const char *path, uint64_t watch_interval_us,
                        const struct slo_classes *classes, struct access **access,
                        struct error *err) WARN_UNUSED;
/* All grants must be settled. `access` may be NULL. */
void access_close(struct access *access);

/* Admits a call and counts it, with one choice. `token` is the text after "Bearer ".
 * REASON_INVALID_API_KEY, or REASON_RATE_LIMITED (requests a minute, or at once): the grant is
 * NULL. */
enum reason access_check(struct access *access, const char *token, uint64_t now_us,
                         struct access_grant **grant, struct access_refusal *refusal);
/* The same for a cheap call, such as a list of models, that doesn't count. REASON_INVALID_API_KEY:
 * the grant is NULL. Otherwise settle it too. */
enum reason access_know(struct access *access, const char *token, struct access_grant **grant,
                        struct access_refusal *refusal);
/* Returns the same grant, for one more part of the call: settle it once more. The use of all parts
 * is added up. The last settlement ends the call. */
struct access_grant *access_share(struct access_grant *grant);
/* Counts all choices of the whole call (1 or more) as running. Call at most once per call, before
 * it is shared. REASON_RATE_LIMITED: some of those that run must end first. REASON_QUOTA: the key
 * may never run so many. The grant must be settled in each case. */
enum reason access_run(struct access_grant *grant, uint32_t choices,
                       struct access_refusal *refusal);
/* Reports that one choice of a call that still runs has ended. */
void access_choice_ended(struct access_grant *grant, uint64_t now_us);
/* Checks that the key may use the class of the call (NULL: it has none). A key that lists the class
 * may ask for its priority, too. Call before access_reserve. REASON_SLO_CLASS_NOT_ALLOWED. The
 * grant must be settled in each case. */
enum reason access_use_class(struct access_grant *grant, const struct slo_class *class,
                             struct access_refusal *refusal);
/* Reserves the tokens of the whole call. Call at most once per call. REASON_PRIORITY_NOT_ALLOWED,
 * REASON_RATE_LIMITED (tokens a minute), REASON_QUOTA (more tokens than the key gets in a minute).
 * The grant must be settled in each case. */
enum reason access_reserve(struct access_grant *grant, uint64_t tokens, enum priority priority,
                           uint64_t now_us, struct access_refusal *refusal);
void access_settle(struct access_grant *grant, uint64_t used_tokens, uint64_t now_us);

/* Writes the salt of the key's tenant, which keeps its cached prompts apart from those of other
 * tenants. It is the same on every router and after a restart. Returns its bytes; 0: no key. */
size_t access_salt(const struct access_grant *grant, uint8_t salt[ACCESS_SALT_BYTES]);
const char *access_key_id(const struct access_grant *grant); /* "": no key */
const char *access_tenant(const struct access_grant *grant); /* "": no key */

/* The key in an authorization header, after "Bearer " in upper or lower case; "": none. */
const char *access_token(const char *authorization);

#endif
