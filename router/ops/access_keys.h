/* The file of API keys, which holds hashes only: text to keys, without I/O. A line a key, words in
 * any order:
 *
 *     # whose it is
 *     id=ci sha256=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 tenant=acme requests=60 tokens=100000 running=8 priorities=normal,offline
 *
 * id: what logs call the key. sha256: of the key's bytes, in hex. tenant: whose prompts share the
 * prefix cache (several keys may have one). requests, tokens: a minute; running: at once; left out:
 * no limit. priorities: left out: normal and offline. Blank lines and lines that begin with # say
 * nothing. What is not understood is refused, with its line: a misspelt limit must not be none.
 */
#ifndef BATON_ROUTER_OPS_ACCESS_KEYS_H
#define BATON_ROUTER_OPS_ACCESS_KEYS_H

#include "common/base/domain/api_key.h"
#include "common/net/crypto/digest.h"
#include "router/ops/quota.h"

#include <stdbool.h>
#include <stddef.h>

#define ACCESS_KEYS_MAX            4096
#define ACCESS_KEYS_MAX_FILE_BYTES (1u << 20)
#define ACCESS_KEYS_MAX_LINE_BYTES 1024

struct access_key {
    char id[API_KEY_NAME_BYTES], tenant[API_KEY_NAME_BYTES];
    struct digest digest;
    struct quota_limits limits;
    bool priorities[PRIORITIES]; /* by enum priority */
};

struct access_keys {
    struct access_key *items; /* sorted by digest */
    size_t count;
};

/* On success the caller deinits. STATUS_INVALID, STATUS_LIMIT: a sentence with the line's number;
 * never with what stands there, which may be a key. */
enum status access_keys_parse(const char *text, size_t size, struct access_keys *keys,
                              struct error *err) WARN_UNUSED;
void access_keys_deinit(struct access_keys *keys);

/* The key that has this digest; NULL: none. Where it is looked for depends on the digest, which
 * says nothing of any key to who sent it; whether it is this one is compared in constant time. */
const struct access_key *access_keys_find(const struct access_keys *keys,
                                          const struct digest *digest);

#endif
