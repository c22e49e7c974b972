#include "router/ops/status_page.h"

#include <stdio.h>
#include <string.h>

#define NONCE "@NONCE@" /* stands where the page wants it */

extern const unsigned char status_page_html[];
extern const unsigned long status_page_html_size;

void status_page(const char *nonce, struct str *page, char *policy, size_t policy_size)
{
    const char *text = (const char *)status_page_html, *end = text + status_page_html_size;
    for (const char *mark; (mark = memmem(text, (size_t)(end - text), NONCE, strlen(NONCE)));) {
        str_append(page, text, (size_t)(mark - text));
        str_add(page, nonce);
        text = mark + strlen(NONCE);
    }
    str_append(page, text, (size_t)(end - text));
    snprintf(policy, policy_size,
             "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; "
             "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
             nonce, nonce);
}
