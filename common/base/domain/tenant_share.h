/* The share of a resource that one tenant may hold while others may come: seven eighths. PURE. The
 * rest is left to the others, so that one that asks for little is served at once. */
#ifndef BATON_BASE_DOMAIN_TENANT_SHARE_H
#define BATON_BASE_DOMAIN_TENANT_SHARE_H

#include <stdint.h>

#define TENANT_OTHERS_PART 8 /* one part in so many is left to others */

/* Returns the most of `total` places or blocks that one tenant may hold. A rest that is smaller
 * than `least` is of no use to others: then one tenant may hold all. */
static inline uint32_t tenant_share(uint32_t total, uint32_t least)
{
    uint32_t others = total / TENANT_OTHERS_PART;
    return others < least ? total : total - others;
}

#endif
