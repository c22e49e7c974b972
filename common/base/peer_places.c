#include "common/base/peer_places.h"

#include "common/base/assert.h"
#include "common/base/map.h"
#include "common/base/str.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define V4_BITS        32
#define V6_BITS        128
#define V4_PREFIX      (V6_BITS - V4_BITS) /* ::ffff:0:0/96 holds all IPv4 addresses */
#define ENTRY_MAX      64                  /* bytes of one entry of a list */
#define DEFAULT_SHARES 4

/* --- addresses --- */

/* An address in IPv6 form. */
struct ip {
    uint8_t bytes[16];
};

static struct ip mapped(const void *v4)
{
    struct ip ip = {.bytes[10] = 0xff, .bytes[11] = 0xff};
    memcpy(ip.bytes + V4_PREFIX / 8, v4, V4_BITS / 8);
    return ip;
}

/* False: another family. */
static bool ip_of(const struct sockaddr *peer, struct ip *ip)
{
    if (peer->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, peer, sizeof v4);
        *ip = mapped(&v4.sin_addr);
    } else if (peer->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, peer, sizeof v6);
        memcpy(ip->bytes, &v6.sin6_addr, sizeof ip->bytes);
    }
    return peer->sa_family == AF_INET || peer->sa_family == AF_INET6;
}

/* The key of the book. No IPv6 host has a prefix that an IPv4 address or another family gets here:
 * ::/8 isn't given to hosts. Only ::1 is there, and gets 0. */
static uint64_t key_of(const struct sockaddr *peer)
{
    struct ip ip;
    if (!ip_of(peer, &ip))
        return 1;
    uint64_t key = 0;
    static const uint8_t mapped[V4_PREFIX / 8] = {[10] = 0xff, [11] = 0xff};
    const uint8_t *from =
        memcmp(ip.bytes, mapped, sizeof mapped) ? ip.bytes : ip.bytes + sizeof key;
    for (size_t i = 0; i < sizeof key; i++)
        key = key << 8 | from[i];
    return key;
}

bool peer_places_same(const struct sockaddr *one, const struct sockaddr *other)
{
    return key_of(one) == key_of(other);
}

/* --- ranges --- */

static enum status parse_range(const char *text, struct peer_range *range, struct error *err)
{
    char address[ENTRY_MAX];
    struct in_addr v4;
    struct ip ip = {{0}};
    uint64_t bits = 0;
    str_copy(address, sizeof address, text);
    char *slash = strchr(address, '/');
    if (slash)
        *slash = 0;
    bool is_v4 = inet_pton(AF_INET, address, &v4) == 1;
    unsigned most = is_v4 ? V4_BITS : V6_BITS;
    if (!is_v4 && inet_pton(AF_INET6, address, ip.bytes) != 1)
        return error_set(err, STATUS_INVALID,
                         "'%.63s' is no address: give numeric ones, like 10.0.0.7, 10.0.0.0/8 or "
                         "fd00::/8, divided by commas",
                         text);
    if (slash && !str_to_u64(slash + 1, 0, most, &bits))
        return error_set(err, STATUS_INVALID,
                         "'%.63s': the number behind '/' must be between 0 and %u", text, most);
    if (is_v4)
        ip = mapped(&v4);
    memcpy(range->address, ip.bytes, sizeof range->address);
    range->bits = (slash ? (unsigned)bits : most) + (V6_BITS - most);
    return STATUS_OK;
}

enum status peer_ranges_parse(const char *list, struct peer_ranges *out, struct error *err)
{
    struct peer_ranges ranges = {.count = 0};
    while (*(list += strspn(list, ", "))) {
        char entry[ENTRY_MAX];
        size_t length = strcspn(list, ", ");
        if (length >= sizeof entry)
            return error_set(err, STATUS_INVALID, "'%.63s...' is no address: it is too long", list);
        if (ranges.count == PEER_MAX_RANGES)
            return error_set(err, STATUS_LIMIT,
                             "more than %d addresses: give ranges, like 10.0.0.0/8",
                             PEER_MAX_RANGES);
        memcpy(entry, list, length);
        entry[length] = 0;
        TRY(parse_range(entry, &ranges.items[ranges.count++], err));
        list += length;
    }
    *out = ranges;
    return STATUS_OK;
}

enum status peer_ranges_check(const char *list, struct error *err)
{
    struct peer_ranges ranges;
    return peer_ranges_parse(list, &ranges, err);
}

static bool is_in(const struct peer_range *range, const struct ip *ip)
{
    size_t whole = range->bits / 8;
    unsigned rest = range->bits % 8;
    if (memcmp(range->address, ip->bytes, whole) != 0)
        return false;
    return !rest || (range->address[whole] ^ ip->bytes[whole]) >> (8 - rest) == 0;
}

bool peer_ranges_have(const struct peer_ranges *ranges, const struct sockaddr *peer)
{
    struct ip ip;
    bool found = false;
    if (!ip_of(peer, &ip))
        return false;
    for (size_t i = 0; i < ranges->count && !found; i++)
        found = is_in(&ranges->items[i], &ip);
    return found;
}

/* --- the book --- */

struct peer_places {
    size_t share, most; /* places of one address; `most` with those beyond the share */
    struct peer_ranges uncounted;
    struct map *held; /* key -> the count, which isn't 0 */
};

size_t peer_places_default_share(size_t all)
{
    return all > DEFAULT_SHARES ? all / DEFAULT_SHARES : 1;
}

enum status peer_places_create(size_t all, size_t share, size_t more,
                               const struct peer_ranges *uncounted, struct peer_places **out)
{
    ASSERT(share > 0);
    struct peer_places *places = calloc(1, sizeof *places);
    if (!places)
        return STATUS_LIMIT;
    places->share = share;
    places->most = share + more;
    if (uncounted)
        places->uncounted = *uncounted;
    if (map_create(all, &places->held) != STATUS_OK) {
        free(places);
        return STATUS_LIMIT;
    }
    *out = places;
    return STATUS_OK;
}

void peer_places_destroy(struct peer_places *places)
{
    if (!places)
        return;
    map_destroy(places->held);
    free(places);
}

size_t peer_places_held(const struct peer_places *places, const struct sockaddr *peer)
{
    return (uintptr_t)map_get(places->held, key_of(peer));
}

enum peer_place peer_places_take(struct peer_places *places, const struct sockaddr *peer)
{
    if (peer_ranges_have(&places->uncounted, peer))
        return PEER_PLACE_TAKEN;
    uintptr_t held = peer_places_held(places, peer);
    if (held >= places->most ||
        map_put(places->held, key_of(peer), (void *)(held + 1)) != STATUS_OK)
        return PEER_PLACE_NONE;
    return held < places->share ? PEER_PLACE_TAKEN : PEER_PLACE_BEYOND;
}

void peer_places_give_back(struct peer_places *places, const struct sockaddr *peer)
{
    if (peer_ranges_have(&places->uncounted, peer))
        return;
    uint64_t key = key_of(peer);
    uintptr_t held = (uintptr_t)map_get(places->held, key);
    ASSERT(held > 0);
    enum status status = STATUS_OK;
    if (held > 1)
        status = map_put(places->held, key, (void *)(held - 1));
    else
        (void)map_take(places->held, key);
    ASSERT(status == STATUS_OK); /* replacing takes no memory */
}
