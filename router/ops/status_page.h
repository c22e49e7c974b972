/* The status page: status_page.html, put into the program at build time. Its script and its style
 * are allowed by a nonce, nothing else is: neither what is injected, nor anything from
 * elsewhere. */
#ifndef BATON_ROUTER_OPS_STATUS_PAGE_H
#define BATON_ROUTER_OPS_STATUS_PAGE_H

#include "common/base/str.h"

/* Appends the page, and writes the Content-Security-Policy that it is served with. `nonce`: letters
 * and digits, another one each time. */
void status_page(const char *nonce, struct str *page, char *policy, size_t policy_size);

#endif
