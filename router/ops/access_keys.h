/* Parses the file of API keys, which holds hashes only. No I/O. One line per key, its words in any
 * order:
 *
 *     # the build machines
 *     id=ci sha256=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 tenant=acme
 *         requests=60 tokens=100000 running=8 priorities=normal,offline      (the same line)
 *
 * id: the key's name in logs. sha256: the hash of the key's bytes, in hex. tenant: keys of one
 * tenant share the prefix cache. requests, tokens: per minute. running: at once. Default: no limit.
 * priorities: default normal and offline. classes: SLO classes, each with its priority; default:
 * all of them, with the priorities that the key has. Blank lines and lines that begin with # are
 * ignored. Any other mistake is refused with its line, as a misspelt limit must not mean no
 * limit. */
#ifndef BATON_ROUTER_OPS_ACCESS_KEYS_H
#define BATON_ROUTER_OPS_ACCESS_KEYS_H

#include "common/base/domain/api_key.h"
#include "common/base/domain/slo.h"
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
    bool priorities[PRIORITIES];         /* by enum priority */
    char classes[API_KEY_CLASSES_BYTES]; /* "": all */
};

struct access_keys {
    struct access_key *items; /* sorted by digest */
    size_t count;
};

/* On success the caller deinits. STATUS_INVALID, STATUS_LIMIT: *err names the line's number, never
 * its text, which may hold a key. */
enum status access_keys_parse(const char *text, size_t size, struct access_keys *keys,
                              struct error *err) WARN_UNUSED;
/* STATUS_INVALID: some keys list SLO classes that aren't there. *err names the keys and classes. */
enum status access_keys_check_classes(const struct access_keys *keys,
                                      const struct slo_classes *classes,
                                      struct error *err) WARN_UNUSED;
void access_keys_deinit(struct access_keys *keys);

/* Returns the key with this digest; NULL: none. The search depends on the digest, from which a
 * client learns nothing about other keys. The final comparison takes constant time. */
const struct access_key *access_keys_find(const struct access_keys *keys,
                                          const struct digest *digest);

#endif
