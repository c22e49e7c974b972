/* Who may call, and how much: API keys and their quotas, for every front door (gRPC, HTTP).
 *
 *     reason = access_check(access, token, now_us, &grant, &refusal);              a call comes, with what stands behind "Bearer "
 *     reason = access_reserve(grant, tokens, priority, now_us, &refusal);          once the prompt's length is known
 *     access_settle(grant, used_tokens, now_us);                                   its end, once (and once for each share)
 *
 * Without a keys file (`access` is NULL) everybody may call: the grant is NULL, and all of the
 * above take that. The file is watched; one that can't be used is refused with a line in the log,
 * and the keys before stay. A key that is there again after a change keeps what it has used; one
 * that is gone is refused from then on, its running requests go on. Any thread. Times are
 * clock_now_us(). Keys are never logged; ids of keys and tenants are.
 */
#ifndef BATON_ROUTER_OPS_ACCESS_H
#define BATON_ROUTER_OPS_ACCESS_H

#include "common/base/domain/api_key.h"
#include "router/reasons.h"

#define ACCESS_MAX_TOKEN_BYTES 512 /* of a key that a client sends; a longer one is no key */
#define ACCESS_SALT_BYTES      16

struct access;
struct access_grant; /* one call's, from access_check to access_settle */

struct access_refusal {
    struct error why;       /* for the client */
    uint32_t retry_after_s; /* 0: waiting doesn't help */
    char key[API_KEY_NAME_BYTES],
        tenant[API_KEY_NAME_BYTES]; /* whose use it is; "": nobody's key */
};

/* `path`: the file of access_keys.h; "": *access is NULL. watch_interval_us 0: reload's.
 * STATUS_INVALID, STATUS_IO, STATUS_LIMIT: what is wrong with it. */
enum status access_open(const char *path, uint64_t watch_interval_us, struct access **access,
                        struct error *err) WARN_UNUSED;
/* All grants were settled before. NULL is fine. */
void access_close(struct access *access);

/* REASON_NONE, REASON_INVALID_API_KEY, or REASON_RATE_LIMITED (requests a minute, or at once); the
 * grant is NULL unless NONE. */
enum reason access_check(struct access *access, const char *token, uint64_t now_us,
                         struct access_grant **grant, struct access_refusal *refusal);
/* Of what costs next to nothing and is no use of the key, a list of models: whose key is it?
 * REASON_NONE, or REASON_INVALID_API_KEY. The grant is to be settled, too. */
enum reason access_know(struct access *access, const char *token, struct access_grant **grant,
                        struct access_refusal *refusal);
/* For a call of several parts that end by themselves: the same grant, to be settled once more. What
 * they used is added up, and the last one is the call's end. */
struct access_grant *access_share(struct access_grant *grant);
/* Once, of the whole call. REASON_NONE, REASON_PRIORITY_NOT_ALLOWED, REASON_RATE_LIMITED (tokens a
 * minute), or REASON_QUOTA (more than the key may ever use at once). The grant stays to be
 * settled. */
enum reason access_reserve(struct access_grant *grant, uint64_t tokens, enum priority priority,
                           uint64_t now_us, struct access_refusal *refusal);
void access_settle(struct access_grant *grant, uint64_t used_tokens, uint64_t now_us);

/* Of the key's tenant, whose cached prompts are its own; the same on every router and in every
 * life. Zero bytes without a key. */
size_t access_salt(const struct access_grant *grant, uint8_t salt[ACCESS_SALT_BYTES]);
const char *access_key_id(const struct access_grant *grant); /* "" without one */
const char *access_tenant(const struct access_grant *grant); /* likewise */

/* What of an authorization header is the key: behind "Bearer ", in any case; "" where there is
 * none. */
const char *access_token(const char *authorization);

#endif
