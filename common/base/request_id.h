/* A client's name of its request. It stands in every log line about the request, and is the subject
 * of a failpoint. */
#ifndef BATON_BASE_REQUEST_ID_H
#define BATON_BASE_REQUEST_ID_H

#define REQUEST_MAX_ID_BYTES 128 /* the longest that the router takes, without a NUL */

#endif
