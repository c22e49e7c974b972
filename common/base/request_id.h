/* What a client calls its request: the name in every log line about it, and the subject of a
 * failpoint. */
#ifndef BATON_BASE_REQUEST_ID_H
#define BATON_BASE_REQUEST_ID_H

#define REQUEST_MAX_ID_BYTES 128 /* of the longest that the router takes, without a NUL */

#endif
