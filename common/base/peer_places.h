/* Counts the places (connections) that each peer address holds at a door, so that one address can't
 * take them all. PURE: no sockets, no locks; the caller's lock guards a book that threads share.
 *
 * An address is a whole IPv4 address, or the first 64 bits of an IPv6 address, as one host can use
 * all addresses of its /64. An IPv4 address in IPv6 form counts as IPv4. All peers of other
 * families are one address.
 *
 * Some ranges may be left out of the count: proxies, which bring connections of many clients. */
#ifndef BATON_BASE_PEER_PLACES_H
#define BATON_BASE_PEER_PLACES_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sockaddr;

/* --- ranges of addresses --- */

#define PEER_MAX_RANGES 32

/* All addresses that have the first `bits` of `address`, in IPv6 form (IPv4: ::ffff:a.b.c.d). */
struct peer_range {
    uint8_t address[16];
    unsigned bits; /* 0 .. 128 */
};
struct peer_ranges {
    struct peer_range items[PEER_MAX_RANGES];
    size_t count;
};

#define PEER_LOOPBACK "127.0.0.0/8,::1"

/* Parses "127.0.0.0/8,::1,10.1.2.3": addresses, or ranges with a number of bits, divided by commas.
 * "" is none. STATUS_INVALID: the sentence names the entry. STATUS_LIMIT: more than
 * PEER_MAX_RANGES. */
enum status peer_ranges_parse(const char *list, struct peer_ranges *ranges,
                              struct error *err) WARN_UNUSED;
/* The same, for a setting. */
enum status peer_ranges_check(const char *list, struct error *err) WARN_UNUSED;
bool peer_ranges_have(const struct peer_ranges *ranges, const struct sockaddr *peer);

/* --- the book --- */

struct peer_places;

/* The share of an address, of `all` places, where a setting doesn't say it: a quarter, and at least
 * one. */
size_t peer_places_default_share(size_t all);

/* Makes an empty book. `share`: the places of one address, 1 or more; `more`: places beyond the
 * share that an address may hold for a moment, to be told so. `uncounted` is copied; NULL: none.
 * `all`: the most places that are held together. STATUS_LIMIT: no memory. */
enum status peer_places_create(size_t all, size_t share, size_t more,
                               const struct peer_ranges *uncounted,
                               struct peer_places **places) WARN_UNUSED;
void peer_places_destroy(struct peer_places *places); /* NULL is fine */

enum peer_place {
    PEER_PLACE_TAKEN,  /* within the share, or not counted; to be given back */
    PEER_PLACE_BEYOND, /* beyond the share, and to be given back, too */
    PEER_PLACE_NONE,   /* nothing was taken */
};
/* Takes a place for a connection of `peer`. PEER_PLACE_NONE also comes if `all` are taken. */
enum peer_place peer_places_take(struct peer_places *places, const struct sockaddr *peer);
void peer_places_give_back(struct peer_places *places, const struct sockaddr *peer);
/* Returns the places that the address of `peer` holds. 0 for those that aren't counted. */
size_t peer_places_held(const struct peer_places *places, const struct sockaddr *peer);
/* Returns whether two peers count as one address. */
bool peer_places_same(const struct sockaddr *one, const struct sockaddr *other);

#endif
